from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.broker.admin.fake_broker import Http, serve

Serving = Callable[[Callable[[Http], Awaitable[None]]], None]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Runs a test body against a served broker."""

    def run(body: Callable[[Http], Awaitable[None]]) -> None:
        asyncio.run(serve(tmp_path, body))

    return run
