"""What is elsewhere, what is missing, and what is no business of a restoration."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from magnetar.bookie.restoration.ledger_verdict import judge
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState

ABC = ("a", "b", "c")
ASKED = ("a", "b", "c", "d", "e")


def ledger(
    *fragments: tuple[int, tuple[str, ...]], last: int | None = None, kind: str = "entries"
) -> LedgerMetadata:
    """Closed at `last`, or open."""
    state = LedgerMetadata.OPEN if last is None else LedgerMetadata.CLOSED
    value = LedgerMetadata(
        state=state,
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        last_entry_id=-1 if last is None else last,
        properties={"kind": kind},
    )
    for first, bookies in fragments:
        value.fragments.add(first_entry_id=first, bookie_ids=bookies)
    return value


def held(**lasts: int) -> dict[str, LedgerState]:
    return {bookie: LedgerState(last_entry_id=last) for bookie, last in lasts.items()}


def found(
    value: LedgerMetadata, *, asked: Collection[str] = ASKED, **lasts: int
) -> list[tuple[str, int, int, tuple[str, ...]]]:
    verdict = judge(value, held(**lasts), asked)
    assert not verdict.missing
    return [
        (share.bookie_id, share.fragment.first, share.fragment.last, share.others) for share in verdict.shares
    ]


def test_ledger_stored_as_metadata_says_needs_no_repair() -> None:
    assert found(ledger((0, ABC), last=9), a=9, b=9, c=9) == []
    assert found(ledger((0, ABC)), a=9, b=7, c=9) == []
    assert found(ledger((0, ABC)), a=9, b=9) == [], "a copy too few is auto-recovery's business"


def test_a_share_that_another_bookie_has_since_is_brought_home() -> None:
    assert found(ledger((0, ABC), last=9), a=9, b=9, d=9) == [("c", 0, 9, ("d",))]


def test_an_open_ledger_that_went_on_elsewhere_is_brought_home_to_all_of_its_bookies() -> None:
    expected = [(bookie, 0, 20, ("d",)) for bookie in ABC]
    assert found(ledger((0, ABC)), a=20, b=9, c=9, d=20) == expected
    assert found(ledger((0, ABC)), a=9, b=9, c=9, d=20) == expected


def test_entry_on_one_bookie_is_copied_to_bookies_that_would_close_before_it() -> None:
    """The ledger was deleted after the copy, and one bookie has not collected its garbage yet."""
    value = ledger((0, ABC))
    assert found(value, c=9) == [("a", 0, 9, ()), ("b", 0, 9, ())]
    assert found(value, asked=("b", "c", "d"), c=9) == [], "nobody asks one that is not there"
    assert found(ledger((0, ABC), (10, ABC)), a=19, b=9, c=9) == [("b", 10, 19, ()), ("c", 10, 19, ())]
    value = ledger((0, ASKED))
    value.ensemble_size = 5
    assert found(value, a=0, b=0, c=0) == [], "the entry is on its three bookies"


def test_only_the_fragment_in_question_is_brought_home() -> None:
    value = ledger((0, ABC), (10, ("a", "b", "d")), last=19)
    assert found(value, a=19, b=19, c=9, d=19) == []
    assert found(value, a=19, b=19, c=9, e=19) == [("d", 10, 19, ("e",))]


def test_a_bookie_that_holds_only_earlier_entries_has_nothing_of_a_later_fragment() -> None:
    value = ledger((0, ABC), (10, ("a", "b", "d")))
    assert found(value, a=9, b=9, c=9) == []


def test_entries_without_a_holder_are_missing() -> None:
    assert judge(ledger((0, ABC), last=9), {}, ASKED).missing
    assert judge(ledger((0, ABC), (10, ABC), last=19), held(a=9, b=9, c=9), ASKED).missing
    assert not judge(ledger((0, ABC), last=-1), {}, ASKED).missing, "there never were any"


@pytest.mark.parametrize("kind", ["cursors", "transactions"])
def test_only_ledgers_of_records_prove_entries_of_open_ledgers(kind: str) -> None:
    assert not judge(ledger((0, ABC)), {}, ASKED).missing
    assert judge(ledger((0, ABC), kind=kind), {}, ASKED).missing
    assert not judge(ledger((0, ABC), kind=kind), held(b=3), ASKED).missing
    closed = ledger((0, ABC), last=-1, kind=kind)
    assert judge(closed, {}, ASKED).missing, "a broker has tried to load its topic since"


def test_ledgers_of_a_standalone_are_on_no_bookie() -> None:
    verdict = judge(ledger(last=9), {}, ASKED)
    assert (verdict.shares, verdict.missing) == ((), False)
