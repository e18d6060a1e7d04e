"""Starts of `magnetar broker` that are refused, and how it stops; those that succeed are in tests/cluster."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError
from magnetar.standalone.cannot_start import CannotStart
from magnetar.standalone.cluster_broker import ClusterBroker
from magnetar.standalone.cluster_config import ClusterBrokerConfig


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


def test_metadata_that_does_not_answer_is_a_reason_not_to_start() -> None:
    ports = ("brokerServicePort=0", "webServicePort=0")
    with pytest.raises(CannotStart, match=r"metadata: .*127\.0\.0\.1:1"):
        start("clusterName=one", "metadataStoreUrl=etcd:127.0.0.1:1", *ports)


def test_nobody_new_is_sent_to_a_broker_from_the_moment_it_gives_its_topics_away() -> None:
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
