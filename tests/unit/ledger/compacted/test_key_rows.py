"""The first pass over offloaded ledgers: without bodies it finds the survivors that it finds with them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from magnetar.common.naming.position import EARLIEST
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, ZSTD
from magnetar.ledger.cold.key_rows import KEY_COLUMNS, KeyRun, key_runs_of
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.tail_scan import Survivors, TailScan
from magnetar.ledger.ledger_store import Run

from tests.simulation.power_loss import Process
from tests.unit.ledger.cold.entries import written
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic
from tests.unit.ledger.compacted.history import Chunk, Entry, batch, chunk, marker, single
from tests.unit.ledger.compacted.test_offloaded_topics import take_away
from tests.unit.ledger.managed_ledger.harness import ledger_ids, load, simulated
from tests.unit.ledger.managed_ledger.offloading import with_objects

BODY_BYTES = 2_000


def entry_of(rng: random.Random, number: int) -> Entry:
    """An entry of any kind, over few keys; messages outside of batches tell their length."""
    key = rng.choice((None, "", *"abcde"))
    value = rng.choice((b"", bytes(BODY_BYTES)))
    kind = rng.randrange(8)
    if kind == 0:
        return marker(number)
    if kind == 1:
        return chunk(number, key, bytes(BODY_BYTES), Chunk(f"uuid-{number // 20}", number % 2, 2))
    if kind <= 4:
        return single(number, key, value, uncompressed_size=len(value))
    messages = [(rng.choice((None, *"abcde")), rng.choice((b"", bytes(BODY_BYTES)))) for _ in range(4)]
    return batch(
        number,
        messages,
        rng.choice((NONE, LZ4, ZSTD)),
        frozenset({1} if rng.random() < 0.2 else ()),
        encrypted=rng.random() < 0.1,
        garbage=rng.random() < 0.1,
    )


def runs_of_history(history: Sequence[Entry]) -> list[Run]:
    """The entries of ledger 1, each in a run of its own."""
    runs = []
    index = 0
    for number, entry in enumerate(history):
        run = entry.run()
        run.ledger_id, run.first_entry_id, run.first_index = 1, number, index
        index += entry.count
        runs.append(run)
    return runs


def key_runs(runs: Sequence[Run]) -> list[KeyRun] | None:
    return key_runs_of({name: rows_of(runs, partition=-1).columns[name] for name in KEY_COLUMNS})


def entry_ids(keys: KeyRun) -> range:
    return range(keys.run.first_entry_id, keys.run.last_entry_id + 1)


def survivors_of(runs: Sequence[KeyRun]) -> Survivors:
    scan = TailScan(KeyHash(bytes(16)), [], retain_null_key=False)
    for each in runs:
        list(scan.feed(each.run, each.bodies))
    (survivors,) = [each for each in scan.finish() if each is not None]
    return survivors


@pytest.mark.parametrize("seed", range(30))
def test_a_scan_without_bodies_finds_the_same_survivors(seed: int) -> None:
    rng = random.Random(seed)
    runs = runs_of_history([entry_of(rng, number) for number in range(120)])
    found = key_runs(runs)
    assert found is not None
    assert [number for each in found for number in entry_ids(each)] == list(range(120))
    assert any(not each.bodies for each in found)
    whole = survivors_of([KeyRun(run, True, run.byte_length) for run in runs])
    assert survivors_of(found) == whole


def test_bodies_are_left_out_and_counted() -> None:
    value = bytes(BODY_BYTES)
    history = [single(number, "a", value, uncompressed_size=len(value)) for number in range(10)]
    history += [batch(number, [("a", value), (None, value)], LZ4) for number in range(10, 20)]
    (found,) = key_runs(runs_of_history(history)) or []
    assert not found.bodies
    assert found.run.byte_length < 4_000
    assert found.byte_length > 30 * BODY_BYTES
    cut = found.slice(15, 99)
    assert cut is not None
    assert entry_ids(cut) == range(15, 20)
    assert cut.byte_length == round(found.byte_length / 4)
    assert found.slice(20, 99) is None


def test_entries_without_a_length_are_read_whole() -> None:
    telling = [single(0, "a", b"x", uncompressed_size=1), single(1, None, b"x")]
    assert key_runs(runs_of_history(telling)) is not None
    history = [*telling, single(2, "a", b"")]
    assert key_runs(runs_of_history(history)) is None
    _, reader = written(rows_of(runs_of_history(history), partition=-1))
    with reader:
        found = reader.read_key_runs([0])
    assert [each.bodies for each in found] == [True] * len(found)
    assert [entry for each in found for entry in each.run.entries] == [entry.data for entry in history]


def test_parts_are_read_without_their_bodies() -> None:
    value = random.Random(0).randbytes(BODY_BYTES)
    history = [single(number, f"{number % 7}", value, uncompressed_size=len(value)) for number in range(50)]
    runs = runs_of_history(history)
    _, reader = written(rows_of(runs, partition=-1))
    with reader:
        found = reader.read_key_runs([0])
    assert sum(each.run.byte_length for each in found) < 50 * 200
    assert survivors_of(found) == survivors_of([KeyRun(run, True, run.byte_length) for run in runs])


def test_a_topic_is_compacted_by_the_keys_of_its_objects() -> None:
    async def scenario(process: Process) -> None:
        topic = CompactedTopic(await load(process))
        cold = with_objects(topic.topic)
        await topic.topic.ledger.create_cursor("keeps", EARLIEST, {})
        history = [single(number, f"{number % 4}", b"value", uncompressed_size=5) for number in range(35)]
        await topic.publish(*history)
        ledgers = ledger_ids(topic.topic)[:3]
        await take_away(topic, cold, ledgers)
        cold.reads = 0
        await topic.compact(topic.history[30].position)
        assert cold.key_reads >= len(ledgers)
        survivors = {each.position.ledger_id for each in topic.history[27:31]}
        assert cold.reads <= len(survivors.intersection(ledgers)), "only survivors are read with their bodies"
        await topic.check()

    simulated(scenario)
