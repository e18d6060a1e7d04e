"""Which topic a path is about."""

from __future__ import annotations

import pytest
from magnetar.common.errors import InvalidName
from magnetar.common.http.paths import segments
from magnetar.discovery.http.topic_paths import topic_of

T = "persistent://t/n/x"


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("/lookup/v2/topic/persistent/t/n/x", T),
        ("/lookup/v2/topic/non-persistent/t/n/x/bundle", "non-persistent://t/n/x"),
        ("/admin/v2/persistent/t/n/x", T),
        ("/admin/v2/persistent/t/n/x/stats", T),
        ("/admin/v2/persistent/t/n/x/subscription/a%2Fb/skip/3", T),
        ("/admin/v2/persistent/t/n/x/partitions", T),
        ("/admin/v2/persistent/t/n/x-partition-3/stats", f"{T}-partition-3"),
        ("/admin/v2/non-persistent/t/n/x/stats", "non-persistent://t/n/x"),
        ("/admin/v2/schemas/t/n/x/schema", T),
        ("/admin/v2/schemas/t/n/x/schema/3", T),
        ("/admin/magnetar/v1/persistent/t/n/x/explain", T),
        ("/topics/persistent/t/n/x", T),
        ("/admin/v2/persistent/t/n/a%20b+c%2Bd/stats", "persistent://t/n/a b c+d"),
        ("/admin/v2/persistent/t/n/partitioned/stats", "persistent://t/n/partitioned"),
        ("/admin/v2/persistent/t/n", None),
        ("/admin/v2/persistent/t/n/partitioned", None),
        ("/admin/v2/non-persistent/t/n/0x00000000_0x40000000", None),
        ("/admin/v2/namespaces/t/n", None),
        ("/admin/v2/namespaces/t/n/permissions", None),
        ("/admin/v2/clusters", None),
        ("/admin/v2/brokers/leaderBroker", None),
        ("/admin/v2/tenants/t", None),
        ("/admin/magnetar/v1/orphans", None),
        ("/admin/v3/transactions/coordinators", None),
        ("/admin/", None),
    ],
)
def test_a_path_is_about_a_topic_or_about_none(path: str, topic: str | None) -> None:
    found = topic_of(segments(path))
    assert (None if found is None else found.full) == topic


@pytest.mark.parametrize(
    "path", ["/admin/v2/persistent/t/n/%FF/stats", "/admin/v2/persistent/t/n/a%2Fb/stats"]
)
def test_invalid_topic_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidName):
        topic_of(segments(path))
