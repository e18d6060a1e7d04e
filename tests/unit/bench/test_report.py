"""The report shows every figure once, and what it says can be read again from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report, results
from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.results import Results


def some_results() -> Results:
    found = Results(
        "make bench",
        quick=True,
        began="2026-01-01T00:00:00Z",
        machine={"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "kernel": "6.1", "python": "3.11.0"},
        brokers={MAGNETAR: "abc", APACHE_PULSAR: "4.0.7"},
    )
    for ours, anchor in ((300_000.0, 100_000.0), (310_000.0, 110_000.0), (290_000.0, 90_000.0)):
        found.add("produce-100b", MAGNETAR, {"entries/s": ours})
        found.add("produce-100b", APACHE_PULSAR, {"entries/s": anchor})
    found.add("idle", MAGNETAR, {"idle RSS MB": 200.0, "idle CPU %": 0.1})
    found.add("idle", APACHE_PULSAR, {"idle RSS MB": 1_000.0, "idle CPU %": 3.0})
    found.add_curves("rate-2000", MAGNETAR, {"ack": [0.1, 0.2]})
    return found


def test_medians_ranges_and_ratios_are_in_the_table() -> None:
    rows = report.rows(some_results())
    assert rows[0] == (
        "produce 100 B unbatched, 1,000 in flight",
        "entries/s",
        "300,000/s (290,000 to 310,000)",
        "100,000/s (90,000 to 110,000)",
        "3.00",
        "2.5",
        "4",
        "floor met",
    )


def test_figure_below_its_floor_is_listed_with_its_load() -> None:
    assert report.missed(some_results()) == ["idle after the start: idle RSS MB: floor missed by 2.00 times"]


def test_results_are_the_same_after_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    saved = some_results()
    assert results.load(saved.save()) == saved


def test_a_page_keeps_what_stands_around_the_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_page(page, some_results(), [("floors", "images/bench-floors.svg")])
    text = page.read_text()
    assert "(images/bench-floors.svg)" in text
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert "| 300,000/s (290,000 to 310,000) |" in text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="lacks the markers"):
        report.write_page(page, some_results())


def test_a_section_of_a_page_is_written_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = f"{report.BEGIN}\nold\n{report.END}\n"
    page.write_text(f"{other}<!-- semantics: begin -->\nold too\n<!-- semantics: end -->\n")
    report.write_page(page, some_results(), section="semantics")
    text = page.read_text()
    assert text.startswith(other)
    assert "old too" not in text
    assert text.endswith("<!-- semantics: end -->\n")


def test_two_runs_are_told_as_one() -> None:
    another = Results("make bench ARGS=--again", True, "2026-01-02T00:00:00Z", {}, {MAGNETAR: "def"})
    another.add("idle", MAGNETAR, {"idle RSS MB": 50.0})
    another.add("holes", MAGNETAR, {"holes": 1.0})
    whole = results.together([some_results(), another])
    assert whole.brokers == {MAGNETAR: "abc and def", APACHE_PULSAR: "4.0.7"}
    assert whole.values("idle", "idle RSS MB", MAGNETAR) == [50.0]
    assert whole.values("holes", "holes", MAGNETAR) == [1.0]
    assert len(whole.values("produce-100b", "entries/s", MAGNETAR)) == 3
    assert "`make bench` and `make bench ARGS=--again`" in report.summary(whole)[0]
