"""A topic for tests of streams: its ledgers, and probes of its entries, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

import pytest
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.source.index_search import Probed
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.stream import admission

SERVICE = ServiceAddress("127.0.0.1:1")


class World:
    """A topic whose entries have so many messages; probes look here."""

    def __init__(
        self,
        counts: dict[int, list[int]],
        monkeypatch: pytest.MonkeyPatch,
        firsts: dict[int, list[int]] | None = None,
    ) -> None:
        """`firsts`: where entries begin in the ledgers of all topics of a test, this one's added."""
        self.counts = counts
        self.probes = 0
        ledgers, index = [], 0
        self.firsts: dict[int, list[int]] = {} if firsts is None else firsts
        for ledger_id, entries in counts.items():
            self.firsts[ledger_id] = [index + before for before in accumulate([0, *entries])]
            ledgers.append(
                Ledger(
                    ledger_id=ledger_id,
                    last_entry_id=len(entries) - 1,
                    entries=len(entries),
                    byte_length=100 * len(entries),
                    first_index=index,
                    closed_ms=1,
                )
            )
            index += sum(entries)
        self.messages = index
        self.described = TopicLedgers(
            topic="persistent://t/n/topic",
            partition=-1,
            creation_id=7,
            service=SERVICE,
            owner=SERVICE,
            ledgers=tuple(ledgers),
        )

        @contextmanager
        def opened(topic: TopicLedgers, ledger: Ledger) -> Iterator[LedgerProbe]:
            yield LedgerProbe(self, ledger.ledger_id)

        monkeypatch.setattr(admission, "open_probe", opened)

    def index_of(self, at: MessageAt) -> int:
        """Of the next message behind a place."""
        for ledger_id, firsts in self.firsts.items():
            if ledger_id > at.ledger_id:
                return firsts[0]
            if ledger_id == at.ledger_id:
                return firsts[at.entry_id]
        return self.messages


class LedgerProbe:
    def __init__(self, world: World, ledger_id: int) -> None:
        self._world = world
        self._ledger_id = ledger_id

    def entry(self, entry_id: int) -> Probed:
        self._world.probes += 1
        firsts = self._world.firsts[self._ledger_id]
        return Probed(firsts[entry_id], firsts[entry_id + 1] - firsts[entry_id])
