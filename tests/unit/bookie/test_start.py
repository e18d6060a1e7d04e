"""A bookie's HTTP says that it lives however long its log takes to recover: what restarts it must not act."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import uvloop
from magnetar.bookie import service
from magnetar.bookie.config import BookieConfig
from magnetar.bookie.service import Bookie
from magnetar.common.config.loader import load
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.ledger.segment_log import log
from magnetar.ledger.segment_log.recovery import RecoveredLog, recover_log

# uvloop opens a pipe with its first loop and keeps it for the process: before any test counts descriptors.
uvloop.run(asyncio.sleep(0))


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_lives_and_is_not_ready_while_it_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "clusterName": "one",
        "bookieId": "b",
        "bookiePort": "0",
        "httpServerPort": "0",
        "metadataServiceUri": "etcd:127.0.0.1:1",
        "ledgerDirectories": str(tmp_path / "data"),
    }
    file = tmp_path / "bookie.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    recovering, recovered = threading.Event(), threading.Event()

    def recovers_for_long(*given: Any, **more: Any) -> RecoveredLog:
        recovering.set()
        recovered.wait()
        return recover_log(*given, **more)

    async def metadata(_: str) -> SqliteMetadataStore:
        return await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")

    monkeypatch.setattr(log, "recover_log", recovers_for_long)
    monkeypatch.setattr(service, "open_metadata_store", metadata)

    async def main() -> None:
        bookie = Bookie(load(BookieConfig, files=[file], environ={}).value)
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
