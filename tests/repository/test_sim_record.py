"""The record of simulated runs: pieces add up, and the page gets what they say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.record import BEGIN, END, PAGE, added_up, page_text, pieces, put_into

MACHINE = {"cpu": "a processor", "cores": "2", "memory": "8 GiB", "python": "3.11.2"}


def piece(*lines: dict[str, Any]) -> dict[str, Any]:
    """As `run_piece` leaves it."""
    return {"seeds": 2, "wall_s": 1.5, "lines": list(lines)}


def line(test: str, *, failed: bool = False) -> dict[str, Any]:
    return {"test": test, "failed": failed, "cpu_s": 0.5}


def test_pieces_cover_every_seed_once() -> None:
    assert [*pieces(120, 50)] == [range(50), range(50, 100), range(100, 120)]


def test_pieces_add_up_by_test_and_failures_are_named() -> None:
    record = added_up(
        [
            piece(
                line("tests/a.py::test_one[0]"), line("tests/a.py::test_two[x-0]"), {"happened": {"fire": 2}}
            ),
            piece(line("tests/a.py::test_one[1]", failed=True), {"happened": {"fire": 1, "flood": 4}}),
        ]
    )
    assert (record.seeds, record.wall_s) == (4, 3.0)
    assert record.tests["tests/a.py::test_one"].runs == 2
    assert record.happened == {"fire": 3, "flood": 4}
    text = page_text(record, MACHINE, 'make sim-record ARGS="--seeds 4"', "abc1234")
    assert "3 simulated runs: **1 failed**. 2.0 runs a second" in text
    assert "| `a.py::test_one` | 2 | 1 | 2.0 |" in text
    assert "- `tests/a.py::test_one[1]`" in text


def test_the_page_has_a_place_for_the_record() -> None:
    page = PAGE.read_text()
    assert put_into(page, f"{BEGIN}\nnew\n{END}").count("new\n" + END) == 1
    with pytest.raises(ValueError, match="lacks the lines"):
        put_into("no marks", "")
