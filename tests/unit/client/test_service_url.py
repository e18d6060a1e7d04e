"""Service URLs."""

from __future__ import annotations

import pytest
from magnetar.client.errors import ClientError
from magnetar.client.service_url import ServiceUrl


def test_several_hosts_and_default_ports() -> None:
    assert ServiceUrl.parse("pulsar://a,b:7000/") == ServiceUrl(False, (("a", 6650), ("b", 7000)))
    assert ServiceUrl.parse("pulsar+ssl://[::1]") == ServiceUrl(True, (("::1", 6651),))


@pytest.mark.parametrize("text", ["", "localhost:6650", "http://a:1", "pulsar://", "pulsar://a:x"])
def test_invalid_service_url_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="service URL"):
        ServiceUrl.parse(text)
