"""The benchmark beside BookKeeper: what it needs of the machine, whose turn it is, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.storage import beside_table
from bench.storage.beside import FREE_MEMORY_MIN, Side, lacks, order
from bench.storage.beside_table import OURS, THEIRS, group
from bench.storage.bookkeeper import SOURCES, bookkeeper_jars, bookkeeper_version
from bench.storage.procfs import available_bytes, file_system
from bench.storage.results import StorageResults, write_page

LOAD = "100 B, single entries, 1 in flight"


def results() -> StorageResults:
    machine = {"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "kernel": "6.1", "python": "3.11.0"}
    found = StorageResults("make bench-storage", "2026-01-01T00:00:00Z", "abc", machine)
    found.beside = {"version": "4.16.6", "java": "17", "file system": "ext4", "rounds": "2", "seconds": "5"}
    found.beside["load averages"] = "1.0, 2.0"
    for ours, theirs in ((600.0, 300.0), (400.0, 400.0)):
        found.add(group(LOAD, OURS), {"entries/s": ours})
        found.add(group(LOAD, THEIRS), {"entries/s": theirs})
    return found


def test_the_table_has_both_sides_and_ratios_of_each_round() -> None:
    row = (LOAD, "entries/s", "500 (400 to 600)", "350 (300 to 400)", "1.50 (1.00 to 2.00)")
    assert beside_table.rows(results()) == [row]


def test_a_load_of_one_side_only_is_left_out() -> None:
    found = results()
    del found.figures[group(LOAD, THEIRS)]
    assert beside_table.rows(found) == []


def test_cpu_of_all_is_that_of_every_bookie_and_the_client() -> None:
    figures = beside_table.with_cpu({"bookie us/entry": 10.0, "process us/entry": 5.0}, 3)
    assert [figures[key] for key in beside_table.CPU] == [10.0, 5.0, 35.0]


def test_latency_is_told_where_it_is_not_the_length_of_a_queue() -> None:
    told = {name: "p50 ms" in beside_table.figures_of(load) for name, load in beside_table.loads(1).items()}
    assert [name for name, latency in told.items() if latency] == [LOAD, LOAD.replace("1 in", "10 in")]


def test_the_page_names_no_day_and_keeps_its_other_parts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{beside_table.BEGIN}\nold\n{beside_table.END}\nafter\n")
    write_page(page, beside_table.markdown(results()), beside_table.BEGIN, beside_table.END)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "2026" not in text
    assert "ext4" in text


def test_sides_take_turns_at_going_first() -> None:
    one, other = (Side(name, lambda load: {}, []) for name in (OURS, THEIRS))
    assert order((one, other), 0) == ((one, other), (other, one))
    assert order((one, other), 1) == ((other, one), (one, other))


def test_too_little_memory_or_disk_is_told_with_the_amount() -> None:
    assert lacks(FREE_MEMORY_MIN, 100 << 30, 5, 5.0) == ""
    assert lacks(3 << 30, 100 << 30, 5, 5.0) == "7 GiB of memory must be free, 3.0 GiB are"
    assert lacks(FREE_MEMORY_MIN, 1 << 30, 5, 5.0).startswith("30 GiB of disk must be free, 1.0 GiB are")


def test_available_memory_and_the_file_system_are_read_from_proc() -> None:
    assert available_bytes("MemTotal: 9 kB\nMemAvailable:     2048 kB\n") == 2 << 20
    mounts = (
        "/dev/a / ext4 rw 0 0\nnone /tmp tmpfs rw 0 0\n/dev/b /tmp xfs rw 0 0\n/dev/c /tmp/x btrfs rw 0 0\n"
    )
    assert file_system(mounts, Path("/home")) == "ext4"
    assert file_system(mounts, Path("/tmp/y")) == "xfs"
    assert file_system(mounts, Path("/tmpdir")) == "ext4"


def test_without_java_the_reason_is_told_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    assert bookkeeper_jars(said.append) == "`java` is not installed"
    assert said == []


def test_bookies_of_bookkeeper_sync_before_they_confirm_and_stay_on_loopback() -> None:
    lines = (SOURCES / "bookie.conf").read_text().splitlines()
    assert {"journalSyncData=true", "journalWriteData=true", "listeningInterface=lo"} <= set(lines)
    assert bookkeeper_version().startswith("4.16.")
