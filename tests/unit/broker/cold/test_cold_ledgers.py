"""Offloaded ledgers out of Parquet files: the same entries as before, whoever reads; damage is told."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.broker.cold import cold_ledgers
from magnetar.broker.cold.cold_ledgers import ColdLedgers
from magnetar.broker.cold.group_cache import MISSES, READ_AHEAD
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.cold import part_reader
from magnetar.ledger.cold.cold_reader import ColdLedger, ColdLedgerReader, ObjectsDamaged, ObjectsUnavailable
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest
from magnetar.ledger.ledger_store import Run

from tests.unit.broker.cold.parquet_ledgers import (
    STARTED_MS,
    batch,
    entries_of,
    messages,
    write_ledger,
)

ALL = 1 << 40


def reading(scenario: Callable[[ColdLedgers], Awaitable[None]], cache_bytes: int = 1 << 20) -> None:
    async def main() -> None:
        pool = ThreadPool(2, "test")
        cold = ColdLedgers(lambda _: pool, SystemClock(), cache_bytes=cache_bytes)
        try:
            await scenario(cold)
        finally:
            await cold.close()
            pool.close()

    asyncio.run(main())


async def read_through(cold: ColdLedgers, ledger: ColdLedger, bytes_max: int) -> list[Run]:
    """Read it all from the beginning, as a subscription that catches up."""
    reader = ColdLedgerReader(cold, ledger)
    runs: list[Run] = []
    while not runs or runs[-1].last_entry_id < ledger.last_entry_id:
        at = runs[-1].last_entry_id + 1 if runs else 0
        runs += await reader.read(at, ledger.last_entry_id, bytes_max)
    return runs


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("bytes_max", [1, 100, 1_000, ALL])
def test_read_entries_equal_written_entries(tmp_path: Path, parts: int, bytes_max: int) -> None:
    runs = messages(200)
    ledger = write_ledger(tmp_path, runs, parts=parts)

    async def scenario(cold: ColdLedgers) -> None:
        assert entries_of(await read_through(cold, ledger, bytes_max)) == entries_of(runs)

    reading(scenario)


def test_batches_come_back_with_their_counts(tmp_path: Path) -> None:
    entries = [batch(number, 10, b"payload") for number in range(30)]
    runs = [Run(entries, STARTED_MS, 50, [10] * 30, ledger_id=7, first_entry_id=0)]
    ledger = write_ledger(tmp_path, runs)

    async def scenario(cold: ColdLedgers) -> None:
        assert entries_of(await read_through(cold, ledger, 700)) == entries_of(runs)

    reading(scenario)


def test_any_range_is_given_as_far_as_it_fits_and_at_least_one_entry(tmp_path: Path) -> None:
    expected = entries_of(runs := messages(120))
    ledger = write_ledger(tmp_path, runs, parts=2)
    rng = random.Random(1)

    async def scenario(cold: ColdLedgers) -> None:
        reader = ColdLedgerReader(cold, ledger)
        for _ in range(300):
            first = rng.randrange(120)
            last = rng.randrange(first, 120)
            bytes_max = rng.choice((1, 70, 300, 2_000, ALL))
            found = entries_of(await reader.read(first, last, bytes_max))
            assert found == expected[first : first + len(found)]
            size = sum(len(data) for _, data, *_ in found)
            assert size <= bytes_max or len(found) == 1
            if found[-1][0] < last:  # fewer only where the next one does not fit
                assert size + len(expected[found[-1][0] + 1][1]) > bytes_max

    reading(scenario)


def test_many_readers_at_once_get_their_own_and_share_what_is_loaded(tmp_path: Path) -> None:
    expected = entries_of(runs := messages(300))
    ledger = write_ledger(tmp_path, runs, parts=2)

    async def scenario(cold: ColdLedgers) -> None:
        before = MISSES.labels("row groups")._value.get()
        read = await asyncio.gather(*(read_through(cold, ledger, 500 + 100 * n) for n in range(8)))
        assert all(entries_of(found) == expected for found in read)
        groups = 300 * 80 // 2_000 * 3
        assert MISSES.labels("row groups")._value.get() - before <= groups, "not once for each reader"

    reading(scenario)


def test_sequential_reader_gets_the_next_row_group_prefetched(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path, messages(300), parts=2)

    async def scenario(cold: ColdLedgers) -> None:
        before = READ_AHEAD._value.get()
        await read_through(cold, ledger, 500)
        assert READ_AHEAD._value.get() > before
        before = READ_AHEAD._value.get()
        for first in (250, 10, 120, 60):  # who jumps about is not read ahead for
            await cold.read(ledger, first, first + 1, ALL)
        assert READ_AHEAD._value.get() == before

    reading(scenario)


def test_memory_for_less_than_a_row_group_is_slow_and_right(tmp_path: Path) -> None:
    runs = messages(100)
    ledger = write_ledger(tmp_path, runs)

    async def scenario(cold: ColdLedgers) -> None:
        assert entries_of(await read_through(cold, ledger, 300)) == entries_of(runs)

    reading(scenario, cache_bytes=1)


def test_entries_are_found_by_the_time_at_which_the_broker_took_them(tmp_path: Path) -> None:
    runs = messages(90, at_once=3, step_ms=10)
    ledger = write_ledger(tmp_path, runs, parts=3)

    async def scenario(cold: ColdLedgers) -> None:
        for after_ms in range(-5, 310, 5):
            expected = next(
                (run.first_entry_id for run in runs if run.publish_time_ms >= STARTED_MS + after_ms), 90
            )
            assert await cold.first_not_before(ledger, STARTED_MS + after_ms) == expected

    reading(scenario)


def test_a_whole_ledger_is_verified_and_its_messages_are_counted(tmp_path: Path) -> None:
    entries = [batch(number, 4, b"x") for number in range(40)]
    runs = [Run(entries, STARTED_MS, 1_000, [4] * 40, ledger_id=7, first_entry_id=0)]
    ledger = write_ledger(tmp_path, runs)

    async def scenario(cold: ColdLedgers) -> None:
        verified = await cold.verify(ledger)
        assert (verified.ledger, verified.first_index, verified.messages) == (ledger, 1_000, 160)
        assert verified.max_publish_time_ms == STARTED_MS

    reading(scenario)


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", ["part-00000.parquet", "part-00001.parquet", MANIFEST_NAME])
def test_no_flipped_bit_passes_verification(tmp_path: Path, name: str, at: float) -> None:
    ledger = write_ledger(tmp_path, messages(100), parts=2)
    flip(tmp_path / ledger.path / name, at)

    async def scenario(cold: ColdLedgers) -> None:
        with pytest.raises(ObjectsDamaged):
            await cold.verify(ledger)

    reading(scenario)


def test_verification_does_not_believe_what_a_reader_is_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = write_ledger(tmp_path, messages(100))
    read_already, answers = threading.Event(), threading.Event()

    async def scenario(cold: ColdLedgers) -> None:
        from magnetar.broker.cold.ledger_objects import LedgerObjects

        manifest = LedgerObjects.manifest

        def slow(objects: LedgerObjects) -> Manifest:
            found = manifest(objects)
            read_already.set()
            answers.wait(60)
            return found

        monkeypatch.setattr(LedgerObjects, "manifest", slow)
        reader = asyncio.ensure_future(cold.read(ledger, 0, 99, ALL))
        await asyncio.to_thread(read_already.wait)
        monkeypatch.setattr(LedgerObjects, "manifest", manifest)
        (tmp_path / ledger.path / MANIFEST_NAME).unlink()
        try:
            with pytest.raises(ObjectsDamaged):
                async with asyncio.timeout(20):
                    await cold.verify(ledger)
        finally:
            answers.set()
        await reader

    reading(scenario)


@pytest.mark.parametrize("step", ["check_size", "read", "footer", "group"])
def test_a_store_that_stops_answering_ends_a_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ledger = write_ledger(tmp_path, messages(100))
    answers = threading.Event()
    monkeypatch.setattr(cold_ledgers, "WAIT_MAX_S", 0.5)

    async def scenario(cold: ColdLedgers) -> None:
        from magnetar.broker.cold.ledger_objects import LedgerObjects

        monkeypatch.setattr(LedgerObjects, step, lambda *_: answers.wait(60))
        try:
            with pytest.raises(ObjectsUnavailable, match="did not answer"):
                await cold.verify(ledger)
        finally:
            answers.set()

    reading(scenario)


@pytest.mark.parametrize("from_end", [9, 60, 400, 1_200])
def test_a_damaged_footer_is_told_before_the_library_parses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_end: int
) -> None:
    # Arrow aborts the process on some of them: nothing of it may see these bytes.
    ledger = write_ledger(tmp_path, messages(100))
    path = tmp_path / ledger.path / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[-from_end] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr(part_reader, "pq", None)

    async def scenario(cold: ColdLedgers) -> None:
        for attempt in (cold.read(ledger, 0, 99, ALL), cold.first_not_before(ledger, STARTED_MS)):
            with pytest.raises(ObjectsDamaged, match="footer"):
                await attempt

    reading(scenario)


@pytest.mark.parametrize("name", ["part-00001.parquet", MANIFEST_NAME])
def test_a_missing_or_short_object_is_damage_and_readable_again_once_it_is_back(
    tmp_path: Path, name: str
) -> None:
    runs = messages(100)
    ledger = write_ledger(tmp_path, runs, parts=2)
    path = tmp_path / ledger.path / name
    whole = path.read_bytes()

    async def scenario(cold: ColdLedgers) -> None:
        for broken in (None, whole[:-20], b""):
            path.unlink()
            if broken is not None:
                path.write_bytes(broken)
            for attempt in (cold.verify(ledger), cold.read(ledger, 99, 99, ALL)):
                with pytest.raises(ObjectsDamaged):
                    await attempt
            path.write_bytes(whole)
            assert entries_of(await read_through(cold, ledger, ALL)) == entries_of(runs)

    reading(scenario)


@pytest.mark.parametrize("name", ["part-00000.parquet", "part-00001.parquet", MANIFEST_NAME])
def test_verification_does_not_believe_what_is_in_memory(tmp_path: Path, name: str) -> None:
    ledger = write_ledger(tmp_path, messages(100), parts=2)

    async def scenario(cold: ColdLedgers) -> None:
        await read_through(cold, ledger, ALL)
        (tmp_path / ledger.path / name).unlink()
        with pytest.raises(ObjectsDamaged):
            await cold.verify(ledger)

    reading(scenario)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "persistent://public/default/other"},
        {"creation_id": 4},
        {"last_entry_id": 98},
        {"attempt": b"b" * 16},
        {"manifest_sha256": b"s" * 32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_objects_of_another_ledger_are_not_taken_for_this_one(
    tmp_path: Path, change: dict[str, object]
) -> None:
    ledger = replace(write_ledger(tmp_path, messages(100)), **change)  # type: ignore[arg-type]

    async def scenario(cold: ColdLedgers) -> None:
        with pytest.raises(ObjectsDamaged):
            await cold.read(ledger, 0, 1, ALL)

    reading(scenario)


def test_a_manifest_that_leaves_entries_out_is_refused_although_its_hash_is_right(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path, messages(100))
    path = tmp_path / ledger.path / MANIFEST_NAME
    manifest = path.read_bytes().replace(b'"entries": 100', b'"entries": 99')
    path.write_bytes(manifest)
    lying = replace(ledger, manifest_sha256=hashlib.sha256(manifest).digest())

    async def scenario(cold: ColdLedgers) -> None:
        with pytest.raises(ObjectsDamaged, match="entries"):
            await cold.verify(lying)

    reading(scenario)


def test_a_place_that_cannot_be_reached_is_no_damage(tmp_path: Path) -> None:
    ledger = replace(write_ledger(tmp_path, messages(10)), location="nosuchscheme://bucket")

    async def scenario(cold: ColdLedgers) -> None:
        with pytest.raises(ObjectsUnavailable, match="nosuchscheme"):
            await cold.read(ledger, 0, 1, ALL)

    reading(scenario)


def test_without_the_packages_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = write_ledger(tmp_path, messages(10))
    monkeypatch.setitem(sys.modules, "magnetar.broker.cold.ledger_objects", None)

    async def scenario(cold: ColdLedgers) -> None:
        with pytest.raises(ObjectsUnavailable, match="pip install fsspec pyarrow s3fs"):
            await cold.read(ledger, 0, 1, ALL)

    reading(scenario)


def test_importing_the_broker_imports_none_of_the_packages() -> None:
    code = "import sys, magnetar.broker.broker; print([n for n in ('pyarrow', 'fsspec') if n in sys.modules])"

    async def run() -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", code, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        return output.decode().strip()

    assert asyncio.run(run()) == "[]"
