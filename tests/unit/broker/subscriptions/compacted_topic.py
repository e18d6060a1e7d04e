"""A topic in memory with a compacted view, for subscriptions that are served in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.cursor import Cursor

from tests.unit.broker.subscriptions.serving import READ_S, Serving, StoredTopic


@dataclass
class View:
    """The numbers of the entries that are live up to the horizon."""

    topic: StoredTopic
    live: list[int] = field(default_factory=list)
    horizon: Position | None = None
    reads: int = 0

    def compact(self, horizon: int, live: list[int]) -> None:
        """Replace the view, as a run does."""
        self.live = live
        self.horizon = self.topic.position_of(horizon)

    def has_after(self, position: Position) -> bool:
        return any(self.topic.position_of(number) > position for number in self.live)

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        self.reads += 1
        live, horizon = list(self.live), self.horizon
        assert horizon is not None, "there is a view"
        await asyncio.sleep(READ_S)
        wanted = [each for each in live if self.topic.position_of(each) >= start][:entries_max]
        runs = [self._run(number) for number in wanted]
        last = self.topic.position_of(wanted[-1]) if wanted and wanted[-1] != live[-1] else horizon
        return ReadResult(runs, Position(last.ledger_id, last.entry_id + 1), [])

    def _run(self, number: int) -> Run:
        position = self.topic.position_of(number)
        counts = self.topic.counts[number]
        return Run(
            [self.topic.entry(number)],
            message_counts=None if counts == 1 else [counts],
            ledger_id=position.ledger_id,
            first_entry_id=position.entry_id,
        )


class CompactedTopic(StoredTopic):
    """A topic with a view, whose first ledgers may be gone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.compaction = View(self)

    def first_position(self) -> Position:
        return Position(self.spans.spans[0].ref.id, -1) if self.spans.spans else self.last_position

    def pass_in_view(self, cursor: Cursor, position: Position) -> None:
        if self.compaction.horizon is not None and position <= self.compaction.horizon:
            cursor.pass_missing(position)

    def trim(self, ledgers: int) -> None:
        """Take the first ledgers away, as retention does."""
        self.spans.remove_first(ledgers)


class CompactedServing(Serving):
    """One subscription of such a topic."""

    topic_type = CompactedTopic

    @property
    def view(self) -> View:
        assert isinstance(self.topic, CompactedTopic)
        return self.topic.compaction

    def trim(self, ledgers: int) -> None:
        assert isinstance(self.topic, CompactedTopic)
        self.topic.trim(ledgers)
