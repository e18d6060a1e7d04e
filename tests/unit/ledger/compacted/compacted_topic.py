"""A topic with a history, compacted and compared with the model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire.batch import parse_metadata, payload_offset
from magnetar.common.wire.pulsar_pb2 import NONE
from magnetar.ledger.compacted.entry_keys import batch_messages
from magnetar.ledger.compacted.figures import CompactionResult
from magnetar.ledger.compacted.settings import CompactionLimits, CompactionSettings
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.payload_codecs import decompress

from tests.unit.ledger.compacted.history import Entry, expected_view
from tests.unit.ledger.managed_ledger.harness import Topic, load_again

HASH_KEY = bytes(range(16))
ABORTED = TxnId(1, 1)


def settings(**changes: Any) -> CompactionSettings:
    """Returns settings of a run; `memory_bytes` goes to its limits."""
    limits = CompactionLimits(
        memory_bytes=changes.pop("memory_bytes", 1 << 20),
        bytes_per_second=changes.pop("bytes_per_second", 0),
        disk_usage_max=changes.pop("disk_usage_max", 0.9),
    )
    return CompactionSettings(hash_key=HASH_KEY, limits=limits, **changes)


@dataclass
class CompactedTopic:
    """A loaded topic and everything that was published in it."""

    topic: Topic
    history: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic.ledger.compaction.hold(True)

    async def publish(self, *entries: Entry) -> None:
        """Publishes entries and waits until they are confirmed."""
        for number, entry in enumerate(entries, 1):
            self.topic.published += 1
            run = entry.run()
            if entry.aborted:
                self.topic.ledger.use_transactions()
                run.txn = ABORTED
            self.topic.ledger.append(run, None)
            if number % 5 == 0:
                await self.topic.published_all()
                await asyncio.sleep(0.02)  # the next ledger is made ahead
        await self.topic.published_all()
        confirmed = self.topic.listener.confirmed[-len(entries) :] if entries else []
        for entry, (position, data) in zip(entries, confirmed, strict=True):
            assert data == entry.data
            entry.position = position
        self.history += entries
        if any(entry.aborted for entry in entries):
            done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
            self.topic.ledger.use_transactions().end(ABORTED, Action.ABORT, -1, done.set_result)
            assert await done is None

    async def compact(self, limit: Position | None = None, **changes: Any) -> CompactionResult:
        """Runs a compaction up to the limit, by default over everything."""
        ledger = self.topic.ledger
        return await ledger.compaction.run(limit or ledger.read_limit(), settings(**changes))

    async def load_again(self) -> None:
        """Loads the topic anew; the former owner is none any more."""
        self.topic = await load_again(self.topic.ctx)
        self.topic.ledger.compaction.hold(True)

    def until(self, horizon: Position) -> list[Entry]:
        """Returns the history up to the horizon."""
        return [entry for entry in self.history if entry.position <= horizon]

    async def check(self, *, retain_null_key: bool = False, entries_max: int = 1000) -> None:
        """Compares the view with the model."""
        compaction = self.topic.ledger.compaction
        assert compaction.horizon is not None
        expected = expected_view(self.until(compaction.horizon), retain_null_key)
        found = await read_view(self.topic, entries_max)
        by_position = {entry.position: entry for entry in self.history}
        assert list(found) == sorted(expected), "the view has the positions that survive, in order"
        for position, run in found.items():
            check_entry(by_position[position], run, expected[position])
        if not expected:
            assert compaction.view_end is None
            assert not compaction.has_after(EARLIEST)
            return
        last = max(expected)
        assert compaction.view_end is not None
        assert compaction.view_end.position == last
        assert compaction.view_end.batch_index == last_index(by_position[last], expected[last])
        assert compaction.has_after(Position(last.ledger_id, last.entry_id - 1))
        assert not compaction.has_after(last)


def last_index(entry: Entry, live: set[int]) -> int:
    """Returns the batch index that GetLastMessageId answers."""
    if entry.count <= 1:
        return -1
    return entry.count - 1 if entry.opaque else max(live)


def check_entry(entry: Entry, run: Run, live: set[int]) -> None:
    """Checks that an entry of the view is the published one without what died."""
    data = run.entries[0]
    assert run.messages == entry.count
    assert run.flags == entry.flags
    whole = {message.batch_index for message in entry.messages if not message.compacted_out}
    if entry.opaque or live == whole:
        assert data == entry.data, "what survives whole has the client's bytes"
        return
    metadata = parse_metadata(data)
    assert int.from_bytes(data[2:6], "big") == crc_of(data)
    original = parse_metadata(entry.data)
    payload = data[payload_offset(data) :]
    if metadata.compression != NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    assert metadata.uncompressed_size == len(payload)
    found = {each.batch_index: each.value for each in entry.messages}
    messages = list(batch_messages(payload, entry.count))
    assert {each.batch_index for each in messages} == live
    for each in messages:
        assert (each.key, each.deletes) == (entry.messages[each.batch_index].key, not found[each.batch_index])
        assert found[each.batch_index] in payload
    metadata.ClearField("uncompressed_size")
    original.ClearField("uncompressed_size")
    assert metadata == original


def crc_of(data: bytes) -> int:
    from crc32c import crc32c

    return crc32c(data[6:])


async def read_view(topic: Topic, entries_max: int = 1000, after: Position = EARLIEST) -> dict[Position, Run]:
    """Reads the whole view after a position; every entry as a run of its own."""
    compaction = topic.ledger.compaction
    found: dict[Position, Run] = {}
    at = after
    while compaction.has_after(at):
        result = await compaction.read(Position(at.ledger_id, at.entry_id + 1), entries_max, 1 << 20)
        assert result.runs, "there is something to read"
        assert not result.unreadable
        for run in result.runs:
            for entry_id in range(run.first_entry_id, run.last_entry_id + 1):
                position = Position(run.ledger_id, entry_id)
                assert position > at, "positions ascend"
                found[position] = run.slice(entry_id, entry_id)
                at = position
        assert result.next > at
    return found
