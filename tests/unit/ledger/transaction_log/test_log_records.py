"""The bytes of transaction logs: round trips, bounds, damage, and the golden files of version 1."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.transaction_log import log_records as records
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState, Outcome, Reason
from magnetar.ledger.transaction_log.log_loader import LogLoader
from magnetar.ledger.transaction_log.log_snapshots import snapshot_entries

GOLDEN = Path(__file__).parents[3] / "golden" / "transaction-log" / "v1"


def load(entries: list[bytes]) -> CoordinatorState:
    loader = LogLoader(3, 17)
    for entry_id, data in enumerate(entries):
        loader.feed(entry_id, data)
    return loader.finish()


def snapshot(state: CoordinatorState) -> list[bytes]:
    return list(snapshot_entries(state.unfinished(), list(state.outcomes.items()), snapshot_id=1))


def same(a: CoordinatorState, b: CoordinatorState) -> bool:
    return a.unfinished() == b.unfinished() and list(a.outcomes.items()) == list(b.outcomes.items())


def small() -> CoordinatorState:
    """One of everything."""
    state = CoordinatorState()
    state.next_number = 2**40
    for number in range(2**40, 2**40 + 4):
        state.begin(number, "ana/ü", 1_600_000_060_000 + number % 7, 60_000)
    state.add_topics(2**40, ["persistent://a/b/c", "persistent://a/b/d-partition-1"])
    state.add_subscriptions(2**40, [("persistent://a/b/e", "s"), ("persistent://a/b/c", "t")])
    state.add_topics(2**40 + 1, ["persistent://a/b/c"])
    state.decide(2**40 + 1, Action.COMMIT, Reason.REQUESTED)
    state.decide(2**40 + 2, Action.ABORT, Reason.TIMED_OUT)
    state.outcomes[7] = Outcome(Action.COMMIT, 1_600_000_000_000, "ana/ü")
    state.outcomes[5] = Outcome(Action.ABORT, 1_600_000_000_001, "")
    return state


CHANGES = [
    pb.Change(number=9, begin=pb.Begin(deadline_ms=1_600_000_000_000, ttl_ms=60_000, owner="ana")),
    *records.topics_changes(9, ["persistent://a/b/c"]),
    *records.subscriptions_changes(9, [("persistent://a/b/d", "s")]),
    records.decide_change(9, Action.COMMIT, Reason.REQUESTED),
    records.ended_change(9, 1_600_000_000_123),
    pb.Change(number=10, begin=pb.Begin(deadline_ms=1, ttl_ms=0)),
    records.decide_change(10, Action.ABORT, Reason.TIMED_OUT),
]

FILES = {
    "snapshot-transactions": lambda: snapshot(small())[0],
    "snapshot-outcomes": lambda: snapshot(small())[1],
    "snapshot-end": lambda: snapshot(small())[-1],
    "changes": lambda: records.change_entries(CHANGES)[0],
}


@pytest.mark.parametrize("name", FILES)
def test_records_of_version_1_keep_decoding(name: str) -> None:
    stored = (GOLDEN / f"{name}.bin").read_bytes()
    assert FILES[name]() == stored
    records.decode_entry(stored)


def test_a_snapshot_and_changes_give_the_state_back() -> None:
    state = small()
    assert same(load(snapshot(state)), state)
    empty = CoordinatorState()
    loaded = load([*snapshot(empty), *records.change_entries(CHANGES)])
    assert [each.number for each in loaded.unfinished()] == [10]
    assert loaded.unfinished()[0].action is Action.ABORT
    assert loaded.unfinished()[0].reason is Reason.TIMED_OUT
    assert loaded.outcomes == {9: Outcome(Action.COMMIT, 1_600_000_000_123, "ana")}
    assert loaded.next_number == 11


def test_large_states_are_cut_into_entries_of_limited_size() -> None:
    state = CoordinatorState()
    topics = [f"persistent://tenant/namespace/topic-{number}" for number in range(3_000)]
    for number in range(500):
        state.begin(number, "o" * 50, 1, 1)
    state.add_topics(17, topics)
    state.add_subscriptions(17, [(topic, "subscription") for topic in topics[:2_500]])
    state.decide(17, Action.COMMIT, Reason.REQUESTED)
    for number in range(1_000, 4_000):
        state.outcomes[number] = Outcome(Action.COMMIT, 1, "o" * 50)
    entries = snapshot(state)
    assert len(entries) > 5
    assert max(map(len, entries)) < records.ENTRY_BYTES_MAX * 1.5
    assert same(load(entries), state)
    changes = records.change_entries(records.topics_changes(17, topics))
    assert len(changes) > 1
    assert max(map(len, changes)) < records.ENTRY_BYTES_MAX * 1.5


def test_outcomes_with_times_out_of_order_are_all_loaded() -> None:
    state = CoordinatorState()
    for number, ended_ms in enumerate((10**12, 5, 10**12 + 1)):
        state.outcomes[number] = Outcome(Action.COMMIT, ended_ms, "")
    assert same(load(snapshot(state)), state)


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_detected_and_nothing_is_guessed(seed: int) -> None:
    rng = random.Random(seed)
    entries = [*snapshot(small()), *records.change_entries([records.ended_change(2**40 + 1, 5)])]
    at = rng.randrange(len(entries))
    data = bytearray(entries[at])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    entries[at] = bytes(data)
    with pytest.raises(DataCorruption, match=f"ledger 17 of coordinator 3: entry {at} is damaged"):
        load(entries)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_snapshot_with_a_missing_entry_is_refused(missing: int) -> None:
    entries = snapshot(small())
    assert len(entries) == 3
    del entries[missing]
    with pytest.raises(DataCorruption):
        load(entries)
    with pytest.raises(DataCorruption):
        load([*entries, *records.change_entries(CHANGES)])


def test_a_second_snapshot_is_refused() -> None:
    with pytest.raises(DataCorruption, match="out of order"):
        load(snapshot(small()) * 2)


def test_a_change_that_cannot_follow_is_refused() -> None:
    changes = records.change_entries([records.decide_change(4, Action.COMMIT, Reason.REQUESTED)])
    with pytest.raises(DataCorruption, match="transaction 4 changes, which is unknown"):
        load([*snapshot(CoordinatorState()), *changes])


@pytest.mark.parametrize("version_and_features", [(2, 0), (1, 1)])
def test_records_of_a_later_release_stop_the_load(version_and_features: tuple[int, int]) -> None:
    body = pb.Entry(changes=pb.Changes()).SerializeToString()
    prefix = struct.pack(">HBB", 0x4D54, *version_and_features)
    data = prefix + struct.pack(">I", crc32c(body, crc32c(prefix))) + body
    with pytest.raises(UnsupportedFormat, match="Run the release that wrote it"):
        load([data])
    with pytest.raises(UnsupportedFormat, match="run the release that wrote it"):
        load([*snapshot(CoordinatorState()), records.FORMAT.seal(b"\x7a\x01a")])
