"""The simulated disk keeps what was synced, and nothing else can be relied on."""

from __future__ import annotations

import random

import pytest
from magnetar.sim.disk import PAGE, SECTOR, SimDisk
from magnetar.sim.loop import SimCrash

SEEDS = range(200)


def disk_with(name: str, content: bytes) -> SimDisk:
    disk = SimDisk()
    file = disk.open(name, create=True)
    file.pwritev([content], 0)
    file.fdatasync()
    disk.sync_dir("")
    return disk


def test_synced_bytes_under_a_synced_name_always_survive() -> None:
    disk = disk_with("a", b"x" * 10_000)
    for seed in SEEDS:
        assert disk.crash(random.Random(seed)).content("a") == b"x" * 10_000


def test_each_unsynced_page_survives_vanishes_or_tears_on_its_own() -> None:
    disk = disk_with("a", bytes(3 * PAGE))
    disk.open("a").pwritev([b"\1" * (3 * PAGE)], 0)
    seen = set()
    for seed in SEEDS:
        content = disk.crash(random.Random(seed)).content("a")
        pages = [content[start : start + PAGE] for start in range(0, 3 * PAGE, PAGE)]
        kinds = tuple("new" if all(page) else "torn" if any(page) else "old" for page in pages)
        assert kinds.count("torn") <= 1
        for page in pages:
            sectors = [page[start : start + SECTOR] for start in range(0, PAGE, SECTOR)]
            assert all(sector in (bytes(SECTOR), b"\1" * SECTOR) for sector in sectors)
        seen.add(kinds)
    assert {("old",) * 3, ("new",) * 3, ("old", "new", "old")} <= seen
    assert any("torn" in kinds for kinds in seen)


def test_an_older_version_of_a_page_may_be_what_survives() -> None:
    disk = disk_with("a", bytes(PAGE))
    for value in (b"\1", b"\2"):
        disk.open("a").pwritev([value * PAGE], 0)
    assert {disk.crash(random.Random(seed)).content("a")[0] for seed in SEEDS} == {0, 1, 2}


def test_names_that_were_not_synced_may_vanish_and_removals_may_come_undone() -> None:
    disk = disk_with("old", b"old")
    file = disk.open("new", create=True)
    file.pwritev([b"new"], 0)
    file.fdatasync()
    disk.unlink("old")
    seen = {tuple(disk.crash(random.Random(seed)).paths()) for seed in SEEDS}
    assert seen == {(), ("new",), ("old",), ("new", "old")}
    disk.sync_dir("")
    assert all(disk.crash(random.Random(seed)).paths() == ["new"] for seed in SEEDS)


def test_a_rename_is_one_change() -> None:
    disk = disk_with("a", b"content")
    disk.rename("a", "b")
    seen = {tuple(disk.crash(random.Random(seed)).paths()) for seed in SEEDS}
    assert seen == {("a",), ("b",)}


def test_a_failed_sync_loses_the_pages_and_is_told_once_to_every_open_file() -> None:
    disk = disk_with("a", b"old!")
    writer, other = disk.open("a"), disk.open("a")
    writer.pwritev([b"new!"], 0)
    disk.faults.sync_errors = {disk.operations + 1}
    with pytest.raises(OSError, match="sync failed"):
        other.fdatasync()
    other.fdatasync()
    with pytest.raises(OSError, match="sync failed"):
        writer.fdatasync()
    writer.fdatasync()
    assert writer.pread(4, 0) == b"new!", "the page cache shows what the disk lost"
    assert disk.kill().content("a") == b"new!"
    assert disk.crash(random.Random(1)).content("a") == b"old!"


def test_a_full_disk_takes_what_fits_and_raises() -> None:
    disk = SimDisk(capacity=10)
    file = disk.open("a", create=True)
    with pytest.raises(OSError, match="no space"):
        file.pwritev([b"x" * 20], 0)
    assert file.size() == 10
    assert disk.free_bytes() == 0
    file.pwritev([b"y" * 10], 0)
    assert file.pread(20, 0) == b"y" * 10


def test_the_process_dies_at_the_chosen_operation_and_stays_dead() -> None:
    disk = SimDisk()
    disk.faults.crash_at = 2
    file = disk.open("a", create=True)
    with pytest.raises(SimCrash):
        file.pwritev([b"x"], 0)
    with pytest.raises(SimCrash):
        file.pread(1, 0)
    with pytest.raises(SimCrash):
        disk.listdir("")
    assert disk.kill().content("a") == b""


def test_a_crash_leaves_the_disk_itself_as_it_was() -> None:
    disk = disk_with("a", b"one")
    disk.open("a").pwritev([b"two"], 0)
    twin = disk.kill()
    twin.open("a").pwritev([b"3"], 0)
    twin.flip_bit("a", 0)
    disk.crash(random.Random(3)).overwrite("a", b"?", 0)
    assert disk.content("a") == b"two"


def test_a_lock_is_held_until_it_is_closed_and_dies_with_the_process() -> None:
    disk = SimDisk()
    held = disk.lock("LOCK")
    with pytest.raises(BlockingIOError):
        disk.lock("LOCK")
    disk.kill().lock("LOCK")
    held.close()
    disk.lock("LOCK")


def test_a_spoiled_page_is_unreadable_until_it_is_written() -> None:
    disk = disk_with("a", b"x" * (3 * PAGE))
    disk.spoil("a", PAGE + 5)
    for each in (disk, disk.kill(), disk.crash(random.Random(1))):
        file = each.open("a")
        assert file.pread(PAGE, 0) == file.pread(PAGE, 2 * PAGE) == b"x" * PAGE
        for length, offset in ((1, PAGE), (PAGE + 1, 0), (3 * PAGE, 0)):
            with pytest.raises(OSError, match="Input/output error"):
                file.pread(length, offset)
        file.pwritev([b"y" * PAGE], PAGE)
        assert file.pread(2 * PAGE, PAGE) == b"y" * PAGE + b"x" * PAGE
