"""What a bookie answers: appends, reads, fences, states."""

from __future__ import annotations

from magnetar.ledger.bookie_protocol.bookie_pb2 import FENCED, NO_SUCH_ENTRY, OK, WRONG_KEY
from magnetar.ledger.ledger_store import LedgerRef

from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie


def test_an_append_is_answered_once_durable_and_read_back() -> None:
    async def act(bench: Bench) -> None:
        result = await bench.appended(A, 0, [b"one", b"two"])
        assert (result.code, result.first_entry_id, result.entry_count) == (OK, 0, 2)
        entries, part = await bench.read(A, 0, 1)
        assert (entries, part.code) == ([b"one", b"two"], OK)
        await bench.restart("crash")
        assert (await bench.read(A, 0, 1))[0] == [b"one", b"two"]

    for seed in range(10):
        on_a_bookie(act, seed)


def test_neighboring_confirmations_of_a_ledger_are_one_answer() -> None:
    async def act(bench: Bench) -> None:
        for first in range(5):
            bench.append(A, first, [b"a"])
            bench.append(B, 10 * first, [b"b"])
        await bench.appended(LedgerRef(3, 3), 0, [b"last"])
        told = [(each.ledger.id, each.first_entry_id, each.entry_count) for each in bench.results]
        assert told == [(1, 0, 5), *((2, 10 * first, 1) for first in range(5))]

    on_a_bookie(act)


def test_a_fenced_ledger_takes_appends_of_a_recovery_alone() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"one"])
        state = await bench.fence(A)
        assert (state.code, state.fenced, state.last_entry_id) == (OK, True, 0)
        assert (await bench.appended(A, 1, [b"two"])).code == FENCED
        assert (await bench.appended(A, 1, [b"two"], recovery=True)).code == OK
        await bench.restart("crash")
        assert (await bench.appended(A, 2, [b"three"])).code == FENCED

    on_a_bookie(act)


def test_a_second_fence_answers_once_what_is_on_its_way_is_durable() -> None:
    """A second recovery has to see what the first one is writing."""

    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"the writer's"])
        await bench.fence(A)
        bench.append(A, 1, [b"the first recovery's"], recovery=True)
        assert (await bench.fence(A)).last_entry_id == 1

    on_a_bookie(act)


def test_another_key_is_refused_whatever_is_asked() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"one"])
        other = LedgerRef(A.id, 0xBAD)
        assert (await bench.appended(other, 1, [b"two"])).code == WRONG_KEY
        assert (await bench.read(other, 0, 0))[1].code == WRONG_KEY
        assert (await bench.fence(other)).code == WRONG_KEY
        assert (await bench.clear_limbo(other)).code == WRONG_KEY

    on_a_bookie(act)


def test_an_unknown_ledger_has_no_entries() -> None:
    async def act(bench: Bench) -> None:
        assert (await bench.read(A, 0, 5))[1].code == NO_SUCH_ENTRY
        assert (await bench.clear_limbo(A)).code == NO_SUCH_ENTRY

    on_a_bookie(act)
