"""A torn last group: only what it named is in doubt, and that doubt says how much it is worth."""

from __future__ import annotations

import pytest
from magnetar.bookie.doubt_note import DOUBT, Note, decode_note, joined_note
from magnetar.bookie.limbo import note_doubt
from magnetar.ledger.bookie_protocol.bookie_pb2 import ENTRY_UNKNOWN, NO_SUCH_ENTRY, OK
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.torn_group import Torn

from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie

C = LedgerRef(3, 0xC)


async def lose_the_end_of_the_last_group(bench: Bench, outage: str = "kill") -> None:
    """Its first block, with header and directory, is on the disk, the next one is not."""
    await bench.core.log._chain._settle()  # no zeros are being written behind the group
    segment = bench.core.log.segments[-1]
    bench.disk.overwrite(segment.path, b"\xff" * 100, segment.durable_end - 2000)
    await bench.restart(outage)


async def written(bench: Bench) -> None:
    """The last group has records of A and B; that of B is the one to be lost. C is idle."""
    for ref in (A, B, C):
        await bench.put_metadata(ref)
        await bench.appended(ref, 0, [b"early"])
    bench.append(A, 1, [b"late"])
    await bench.appended(B, 1, [b"late" * 1500])


def test_only_ledgers_that_lost_a_record_of_the_torn_group_are_in_doubt() -> None:
    async def act(bench: Bench) -> None:
        await written(bench)
        await lose_the_end_of_the_last_group(bench)
        assert [(await bench.state(ref)).limbo for ref in (A, B, C)] == [False, True, False]
        assert (await bench.state(B)).torn
        assert not (await bench.state(C)).fenced, "its writer goes on"
        assert (await bench.appended(C, 1, [b"late"])).code == OK
        assert (await bench.read(A, 0, 2))[1].code == NO_SUCH_ENTRY
        part = (await bench.read(B, 0, 1))[1]
        assert (part.code, part.stopped_at, part.torn) == (ENTRY_UNKNOWN, 1, True)

    on_a_bookie(act)


def test_a_torn_group_that_does_not_say_what_it_held_puts_every_open_ledger_in_doubt() -> None:
    async def act(bench: Bench) -> None:
        await written(bench)
        await bench.core.log._chain._settle()
        segment = bench.core.log.segments[-1]
        bench.disk.overwrite(segment.path, b"\xff" * 400, segment.durable_end - 8192 + 20)
        await bench.restart("kill")
        states = [await bench.state(ref) for ref in (A, B, C)]
        assert [(state.limbo, state.torn) for state in states] == [(True, True)] * 3

    on_a_bookie(act)


def test_that_only_a_torn_group_is_missing_outlives_seals_compaction_and_restarts() -> None:
    async def act(bench: Bench) -> None:
        await written(bench)
        await lose_the_end_of_the_last_group(bench)
        for outage in ("close", "kill", "crash"):
            for segment in bench.core.log.finished_segments():
                await bench.core.log.space._rewrite([segment], set())
            await bench.restart(outage)
            assert [(await bench.state(ref)).limbo for ref in (A, B, C)] == [False, True, False]
            assert (await bench.state(B)).torn
        await bench.core.log.set_limbo(B)
        await bench.restart("close")
        assert not (await bench.state(B)).torn, "anything may be missing by now"
        await bench.core.log.set_limbo(B, torn=True)
        await bench.restart("close")
        assert (await bench.state(B)).limbo
        assert not (await bench.state(B)).torn, "a lesser doubt does not end a greater one"
        await bench.clear_limbo(B)
        await bench.core.log.set_limbo(B, torn=True)
        await bench.restart("kill")
        assert (await bench.state(B)).torn

    on_a_bookie(act)


def test_a_torn_group_narrows_no_doubt_that_was_noted_before_it() -> None:
    async def act(bench: Bench) -> None:
        await written(bench)
        note_doubt(bench.disk, "the disk was emptied")
        await lose_the_end_of_the_last_group(bench)
        states = [await bench.state(ref) for ref in (A, B, C)]
        assert [(state.limbo, state.torn) for state in states] == [(True, False)] * 3
        assert DOUBT not in bench.disk.listdir("")

    on_a_bookie(act)


@pytest.mark.parametrize("torn", [None, Torn(None), Torn(frozenset({A})), Torn(frozenset({A, B, C}))])
def test_a_note_says_what_it_was_written_with_or_doubts_everything(torn: Torn | None) -> None:
    note = Note("why it is so", torn)
    data = note.encode()
    assert decode_note(data) == note
    for length in range(len(data)):
        cut = decode_note(data[:length]).torn
        assert cut is None, f"{length} bytes of {len(data)}"
    for place in range(len(note.reason) + 1, len(data)):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert decode_note(flipped).torn in (None, torn)


def test_notes_of_two_starts_are_both_kept() -> None:
    def joined(before: Torn | None, after: Torn | None) -> Torn | None:
        return joined_note(Note("one", before), Note("two", after)).torn

    a, b = Torn(frozenset({A})), Torn(frozenset({B}))
    assert joined(a, b) == Torn(frozenset({A, B}))
    assert joined(a, Torn(None)) == joined(Torn(None), a) == Torn(None)
    assert joined(None, a) is joined(a, None) is None
    assert joined_note(None, Note("two", a)) == Note("two", a)
