"""Starts of `magnetar broker` that are refused, and how it stops; those that succeed are in tests/cluster."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError, MetadataError
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.runtime.clock import SystemClock
from magnetar.standalone import cluster_broker
from magnetar.standalone.cluster_broker import ClusterBroker
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.start_error import CannotStart
from magnetar.testing.free_ports import free_ports


def start(*overrides: str) -> None:
    async def run() -> None:
        made = ClusterBroker(load(ClusterBrokerConfig, overrides=overrides).value)
        try:
            await made.start()
        finally:
            await made.close()

    asyncio.run(run())


def test_everything_missing_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)clusterName.*metadataStoreUrl.*both 9"):
        start("brokerServicePort=9", "webServicePort=9")


def test_ports_in_use_are_refused_before_metadata_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"brokerServicePort.*{port}|{port}.*brokerServicePort"):
            start(
                "clusterName=one",
                "metadataStoreUrl=etcd:127.0.0.1:1",
                f"brokerServicePort={port}",
                "webServicePort=0",
            )


@pytest.mark.full
def test_metadata_that_does_not_answer_is_a_reason_not_to_start() -> None:
    ports = ("brokerServicePort=0", "webServicePort=0")
    with pytest.raises(CannotStart, match=r"metadata: .*127\.0\.0\.1:1"):
        start("clusterName=one", "metadataStoreUrl=etcd:127.0.0.1:1", *ports)


def test_a_term_begins_only_over_the_metadata_that_the_process_began_with(tmp_path: Path) -> None:
    """etcd that came back empty: what a broker confirmed over it would be in no copy of the lost metadata."""

    async def run() -> None:
        overrides = ["clusterName=one", "bindAddress=127.0.0.1", "webServicePort=0"]
        made = ClusterBroker(load(ClusterBrokerConfig, overrides=overrides).value)
        made._instance_id = bytes(16)
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        no_pool: Any = None
        with pytest.raises(MetadataError, match="metadata is empty, and was of instance 0000"):
            await made._begin_term(metadata, no_pool)
        await metadata.close()

    asyncio.run(run())


def test_draining_broker_gets_no_new_client_from_the_start_of_the_drain() -> None:
    seen: list[tuple[str, str | None]] = []

    async def run() -> None:
        made = ClusterBroker(load(ClusterBrokerConfig, overrides=["clusterName=one"]).value)
        front = SimpleNamespace(broker=SimpleNamespace(leaving=None))

        async def drain(timeout_s: float) -> None:
            seen.append(("draining", front.broker.leaving))
            assert 0 < timeout_s < made.shutdown_timeout_ms / 1000

        opened = AsyncExitStack()
        opened.callback(lambda: seen.append(("closed", front.broker.leaving)))
        term: Any = SimpleNamespace(front=front, control=SimpleNamespace(drain=drain), opened=opened)
        made._term = term
        await made.close()
        await made.close()

    asyncio.run(run())
    assert [each for each, _ in seen] == ["draining", "closed"]
    assert all(reason is not None for _, reason in seen)


async def ask(port: int, path: str) -> str:
    """The whole answer, from the broker or from what stands in for it; waits until there is one."""
    async with asyncio.timeout(30):
        while True:
            with suppress(ConnectionRefusedError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            await asyncio.sleep(0.01)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()
            await writer.wait_closed()


def made_for(port: int) -> ClusterBroker:
    ports = [f"webServicePort={port}", "brokerServicePort=0", "bindAddress=127.0.0.1", "clusterName=one"]
    return ClusterBroker(load(ClusterBrokerConfig, overrides=ports).value)


def test_liveness_stays_up_while_a_broker_waits_to_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(cluster_broker, "AGAIN_AFTER_S", 600.0)

    async def run() -> None:
        made = made_for(port)

        async def refused(*_: object) -> None:
            raise MetadataError("it was restored from a copy")

        monkeypatch.setattr(made, "_begin_term", refused)
        nothing: Any = None
        made._tasks.spawn(made._follow_terms(nothing, nothing), "terms")
        assert (await ask(port, "/livez")).startswith("HTTP/1.1 200 ")
        ready = await ask(port, "/readyz")
        assert ready.startswith("HTTP/1.1 503 ")
        assert "it was restored from a copy" in ready
        await made.close()
        socket.create_server(("127.0.0.1", port)).close()  # the port is free again

    asyncio.run(run())


def test_and_one_that_drops_what_is_left_of_a_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, ledgers and streams are closed after HTTP, and may take their time when metadata is away."""
    (port,) = free_ports(1)

    async def run() -> None:
        made = made_for(port)
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        rng = random.Random(1)
        made._instance_id = await ensure_instance_id(metadata, made._keys, SystemClock(), rng)
        dropping, may_end = asyncio.Event(), asyncio.Event()

        async def lost(*_: object) -> None:
            raise MetadataError("the session has ended")

        async def slow(*_: object) -> None:
            dropping.set()
            await may_end.wait()

        monkeypatch.setattr(Cluster, "begin", lost)
        monkeypatch.setattr(Cluster, "close", slow)
        no_pool: Any = None
        term = asyncio.create_task(made._begin_term(metadata, no_pool))
        async with asyncio.timeout(30):
            await dropping.wait()
        assert (await ask(port, "/livez")).startswith("HTTP/1.1 200 ")
        assert (await ask(port, "/readyz")).startswith("HTTP/1.1 503 ")
        may_end.set()
        with pytest.raises(MetadataError, match="the session has ended"):
            await term
        socket.create_server(("127.0.0.1", port)).close()  # the port is free again
        await metadata.close()

    asyncio.run(run())
