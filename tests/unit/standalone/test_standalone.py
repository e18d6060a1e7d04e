"""The composition in this process: what it refuses, and that nothing stays open behind it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.backup import Restorer
from magnetar.common.metadata.keys import Keys, delete_ledger_intent_id
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import Counter, Intent, LedgerMetadata, encode
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.ledger_store import LedgerListener, Run
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.local_log import LEDGERS_DIRECTORY
from magnetar.standalone.standalone import Standalone
from magnetar.standalone.start_error import CannotStart

ANY_PORTS = ("brokerServicePort=0", "webServicePort=0", "magnetarControlPort=0")


def standalone(data_dir: Path, *overrides: str) -> Standalone:
    given = (*ANY_PORTS, "magnetarSegmentSizeBytes=1048576", *overrides)
    return Standalone(load(StandaloneConfig, overrides=given).value, data_dir)


def start_and_stop(made: Standalone) -> None:
    async def run() -> None:
        await made.start()
        await made.close()

    asyncio.run(run())


def refusal(made: Standalone) -> str:
    with pytest.raises(MagnetarError) as raised:
        start_and_stop(made)
    return str(raised.value)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_it_listens_where_it_says_and_can_start_again(tmp_path: Path) -> None:
    async def run() -> None:
        made = standalone(tmp_path)
        await made.start()
        for url in (made.broker_url, made.http_url):
            host, port = url.rpartition("//")[2].split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await writer.wait_closed()
        assert made.broker is not None
        assert made.broker.urls.http_url == made.http_url
        await made.close()
        await made.close()

    asyncio.run(run())
    before = open_descriptors()
    start_and_stop(standalone(tmp_path))
    assert open_descriptors() == before


async def health(url: str) -> bytes:
    host, port = url.rpartition("//")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_health_says_that_it_stops_for_as_long_as_that_takes(tmp_path: Path) -> None:
    """Whoever routes clients by health must hear of it before they are disconnected, not after."""

    async def run() -> None:
        made = standalone(tmp_path)
        await made.start()
        assert (await health(made.http_url)).startswith(b"HTTP/1.1 200 ")
        assert made.broker is not None
        topics, held = made.broker.registry, asyncio.Event()
        close = topics.close

        async def close_when_allowed() -> None:
            await held.wait()
            await close()

        topics.close = close_when_allowed  # type: ignore[method-assign]
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0)
        try:
            answer = await health(made.http_url)
        finally:
            held.set()
            await closing
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"the broker is shutting down" in answer

    asyncio.run(run())


def test_a_data_directory_in_use_and_both_ports_are_reported_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        first = standalone(tmp_path)
        await first.start()
        ports = [int(url.rpartition(":")[2]) for url in (first.broker_url, first.http_url)]
        second = standalone(tmp_path, f"brokerServicePort={ports[0]}", f"webServicePort={ports[1]}")
        with pytest.raises(CannotStart) as raised:
            await second.start()
        message = str(raised.value)
        assert "brokerServicePort" in message
        assert "webServicePort" in message
        assert str(tmp_path) in message
        assert "another process" in message
        assert message.count("\n") == 3
        assert first.broker is not None
        await first.close()

    asyncio.run(run())


def test_a_refused_start_leaves_nothing_open(tmp_path: Path) -> None:
    start_and_stop(standalone(tmp_path))
    before = open_descriptors()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in refusal(standalone(tmp_path, f"webServicePort={port}"))
    assert open_descriptors() == before


def test_a_configuration_that_contradicts_itself_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    made = standalone(data_dir, "metadataStoreUrl=etcd:x", "brokerServicePort=9", "webServicePort=9")
    with pytest.raises(ConfigError, match=r"(?s)metadataStoreUrl.*both 9"):
        start_and_stop(made)
    assert not data_dir.exists()


def test_an_address_that_is_not_ours_is_refused_with_its_reason(tmp_path: Path) -> None:
    assert "brokerServicePort" in refusal(
        standalone(tmp_path, "bindAddress=192.0.2.1", "brokerServicePort=6650", "webServicePort=0")
    )


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    message = refusal(standalone(tmp_path / "file" / "data"))
    assert "--data-dir" in message
    assert str(tmp_path / "file" / "data") in message


def test_ledgers_of_another_instance_are_refused(tmp_path: Path) -> None:
    start_and_stop(standalone(tmp_path / "a"))
    start_and_stop(standalone(tmp_path / "b"))
    shutil.rmtree(tmp_path / "a" / LEDGERS_DIRECTORY)
    shutil.copytree(tmp_path / "b" / LEDGERS_DIRECTORY, tmp_path / "a" / LEDGERS_DIRECTORY)
    assert "instance" in refusal(standalone(tmp_path / "a"))


def test_metadata_that_names_ledgers_beside_an_empty_log_is_refused(tmp_path: Path) -> None:
    start_and_stop(standalone(tmp_path))
    shutil.rmtree(tmp_path / LEDGERS_DIRECTORY)
    start_and_stop(standalone(tmp_path))  # there was nothing in it

    async def add_ledger() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        await store.put(Keys("standalone").ledger(1), encode(LedgerMetadata(state=LedgerMetadata.CLOSED)))
        await store.close()

    asyncio.run(add_ledger())
    shutil.rmtree(tmp_path / LEDGERS_DIRECTORY)
    assert "1 ledgers" in refusal(standalone(tmp_path))


def test_metadata_older_than_the_ledgers_is_refused_without_an_override(tmp_path: Path) -> None:
    """Ids would be given twice, and what they were given for before would be garbage."""
    keys = Keys("standalone")

    async def write() -> None:
        made = standalone(tmp_path)
        await made.start()
        assert made.broker is not None
        done = asyncio.Event()
        listener = LedgerListener(on_confirmed=lambda *_: done.set(), on_failed=lambda *_: None)
        writer = await made.broker.ledgers.ledgers.create(
            listener, ensemble_size=1, write_quorum=1, ack_quorum=1, properties={}
        )
        writer.append(Run([b"x"]))
        await asyncio.wait_for(done.wait(), 30)
        await made.close()

    async def with_store(act: Callable[[SqliteMetadataStore], Awaitable[object]]) -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        await act(store)
        await store.close()

    asyncio.run(write())
    start_and_stop(standalone(tmp_path))
    asyncio.run(with_store(lambda store: store.put(keys.ledger_id_counter, encode(Counter(next=1)))))
    said = refusal(standalone(tmp_path))
    assert "has ledger 1" in said
    assert "mark-restored" in said
    asyncio.run(with_store(lambda store: Restorer(store, keys, SystemClock(), random.Random(1)).mark()))
    start_and_stop(standalone(tmp_path))


def test_a_second_start_keeps_the_instance_id(tmp_path: Path) -> None:
    async def instance_id() -> bytes:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        found = await store.get(Keys("standalone").instance_id)
        await store.close()
        assert found is not None
        return found.value

    start_and_stop(standalone(tmp_path))
    first = asyncio.run(instance_id())
    start_and_stop(standalone(tmp_path))
    assert asyncio.run(instance_id()) == first


def test_it_listens_on_ipv6_and_says_so_in_urls(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this host has no IPv6")

    async def run() -> None:
        made = standalone(tmp_path, "bindAddress=::1")
        await made.start()
        assert made.http_url.startswith("http://[::1]:")
        assert made.broker_url.startswith("pulsar://[::1]:")
        await made.close()

    asyncio.run(run())


def test_a_start_finishes_the_deletions_that_a_former_run_recorded(tmp_path: Path) -> None:
    keys = Keys("standalone")
    start_and_stop(standalone(tmp_path))

    async def left_behind(*intents: Intent) -> list[str]:
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        for intent in intents:
            await metadata.put(keys.intent(intent.id), encode(intent))
        found = [item.key for item in (await metadata.children(keys.intents_prefix)).items]
        await metadata.close()
        return found

    intent = Intent(id=delete_ledger_intent_id(7))
    intent.delete_ledger.ref.id = 7
    assert asyncio.run(left_behind(intent))
    start_and_stop(standalone(tmp_path))
    assert asyncio.run(left_behind()) == []
