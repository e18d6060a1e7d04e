"""A topic with a compacted view whose runs end when the test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from magnetar.broker.topics.compaction_state import NEVER_COMPACTED, CompactionState
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.compacted.figures import CompactionProgress, ViewFigures
from magnetar.ledger.compacted.settings import CompactionSettings


@dataclass
class FakeClock:
    """A clock that is a second later at each look at its monotonic time."""

    now_ms: int = 1_001
    monotonic_s: float = 0.0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        self.monotonic_s += 1.0
        return self.monotonic_s


@dataclass
class FakeView:
    """The compaction of a managed ledger."""

    horizon: Position | None = None
    held: bool = False
    asked: list[tuple[Position, CompactionSettings]] = field(default_factory=list)
    removed: int = 0
    figures: ViewFigures = field(default_factory=ViewFigures)
    _ended: asyncio.Future[Any] | None = None

    async def run(self, limit: Position, settings: CompactionSettings, progress: CompactionProgress) -> Any:
        progress.entries_read = 12_345
        progress.writes.add(7.5)
        self.asked.append((limit, settings))
        self._ended = asyncio.get_running_loop().create_future()
        return await self._ended

    def end(self, result: Any) -> None:
        assert self._ended is not None, "a run is in progress"
        if isinstance(result, Exception):
            self._ended.set_exception(result)
        else:
            self._ended.set_result(result)

    def hold(self, on: bool) -> None:
        self.held = on

    async def remove(self) -> None:
        self.removed += 1


class FakeTopic(PersistentTopic):
    """A loaded topic of which compaction sees what it needs."""

    __slots__ = ("closed", "uncompacted", "view")

    def __init__(self, name: str = "t", threshold: int = 0, uncompacted: int = 0) -> None:
        policies: Any = SimpleNamespace(compaction_threshold_bytes=threshold)
        self.name = TopicName.parse(f"persistent://public/default/{name}")
        self.state = SimpleNamespace(policies=policies, closing=False)  # type: ignore[assignment]
        self.compaction: CompactionState = NEVER_COMPACTED
        self.view = FakeView()
        self.ledger = SimpleNamespace(  # type: ignore[assignment]
            compaction=self.view, read_limit=lambda: Position(9, 5)
        )
        self.uncompacted = uncompacted
        self.closed: Exception | None = None

    @property
    def uncompacted_bytes(self) -> int:
        return self.uncompacted

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed
