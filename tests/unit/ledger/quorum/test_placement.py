"""Placement: who gets a new ledger or a lost bookie's place."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from magnetar.common.errors import NotEnoughBookies
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.placement import Placement, choose_ensemble, choose_replacement, racks_of
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.ledger.quorum.striping import Striping

from tests.unit.ledger.quorum.fake_bookies import FakeBookies
from tests.unit.ledger.quorum.test_quarantine import ManualClock


@dataclass(frozen=True)
class Bookie:
    bookie_id: str
    rack: str = ""
    free_bytes: int = 100
    started_ms: int = 1


def racked(**counts: int) -> list[Bookie]:
    """So many bookies in each rack."""
    return [Bookie(f"{rack}{i}", rack) for rack, count in counts.items() for i in range(count)]


def placement(bookies: FakeBookies, **config: bool | int) -> Placement:
    settings = QuorumConfig(**config)  # type: ignore[arg-type]
    return Placement(bookies, Quarantine(ManualClock(), settings), random.Random(1), settings)


@pytest.mark.parametrize(
    ("counts", "striping", "racks"),
    [
        ({"a": 3, "b": 3, "c": 3}, Striping(3, 3, 2), 3),
        ({"a": 3, "b": 1}, Striping(3, 3, 2), 2),
        ({"a": 5}, Striping(3, 3, 2), 1),
        ({"a": 2, "b": 2, "c": 2}, Striping(6, 3, 2), 2),
        ({"a": 1, "b": 9}, Striping(3, 2, 2), 1),
    ],
)
def test_every_write_set_is_spread_over_racks_as_far_as_there_are_racks(
    counts: dict[str, int], striping: Striping, racks: int
) -> None:
    bookies = racked(**counts)
    where = {each.bookie_id: each.rack for each in bookies}
    for seed in range(50):
        chosen = choose_ensemble(bookies, striping, 2, random.Random(seed))
        assert chosen is not None
        assert len(set(chosen)) == striping.ensemble_size
        assert racks_of(chosen, striping, where) >= racks


def test_every_bookie_has_its_chance_weighed_by_space() -> None:
    bookies = [Bookie(f"b{i}", free_bytes=100) for i in range(5)] + [Bookie("big", free_bytes=100_000)]
    rng = random.Random(3)
    counts: Counter[str] = Counter()
    for _ in range(2_000):
        counts.update(choose_ensemble(bookies, Striping(2, 2, 2), 1, rng) or [])
    assert min(counts[f"b{i}"] for i in range(5)) > 400
    assert counts["big"] > 1.5 * counts["b0"]
    assert counts["big"] < 4 * counts["b0"], "a large disk does not draw everything"


def test_the_same_chance_gives_the_same_ensemble() -> None:
    bookies = racked(a=4, b=4)
    chosen = [choose_ensemble(bookies, Striping(4, 3, 2), 2, random.Random(9)) for _ in range(3)]
    assert chosen[0] == chosen[1] == chosen[2]


def test_too_few_bookies_are_none() -> None:
    assert choose_ensemble(racked(a=2), Striping(3, 3, 2), 1, random.Random(1)) is None


def test_a_replacement_comes_from_a_rack_that_the_others_are_not_in() -> None:
    bookies = racked(a=2, b=2, c=2)
    where = {each.bookie_id: each.rack for each in bookies}
    for seed in range(30):
        found = choose_replacement(
            bookies, ["a0", "b0", "c0"], 0, Striping(3, 3, 2), where, random.Random(seed)
        )
        assert found in ("a0", "a1")
    left = [each for each in bookies if each.rack == "b"]
    found = choose_replacement(left, ["a0", "b0", "c0"], 0, Striping(3, 3, 2), where, random.Random(1))
    assert found == "b1", "better a rack twice than nobody"
    assert choose_replacement([], ["a0", "b0"], 0, Striping(2, 2, 2), where, random.Random(1)) is None


def test_read_only_unregistered_and_quarantined_bookies_get_nothing() -> None:
    bookies = FakeBookies(*(f"b{i}" for i in range(6)))
    bookies.unwritable |= {"b0", "b1"}
    chooser = placement(bookies)
    chooser.quarantine.too_slow("b2", "a test says so")
    for _ in range(20):
        assert set(chooser.new_ensemble(Striping(3, 3, 2))) == {"b3", "b4", "b5"}
        assert chooser.replacement(["b3", "b4", "b0"], 2, Striping(3, 3, 2)) == "b5"
    assert chooser.replacement(["b3", "b4", "b0"], 2, Striping(3, 3, 2), excluded={"b5"}) is None


def test_bookie_regains_its_place_without_an_alternative() -> None:
    chooser = placement(FakeBookies("b0", "b1", "b2"))
    assert chooser.replacement(["b0", "b1", "b2"], 1, Striping(3, 3, 2)) == "b1"


def test_a_new_ledger_takes_quarantined_bookies_rather_than_none() -> None:
    bookies = FakeBookies("b0", "b1", "b2")
    chooser = placement(bookies)
    chooser.quarantine.too_slow("b1", "a test says so")
    assert set(chooser.new_ensemble(Striping(3, 3, 2))) == {"b0", "b1", "b2"}


def test_too_few_bookies_are_an_error_that_says_what_to_do() -> None:
    bookies = FakeBookies("b0", "b1", "b2")
    bookies.unwritable.add("b0")
    with pytest.raises(NotEnoughBookies, match="needs 3 bookies and 2 are up and writable: start more"):
        placement(bookies).new_ensemble(Striping(3, 3, 2))


def test_too_few_racks_are_an_error_only_when_they_are_enforced() -> None:
    bookies = FakeBookies("b0", "b1", "b2", racks={"b0": "r", "b1": "r", "b2": "r"})
    assert len(placement(bookies).new_ensemble(Striping(3, 3, 2))) == 3
    strict = placement(bookies, enforce_racks_min=True)
    with pytest.raises(NotEnoughBookies, match="racks"):
        strict.new_ensemble(Striping(3, 3, 2))
    bookies.add("b3", "s")
    assert "b3" in strict.new_ensemble(Striping(3, 3, 2))
    assert strict.replacement(["b0", "b1", "b3"], 2, Striping(3, 3, 2), excluded={"b3"}) is None
    assert strict.replacement(["b0", "b1", "b3"], 1, Striping(3, 3, 2)) == "b2"


def test_racks_do_not_matter_when_switched_off() -> None:
    bookies = FakeBookies("b0", "b1", racks={"b0": "r", "b1": "r"})
    chooser = placement(bookies, rack_aware=False, enforce_racks_min=True)
    assert len(chooser.new_ensemble(Striping(2, 2, 2))) == 2


def test_a_bookie_that_was_started_anew_leaves_the_quarantine() -> None:
    bookies = FakeBookies("b0", "b1")
    chooser = placement(bookies)
    chooser.quarantine.too_slow("b0", "a test says so")
    bookies.changed()
    assert "b0" in chooser.quarantine
    bookies["b0"].started_ms = 2
    bookies.changed()
    assert "b0" not in chooser.quarantine
