"""The console as a process, and in a standalone, where it costs nothing before its first page."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError
from magnetar.console.config import ConsoleConfig
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.console import ConsoleProcess
from magnetar.standalone.standalone import Standalone

SETTINGS = (
    "brokerServicePort=0",
    "webServicePort=0",
    "magnetarControlPort=-1",
    "magnetarSegmentSizeBytes=1048576",
)


async def fetched(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def test_a_console_process_serves_pages_health_and_metrics() -> None:
    async def run() -> None:
        overrides = ["webServicePort=0", "webServiceUrl=http://127.0.0.1:1"]
        process = ConsoleProcess(load(ConsoleConfig, overrides=overrides).value)
        await process.start()
        try:
            url = process.addresses[0].text
            assert await fetched(f"{url}/livez") == (200, "ok\n")
            assert await fetched(f"{url}/readyz") == (200, "ok\n")
            assert "process_cpu_seconds_total" in (await fetched(f"{url}/metrics"))[1]
            status, page = await fetched(f"{url}/tenants")
            assert (status, "http://127.0.0.1:1 does not answer" in page) == (502, True)
        finally:
            await process.close()

    asyncio.run(run())


def test_a_console_process_names_what_is_wrong_with_its_configuration() -> None:
    process = ConsoleProcess(load(ConsoleConfig, overrides=["webServiceUrl=nowhere"]).value)
    with pytest.raises(ConfigError, match="webServiceUrl"):
        asyncio.run(process.start())


def test_a_standalone_loads_the_console_with_its_first_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("magnetar.console.")]:
        monkeypatch.delitem(sys.modules, name)

    async def run() -> None:
        made = Standalone(load(StandaloneConfig, overrides=SETTINGS).value, tmp_path)
        await made.start()
        try:
            assert (await fetched(f"{made.http_url}/admin/v2/clusters"))[0] == 200
            assert "magnetar.console.console" not in sys.modules
            status, page = await fetched(f"{made.http_url}/console")
            assert (status, "<h1>Overview</h1>" in page) == (200, True)
            assert "magnetar.console.console" in sys.modules
        finally:
            await made.close()

    asyncio.run(run())


def test_a_standalone_without_console_has_no_such_page(tmp_path: Path) -> None:
    async def run() -> None:
        config = load(StandaloneConfig, overrides=[*SETTINGS, "consoleEnabled=false"]).value
        made = Standalone(config, tmp_path)
        await made.start()
        try:
            assert (await fetched(f"{made.http_url}/console"))[0] == 404
        finally:
            await made.close()

    asyncio.run(run())
