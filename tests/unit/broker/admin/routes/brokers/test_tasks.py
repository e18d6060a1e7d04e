"""Stacks of tasks and threads: how deep they go, that they are counted and bounded, and have no values."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.broker.admin.routes.brokers import tasks

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

SECRET = "hush-hush-payload"


async def outer(gate: asyncio.Event, payload: str) -> None:
    await inner(gate, payload)


async def inner(gate: asyncio.Event, payload: str) -> None:
    await gate.wait()


async def other(gate: asyncio.Event) -> None:
    await gate.wait()


def innermost_own(found: Any) -> dict[str, int]:
    """Counts of groups by the name of their first function."""
    return {each["stack"][0].rpartition(" ")[2]: each["count"] for each in found["groups"] if each["stack"]}


def test_tasks_are_counted_by_where_they_wait_without_values(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ""
        gate = asyncio.Event()
        waiting = [asyncio.create_task(outer(gate, SECRET), name="mine") for _ in range(3)]
        waiting.append(asyncio.create_task(other(gate)))
        await asyncio.sleep(0)
        found = await http.ask(tasks.PATH)
        (group,) = [each for each in found["groups"] if each["name"] == "mine"]
        assert group["count"] == 3
        assert [text.rpartition(" ")[2] for text in group["stack"]] == ["outer", "inner", "Event.wait"]
        assert "test_tasks.py:" in group["stack"][0]
        assert innermost_own(found)["other"] == 1
        assert not found["truncated"]
        (main,) = [each for each in found["threads"] if each["name"] == "MainThread"]
        assert main["stack"][-1].endswith("_threads")
        assert SECRET not in json.dumps(found)
        gate.set()
        await asyncio.gather(*waiting)

    serving(body)


def test_an_answer_is_bounded_and_says_so(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "GROUPS_MAX", 1)
    monkeypatch.setattr(tasks, "FRAMES_MAX", 2)
    monkeypatch.setattr(tasks, "TEXT_CHARS_MAX", 20)

    async def body(http: Http) -> None:
        http.root = ""
        gate = asyncio.Event()
        waiting = [asyncio.create_task(outer(gate, SECRET), name="n" * 50) for _ in range(50)]
        await asyncio.sleep(0)
        found = await http.ask(tasks.PATH)
        (group,) = found["groups"]
        assert group["count"] == 50
        assert group["name"] == "n" * 20
        assert len(group["stack"]) == 2
        assert all(len(each) <= 20 for each in group["stack"])
        assert found["truncated"]
        assert all(len(each["stack"]) <= 2 for each in found["threads"])
        gate.set()
        await asyncio.gather(*waiting)

    serving(body)
