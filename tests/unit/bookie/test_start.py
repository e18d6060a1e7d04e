"""A bookie's HTTP says that it lives however long its log takes to recover: what restarts it must not act."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from magnetar.bookie import service
from magnetar.bookie.config import BookieConfig
from magnetar.bookie.service import Bookie
from magnetar.common.config.loader import load
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import BookieCookie, decode, encode
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.segment_log import log
from magnetar.ledger.segment_log.recovery import RecoveredLog, recover_log

from tests.unit.bookie.grpc_bookie import LEDGER, append

# uvloop opens a pipe with its first loop and keeps it for the process: before any test counts descriptors.
uvloop.run(asyncio.sleep(0))


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def bookie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Callable[[], Bookie], list[SqliteMetadataStore]]:
    """A bookie with its metadata in a file, and the metadata stores that it has opened."""
    stores: list[SqliteMetadataStore] = []
    settings = {
        "clusterName": "one",
        "bookieId": "b",
        "bookiePort": "0",
        "httpServerPort": "0",
        "metadataServiceUri": "etcd:127.0.0.1:1",
        "metadataStoreSessionTimeoutMillis": "1000",
        "ledgerDirectories": str(tmp_path / "data"),
    }
    file = tmp_path / "bookie.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    async def metadata(_url: str, _access: object) -> SqliteMetadataStore:
        stores.append(await SqliteMetadataStore.open(tmp_path / "metadata.sqlite"))
        return stores[-1]

    monkeypatch.setattr(service, "open_metadata_store", metadata)
    return lambda: Bookie(load(BookieConfig, files=[file], environ={}).value), stores


def test_it_lives_and_is_not_ready_while_it_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_bookie, _ = bookie_in(tmp_path, monkeypatch)
    recovering, recovered = threading.Event(), threading.Event()

    def recovers_for_long(*given: Any, **more: Any) -> RecoveredLog:
        recovering.set()
        recovered.wait()
        return recover_log(*given, **more)

    monkeypatch.setattr(log, "recover_log", recovers_for_long)

    async def main() -> None:
        bookie = new_bookie()
        starting = asyncio.ensure_future(bookie.start())
        while not recovering.is_set():
            await asyncio.sleep(0.01)
            assert not starting.done(), starting.result()
        try:
            assert await asyncio.to_thread(get, f"{bookie.http_url}/livez") == (200, "ok\n")
            unready = await asyncio.to_thread(get, f"{bookie.http_url}/readyz")
            assert unready == (503, "not ready: the bookie is starting\n")
        finally:
            recovered.set()
        await starting
        assert await asyncio.to_thread(get, f"{bookie.http_url}/readyz") == (200, "ok\n")
        await bookie.close()

    uvloop.run(main())


def test_it_serves_no_more_once_another_process_has_started_as_the_same_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_bookie, stores = bookie_in(tmp_path, monkeypatch)

    async def scenario(opened: AsyncExitStack) -> None:
        bookie = new_bookie()
        opened.push_async_callback(bookie.close)
        await bookie.start()
        clients = GrpcBookieClients(lambda _: bookie.address)
        opened.push_async_callback(clients.close)
        client = clients.client("b")
        assert (await append(client, 0, [b"a"]))[0] == OK

        [metadata] = stores
        key = Keys("one").cookie("b")
        found = await metadata.get(key)
        assert found is not None
        cookie = decode(BookieCookie, found.value)
        cookie.directory_id, cookie.generation = bytes(16), cookie.generation + 1
        await metadata.put(key, encode(cookie), found.version)
        while bookie.not_ready is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert "another process has started as bookie b since" in bookie.not_ready
        entry = 1
        while (await append(client, entry, [b"b"]))[0] == OK:
            entry += 1
        with pytest.raises(BookieUnreachable, match="UNAVAILABLE"):
            await client.fence(LEDGER)

    async def main() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as opened:
            await scenario(opened)

    uvloop.run(main())
