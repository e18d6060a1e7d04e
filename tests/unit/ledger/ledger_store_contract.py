"""What every LedgerStore promises, whatever is under it. `local` passes it, and so will the quorum client.

A promise is a coroutine function over a `Fixture`; `PROMISES` lists them. The runner decides about loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pytest
from magnetar.common.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    StorageError,
    VersionMismatch,
)
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore, Put
from magnetar.ledger.ledger_store import (
    RUN_MARKER,
    LedgerListener,
    LedgerReader,
    LedgerRef,
    LedgerStore,
    LedgerWriter,
    Run,
)


class Fixture(Protocol):
    """What a promise is tried on."""

    store: LedgerStore
    metadata: MetadataStore

    async def kill_and_restart(self) -> None:
        """The process dies, another starts on what is left: `store` and `metadata` are its own."""
        ...


@dataclass(slots=True)
class Heard:
    """Records what a listener is told."""

    confirmed: list[int] = field(default_factory=list)
    failed: list[tuple[StorageError, int]] = field(default_factory=list)
    inside_append: bool = False

    def listener(self) -> LedgerListener:
        return LedgerListener(self._confirmed, self._failed)

    def _confirmed(self, last: int) -> None:
        assert not self.inside_append, "never called back from inside append"
        self.confirmed.append(last)

    def _failed(self, error: StorageError, last: int) -> None:
        assert not self.inside_append, "never called back from inside append"
        self.failed.append((error, last))


async def create(fixture: Fixture, heard: Heard | None = None, **options: Any) -> LedgerWriter:
    return await fixture.store.create(
        (heard or Heard()).listener(),
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        properties={},
        **options,
    )


async def confirmed(writer: LedgerWriter, last: int) -> None:
    """Wait until the watermark reaches an entry."""
    for _ in range(10_000):
        if writer.last_confirmed >= last:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"entry {last} was not confirmed")


async def entries(reader: LedgerReader, first: int, last: int, max_bytes: int = 1 << 30) -> list[bytes]:
    return [entry for run in await reader.read(first, last, max_bytes) for entry in run.entries]


async def entry_ids_are_consecutive_and_set_on_the_run(fixture: Fixture) -> None:
    writer = await create(fixture)
    run = Run([b"a", b"b", b"c"])
    assert writer.append(run) == 0
    assert (run.ledger_id, run.first_entry_id) == (writer.ref.id, 0)
    assert writer.append(Run([b"d"])) == 3
    assert writer.last_confirmed == -1, "nothing is confirmed inside the call"
    await confirmed(writer, 3)


async def the_watermark_advances_once_per_group_and_reaches_the_end(fixture: Fixture) -> None:
    heard = Heard()
    writer = await create(fixture, heard)
    for _ in range(50):
        heard.inside_append = True
        writer.append(Run([b"x"] * 10))
        heard.inside_append = False
        await asyncio.sleep(0)
    await confirmed(writer, 499)
    assert heard.confirmed == sorted(set(heard.confirmed))
    assert heard.confirmed[-1] == 499


async def entries_come_back_with_their_envelope(fixture: Fixture) -> None:
    writer = await create(fixture)
    sent = Run(
        [b"one", b"", b"three" * 5000],
        publish_time_ms=1_234,
        first_index=77,
        message_counts=[1, 5, 2],
        flags=RUN_MARKER,
    )
    writer.append(sent)
    await confirmed(writer, 2)
    reader = await fixture.store.open(writer.ref)
    [run] = await reader.read(0, 2, 1 << 20)
    assert run.entries == sent.entries
    assert (run.publish_time_ms, run.first_index, run.flags) == (1_234, 77, RUN_MARKER)
    assert list(run.message_counts or ()) == [1, 5, 2]
    assert (run.ledger_id, run.first_entry_id, run.byte_length) == (writer.ref.id, 0, sent.byte_length)
    [part] = await reader.read(1, 2, 1 << 20)
    assert (part.first_entry_id, part.first_index, list(part.message_counts or ())) == (1, 78, [5, 2])


async def a_read_gives_at_least_one_entry_and_stops_at_its_bounds(fixture: Fixture) -> None:
    writer = await create(fixture)
    for start in range(0, 100, 10):
        writer.append(Run([b"%05d" % entry * 20 for entry in range(start, start + 10)]))
        await asyncio.sleep(0.001)
    await confirmed(writer, 99)
    reader = await fixture.store.open(writer.ref)
    wanted = [b"%05d" % entry * 20 for entry in range(100)]
    assert await entries(reader, 7, 7, 1) == wanted[7:8]
    assert await entries(reader, 7, 55) == wanted[7:56]
    assert await entries(reader, 0, 99, 250) == wanted[:2]
    assert await entries(reader, 95, 5_000) == wanted[95:]
    with pytest.raises(NoSuchEntry):
        await reader.read(100, 100, 1)


async def a_reader_follows_the_writer(fixture: Fixture) -> None:
    writer = await create(fixture)
    reader = await fixture.store.open(writer.ref)
    assert reader.last_confirmed == -1
    writer.append(Run([b"x"]))
    await confirmed(writer, 0)
    assert reader.last_confirmed == 0
    assert await entries(reader, 0, 0) == [b"x"]


async def close_waits_for_confirmation_and_ends_the_ledger(fixture: Fixture) -> None:
    writer = await create(fixture)
    writer.append(Run([b"abc", b"de"]))
    closed = await writer.close()
    assert (closed.ref, closed.last_entry_id, closed.byte_length) == (writer.ref, 1, 5)
    with pytest.raises(LedgerClosed):
        writer.append(Run([b"x"]))
    reader = await fixture.store.open(writer.ref)
    assert reader.last_confirmed == 1
    empty = await (await create(fixture)).close()
    assert empty.last_entry_id == -1


async def operations_are_committed_with_the_ledger_or_neither_is(fixture: Fixture) -> None:
    metadata = fixture.metadata
    writer = await create(fixture, with_ops=lambda ref: [Put("/t/made", b"%d" % ref.id, ABSENT)])
    made = await metadata.get("/t/made")
    assert made is not None
    assert made.value == b"%d" % writer.ref.id
    with pytest.raises(VersionMismatch):
        await create(fixture, with_ops=lambda ref: [Put("/t/other", b""), Put("/t/made", b"", ABSENT)])
    assert await metadata.get("/t/other") is None
    with pytest.raises(VersionMismatch):
        await writer.close(lambda closed: [Check("/t/made", 999_999)])
    writer.append(Run([b"still open"]))
    closed = await writer.close(lambda closed: [Put("/t/closed", b"%d" % closed.last_entry_id)])
    found = await metadata.get("/t/closed")
    assert found is not None
    assert found.value == b"%d" % closed.last_entry_id
    with pytest.raises(VersionMismatch):
        await fixture.store.delete(writer.ref, [Check("/t/made", 999_999)])
    await fixture.store.open(writer.ref)


async def recovery_ends_the_ledger_under_its_writer(fixture: Fixture) -> None:
    heard = Heard()
    writer = await create(fixture, heard)
    writer.append(Run([b"a", b"b"]))
    recovery = asyncio.ensure_future(fixture.store.recover(writer.ref))
    for _ in range(200):
        await asyncio.sleep(0.0001)
        try:
            writer.append(Run([b"late"]))
        except LedgerFenced:
            break
    fence_answered = recovery.done()
    reader, closed = await recovery
    assert not fence_answered, "a fence refuses appends in memory before it is durable"
    assert closed.last_entry_id == reader.last_confirmed
    assert closed.last_entry_id >= max(heard.confirmed, default=-1)
    await asyncio.sleep(0.1)
    assert [type(error) for error, _ in heard.failed] == [LedgerFenced]
    assert max(heard.confirmed, default=-1) <= closed.last_entry_id, "nothing is confirmed beyond the end"
    with pytest.raises(LedgerFenced):
        await writer.close(lambda closed: [Put("/t/stolen", b"")])
    assert await fixture.metadata.get("/t/stolen") is None


async def recovery_is_idempotent_and_commits_its_operations(fixture: Fixture) -> None:
    writer = await create(fixture)
    writer.append(Run([b"a"] * 5))
    await confirmed(writer, 4)
    ref = writer.ref
    await fixture.kill_and_restart()
    _, first = await fixture.store.recover(ref, lambda closed: [Put("/t/first", b"1", ABSENT)])
    _, again = await fixture.store.recover(ref, lambda closed: [Put("/t/again", b"1", ABSENT)])
    assert first == again
    assert first.last_entry_id == 4
    assert await fixture.metadata.get("/t/first") is not None
    assert await fixture.metadata.get("/t/again") is not None
    with pytest.raises(VersionMismatch):
        await fixture.store.recover(ref, lambda closed: [Check("/t/first", 999_999)])


async def confirmed_entries_outlive_the_process(fixture: Fixture) -> None:
    writer = await create(fixture)
    for start in range(0, 60, 3):
        writer.append(Run([b"entry %d" % entry for entry in range(start, start + 3)]))
        await asyncio.sleep(0.001)
    await confirmed(writer, 59)
    ref = writer.ref
    await fixture.kill_and_restart()
    reader, closed = await fixture.store.recover(ref)
    assert closed.last_entry_id == 59
    assert await entries(reader, 0, 59) == [b"entry %d" % entry for entry in range(60)]


async def ledger_ids_only_grow_over_restarts(fixture: Fixture) -> None:
    before = [(await create(fixture)).ref.id for _ in range(3)]
    await fixture.kill_and_restart()
    writers = await asyncio.gather(*(create(fixture) for _ in range(3)))
    after = [writer.ref.id for writer in writers]
    assert before == sorted(before)
    assert min(after) > max(before)
    assert len(set(after)) == 3


async def a_ledger_is_named_by_its_key_too(fixture: Fixture) -> None:
    writer = await create(fixture)
    other = LedgerRef(writer.ref.id, writer.ref.key ^ 1)
    with pytest.raises(NoSuchLedger):
        await fixture.store.open(other)
    with pytest.raises(NoSuchLedger):
        await fixture.store.recover(other)
    await fixture.store.delete(other)
    await fixture.store.open(writer.ref)


async def a_deleted_ledger_is_gone_and_deleting_again_is_no_error(fixture: Fixture) -> None:
    writer = await create(fixture)
    writer.append(Run([b"x"]))
    await confirmed(writer, 0)
    await fixture.store.delete(writer.ref, [Put("/t/deleted", b"1")])
    await fixture.store.delete(writer.ref, [Put("/t/deleted", b"2")])
    found = await fixture.metadata.get("/t/deleted")
    assert found is not None
    assert found.value == b"2"
    for act in (fixture.store.open, fixture.store.recover):
        with pytest.raises(NoSuchLedger):
            await act(writer.ref)
    with pytest.raises(LedgerFenced):
        writer.append(Run([b"x"]))


Promise = Callable[[Any], Coroutine[Any, Any, None]]

PROMISES: Final[list[Promise]] = [
    entry_ids_are_consecutive_and_set_on_the_run,
    the_watermark_advances_once_per_group_and_reaches_the_end,
    entries_come_back_with_their_envelope,
    a_read_gives_at_least_one_entry_and_stops_at_its_bounds,
    a_reader_follows_the_writer,
    close_waits_for_confirmation_and_ends_the_ledger,
    operations_are_committed_with_the_ledger_or_neither_is,
    recovery_ends_the_ledger_under_its_writer,
    recovery_is_idempotent_and_commits_its_operations,
    confirmed_entries_outlive_the_process,
    ledger_ids_only_grow_over_restarts,
    a_ledger_is_named_by_its_key_too,
    a_deleted_ledger_is_gone_and_deleting_again_is_no_error,
]
