"""/livez and /readyz of real processes: what restarts them must not act when only metadata is away, and what
sends clients must stop the moment that a broker begins to drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from magnetar.common.metadata.open_store import open_metadata_store

from tests.cluster.conftest import NewCluster
from tests.cluster.discovery_process import KEYS, DiscoveryProcess
from tests.cluster.processes import BrokerProcess, Cluster
from tests.integration.clients import publish
from tests.integration.harness import eventually, page_at
from tests.integration.rest import Rest

SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": "2000"}
SECONDS_MAX = 60.0
OK = (200, "ok\n")
CHECK_SECONDS_MAX = 40.0
"""A check is over in 10 s; on a machine that does much else it may be later."""


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster()


@contextlib.contextmanager
def discovering(cluster: Cluster, directory: Path) -> Iterator[DiscoveryProcess]:
    process = DiscoveryProcess(directory, "discovery", cluster.etcd.url)
    try:
        process.start()
        yield process
    finally:
        process.kill()


@pytest.mark.full
def test_each_service_lives_and_is_ready_and_stays_so_while_metadata_is_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    broker = cluster.broker(SHORT_SESSION)
    broker.start()
    with discovering(cluster, tmp_path) as discovery:
        urls = [broker.endpoint.http_url, discovery.endpoint.http_url]
        urls += [bookie.http_url for bookie in cluster.bookies]

        def each(path: str) -> list[tuple[int, str]]:
            return [page_at(url + path) for url in urls]

        eventually(lambda: each("/readyz") == [OK] * len(urls), "all are ready", SECONDS_MAX)
        cluster.etcd.pause()
        try:
            # Longer than the broker's session: whoever asked metadata before answering would show it.
            until = time.monotonic() + 3.0
            while time.monotonic() < until:
                assert each("/livez") == [OK] * len(urls)
                assert each("/readyz") == [OK] * len(urls)
                time.sleep(0.1)
        finally:
            cluster.etcd.resume()
    eventually(lambda: page_at(f"{broker.endpoint.http_url}/readyz") == OK, "it is ready again", SECONDS_MAX)


def test_a_broker_that_drains_is_not_ready_and_lives_on(cluster: Cluster) -> None:
    broker = cluster.broker({"brokerShutdownTimeoutMs": "40000"})
    broker.start()
    url = broker.endpoint.http_url
    eventually(lambda: page_at(f"{url}/readyz") == OK, "it is ready", SECONDS_MAX)
    # Without metadata it cannot leave, and so drains for as long as it may.
    cluster.etcd.pause()
    try:
        os.kill(broker.pid, signal.SIGTERM)
        eventually(lambda: page_at(f"{url}/readyz")[0] == 503, "it says that it leaves", SECONDS_MAX)
        assert page_at(f"{url}/readyz")[1].startswith("not ready: the broker hands over its topics")
        assert page_at(f"{url}/livez") == OK
    finally:
        cluster.etcd.resume()
        broker.kill()


@pytest.mark.full
def test_a_broker_whose_registration_is_gone_lives_and_is_ready_once_it_is_registered_again(
    cluster: Cluster,
) -> None:
    broker = cluster.broker(SHORT_SESSION)
    broker.start()
    url = broker.endpoint.http_url
    eventually(lambda: page_at(f"{url}/readyz") == OK, "it is ready", SECONDS_MAX)

    async def unregister() -> None:
        store = await open_metadata_store(cluster.etcd.url)
        try:
            await store.delete(KEYS.broker(url.removeprefix("http://")))
        finally:
            await store.close()

    asyncio.run(unregister())
    seen: set[tuple[int, str]] = set()

    def serves_again() -> bool:
        seen.update((page_at(f"{url}/livez"), page_at(f"{url}/readyz")))
        return '"serving again"' in broker.log_path.read_text()

    eventually(serves_again, "another term begins", SECONDS_MAX)
    # The port may be between two owners for a moment; whoever answers on it says that the process lives.
    assert {status for status, _ in seen} <= {0, 200, 503}
    assert all(text.startswith("not ready: ") for status, text in seen if status == 503)
    eventually(lambda: page_at(f"{url}/readyz") == OK, "it is ready again", SECONDS_MAX)
    assert page_at(f"{url}/livez") == OK
    assert broker.running
    assert broker.starts == 1


def check(broker: BrokerProcess) -> tuple[int, str]:
    """What its health check answers, and the reason where it fails."""
    url = f"{broker.endpoint.http_url}/admin/v2/brokers/health"
    try:
        with urllib.request.urlopen(url, timeout=CHECK_SECONDS_MAX) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, str(json.loads(error.read())["reason"])


@pytest.mark.full
def test_without_a_quorum_of_bookies_a_broker_says_that_it_cannot_store_until_they_are_back(
    cluster: Cluster,
) -> None:
    broker = cluster.broker()
    broker.start()
    url, topic = broker.endpoint.http_url, "persistent://public/default/stored-before"
    assert check(broker) == (200, "ok")
    with contextlib.closing(pulsar.Client(broker.endpoint.service_url)) as client:
        publish(client, topic, [b"before"])
    assert page_at(f"{url}/readyz") == OK
    for bookie in cluster.bookies[:2]:
        bookie.pause()
    began = time.monotonic()
    status, reason = check(broker)
    print(f"the check failed after {time.monotonic() - began:.1f} s: {reason}")
    assert status == 500
    assert reason.startswith("Health check failed: storing a message of persistent://pulsar/")
    assert " took more than 10 s: " in reason, "with what the write path knows"
    eventually(lambda: page_at(f"{url}/readyz")[0] == 503, "it is not ready", SECONDS_MAX)
    print(f"not ready: {page_at(f'{url}/readyz')[1]}")
    assert page_at(f"{url}/readyz")[1].startswith("not ready: the broker cannot store messages: ")
    assert page_at(f"{url}/livez") == OK
    with contextlib.closing(pulsar.Client(broker.endpoint.service_url)) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(60_000).data() == b"before", "what is stored is served all the same"
    for bookie in cluster.bookies[:2]:
        bookie.resume()
    eventually(lambda: page_at(f"{url}/readyz") == OK, "it is ready again, without a client", SECONDS_MAX)
    eventually(lambda: check(broker) == (200, "ok"), "its check succeeds again", SECONDS_MAX)


def heartbeats(cluster: Cluster) -> list[str]:
    """The topics of health checks in metadata."""

    async def look() -> list[str]:
        store = await open_metadata_store(cluster.etcd.url)
        try:
            items = (await store.children(KEYS.topic_heads_prefix())).items
        finally:
            await store.close()
        return sorted(KEYS.topic_of_head(item.key).full for item in items)

    return asyncio.run(look())


@pytest.mark.full
def test_each_broker_checks_itself_on_a_topic_that_is_its_own_and_goes_with_it(cluster: Cluster) -> None:
    brokers = [cluster.broker(), cluster.broker()]
    for broker in brokers:
        broker.start()
    first, second = brokers
    ids = [broker.endpoint.http_url.removeprefix("http://") for broker in brokers]
    rest = Rest(first.endpoint)
    eventually(lambda: len(rest.get("/brokers")) == 2, "both are known", SECONDS_MAX)
    for broker_id in ids:
        assert page_at(f"{first.endpoint.http_url}/health?brokerId={broker_id}") == (200, "ok")
    assert heartbeats(cluster) == sorted(f"persistent://pulsar/{each}/healthcheck" for each in ids)
    assert rest.get("/namespaces/pulsar") == ["pulsar/system"]
    for broker_id in ids:
        owned = rest.get(f"/brokers/{first.endpoint.cluster}/{ids[0]}/ownedNamespaces")
        assert not [each for each in owned if broker_id in each]
    second.stop()
    assert heartbeats(cluster) == [f"persistent://pulsar/{ids[0]}/healthcheck"]
