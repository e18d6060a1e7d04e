"""/livez and /readyz of real processes: what restarts them must not act when only metadata is away, and what
sends clients must stop the moment that a broker begins to drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.common.metadata.open_store import open_metadata_store

from tests.cluster.conftest import NewCluster
from tests.cluster.discovery_process import KEYS, DiscoveryProcess
from tests.cluster.processes import Cluster
from tests.integration.harness import eventually, page_at

SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": "2000"}
SECONDS_MAX = 60.0
OK = (200, "ok\n")


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
        assert page_at(f"{url}/readyz")[1].startswith("not ready: it gives its topics to other brokers")
        assert page_at(f"{url}/livez") == OK
    finally:
        cluster.etcd.resume()
        broker.kill()


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
