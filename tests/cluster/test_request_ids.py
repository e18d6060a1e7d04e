"""One request is followed through the logs of every process that it made work."""

from __future__ import annotations

import json
import re
import urllib.request
import uuid
from typing import Any

import pulsar
import pytest

from tests.cluster.test_moving import bundle_of
from tests.cluster.test_two_brokers import NAMESPACE
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import MagnetarProcess, eventually

BROKER_SETTINGS = {"metadataStoreSessionTimeoutMillis": "30000"}
"""Nothing is killed here: a busy machine is no reason to lose a session, and bundles with it."""


def lines_of(process: MagnetarProcess) -> list[dict[str, Any]]:
    """What a process has logged."""
    text = process.log_path.read_text(encoding="utf-8", errors="replace")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def told(cluster: WholeCluster, event: str) -> dict[str, set[str | None]]:
    """The request ids of lines with an event, by the name of the process."""
    found: dict[str, set[str | None]] = {}
    for process in cluster.processes:
        for line in lines_of(process):
            if line["event"] == event:
                found.setdefault(process.name, set()).add(line.get("request_id"))
    return found


@pytest.mark.full
def test_an_unload_has_one_id_at_the_broker_that_is_asked_and_at_the_one_that_takes_the_bundle(
    whole_cluster: WholeCluster, topic: str
) -> None:
    owner = whole_cluster.owner_of(topic)
    request_id = f"deploy-{uuid.uuid4().hex[:8]}"
    url = f"{owner.endpoint.http_url}/admin/v2/namespaces/{NAMESPACE}/{bundle_of(topic)}/unload"
    request = urllib.request.Request(url, method="PUT", headers={"X-Request-ID": request_id})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 204
        assert response.headers["X-Request-ID"] == request_id

    def everywhere() -> bool:
        owned = {name for name, ids in told(whole_cluster, "bundle owned").items() if request_id in ids}
        return (
            request_id in told(whole_cluster, "http request").get(owner.name, set())
            and request_id in told(whole_cluster, "bundle handed over").get(owner.name, set())
            and len(owned - {owner.name}) == 1
        )

    eventually(everywhere, "both brokers name the request")


@pytest.mark.full
def test_a_lookup_at_discovery_has_one_id_at_the_broker_that_gets_the_bundle(
    whole_cluster: WholeCluster,
) -> None:
    namespace = f"public/traced-{uuid.uuid4().hex[:8]}"
    url = f"{whole_cluster.brokers[0].endpoint.http_url}/admin/v2/namespaces/{namespace}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=b""), timeout=60) as response:
        assert response.status == 204
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    first = whole_cluster.discoveries[0].endpoint.service_url
    client = pulsar.Client(first, operation_timeout_seconds=60, logger=logger)
    try:
        client.create_producer(f"persistent://{namespace}/t").send(b"x")
    finally:
        client.close()

    def named() -> set[str]:
        return {
            str(line.get("request_id"))
            for broker in whole_cluster.brokers
            for line in lines_of(broker)
            if line["event"] == "bundle owned" and line["namespace"] == namespace
        }

    eventually(lambda: bool(named()), "a broker got the bundle")
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+#\d+", each) for each in named()), named()
