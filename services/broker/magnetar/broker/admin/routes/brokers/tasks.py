"""Route of the stacks of this process's tasks and threads: where each waits, as file, line and function.

No values of variables, no source text and no arguments are in it, so neither payloads nor secrets can be.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

PATH: Final = "/admin/magnetar/v1/brokers/tasks"

TASKS_MAX: Final = 20_000
"""Maximum tasks whose stacks are read; the rest is only counted."""

GROUPS_MAX: Final = 200
"""Maximum different stacks of an answer, those with the most tasks."""

THREADS_MAX: Final = 64
FRAMES_MAX: Final = 32
"""Maximum frames of a stack, the innermost ones."""

TEXT_CHARS_MAX: Final = 160
"""Maximum characters of a frame or name; at the maximum of each, an answer has about 1.4 MB."""


@dataclass(slots=True)
class _Group:
    name: str
    count: int = 0


async def _tasks(call: Call) -> web.Response:
    tasks = list(asyncio.all_tasks())
    groups: dict[tuple[str, ...], _Group] = {}
    async for task in iterate_cooperatively(tasks[:TASKS_MAX]):
        stack = _texts(_awaiting(task.get_coro()))
        groups.setdefault(stack, _Group(task.get_name())).count += 1
    largest = sorted(groups.items(), key=lambda each: -each[1].count)[:GROUPS_MAX]
    return answer(
        {
            "broker": broker_id(call),
            "atMs": call.broker.ledgers.clock.wall_ms(),
            "tasks": len(tasks),
            "stacks": len(groups),
            "truncated": len(tasks) > TASKS_MAX or len(groups) > GROUPS_MAX,
            "groups": [
                {"count": group.count, "name": group.name[:TEXT_CHARS_MAX], "stack": list(stack)}
                for stack, group in largest
            ],
            "threads": _threads(),
        }
    )


def _awaiting(waiting: Any) -> Iterator[tuple[FrameType, int]]:
    """Yields the frames of a coroutine and of what it awaits, outermost first.

    `Task.get_stack` has only the first one of a suspended task.
    """
    while waiting is not None:
        for kind, awaited in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if hasattr(waiting, f"{kind}_frame"):
                frame = getattr(waiting, f"{kind}_frame")
                waiting = getattr(waiting, awaited)
                break
        else:
            return
        if frame is not None:
            yield frame, frame.f_lineno


def _threads() -> list[dict[str, Any]]:
    names = {each.ident: each.name for each in threading.enumerate()}
    found = []
    for ident, innermost in list(sys._current_frames().items())[:THREADS_MAX]:
        frames: list[tuple[FrameType, int]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(frames) < FRAMES_MAX:
            frames.append((frame, frame.f_lineno))
            frame = frame.f_back
        name = names.get(ident, "not of Python's threading")
        found.append({"name": name[:TEXT_CHARS_MAX], "stack": list(_texts(reversed(frames)))})
    return found


def _texts(frames: Iterator[tuple[FrameType, int]]) -> tuple[str, ...]:
    """Returns the innermost frames as `file:line function`, files from their package on."""
    texts = []
    for frame, line in list(frames)[-FRAMES_MAX:]:
        code = frame.f_code
        file = "/".join(code.co_filename.rsplit("/", 4)[1:])
        texts.append(f"{file}:{line} {code.co_qualname}"[-TEXT_CHARS_MAX:])
    return tuple(texts)


ROUTES: Final = [
    Route(
        object="brokers",
        method="GET",
        path=PATH,
        handler=_tasks,
        summary="Get the stacks of this broker's tasks and threads, as files, lines and functions; equal "
        "stacks of tasks are counted together.",
        answer="TaskDump",
        anywhere=True,
        operation=Operation.SUPER_USER,
    ),
]
