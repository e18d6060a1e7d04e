"""A search of objects finds what plain reading finds: any messages, conditions, parts and row groups."""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, EncryptionKeys, KeyValue
from magnetar.ledger.cold.aborted_entries import AbortedEntries
from magnetar.ledger.cold.search.condition import Condition, MessagePosition
from magnetar.ledger.cold.search.ledger_search import Looked
from magnetar.ledger.ledger_store import RUN_TXN, Run

from tests.unit.ledger.cold.entries import LEDGER_ID, batch, run, single
from tests.unit.ledger.cold.search.searched_ledgers import search, write_ledger

KEYS = ("a", "b", "é", "YQ==", "")
TIME_MS = 1_700_000_000_000
TIMES = st.integers(0, 6).map(lambda second: TIME_MS + second)


@dataclass(frozen=True)
class Told:
    """A message as it was made, for plain reading."""

    position: MessagePosition
    key: bytes | None
    properties: dict[str, str]
    publish_time_ms: int
    event_time_ms: int
    payload: bytes
    readable: bool = True


OWN = st.fixed_dictionaries(
    {"payload": st.sampled_from([b"", b"red", b"dark red", b"\x00\xff", b"blue"])},
    optional={
        "key": st.sampled_from(KEYS),
        "bytes_key": st.booleans(),
        "properties": st.lists(
            st.tuples(st.sampled_from(["color", "size"]), st.sampled_from(["", "1", "2"])), max_size=3
        ),
        "event_time": st.integers(0, 6).map(lambda second: TIME_MS + second),
    },
)
ENTRY = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["single", "single", "batch", "encrypted", "aborted"]),
        "messages": st.lists(OWN, min_size=1, max_size=4),
        "time": TIMES,
        "compression": st.sampled_from([NONE, LZ4]),
    }
)


def fields(own: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a message."""
    found: dict[str, Any] = {}
    if "key" in own:
        encoded = base64.b64encode(own["key"].encode()).decode()
        found["partition_key"] = encoded if own.get("bytes_key") else own["key"]
        found["partition_key_b64_encoded"] = own.get("bytes_key", False)
    if "properties" in own:
        found["properties"] = [KeyValue(key=name, value=value) for name, value in own["properties"]]
    if "event_time" in own:
        found["event_time"] = own["event_time"]
    return found


def told(own: dict[str, Any], position: MessagePosition, time_ms: int, *, readable: bool) -> Told:
    return Told(
        position,
        own["key"].encode() if "key" in own else None,
        dict(own.get("properties", ())),
        time_ms,
        own.get("event_time", 0),
        own["payload"] if readable else b"",
        readable,
    )


def ledger_of(entries: list[dict[str, Any]]) -> tuple[list[Run], list[Told], AbortedEntries]:
    """Entries as runs of one each, the messages that clients get, and the aborted entries."""
    runs, messages, aborted = [], [], AbortedEntries()
    for entry_id, entry in enumerate(entries):
        inside, kind, time_ms = entry["messages"], entry["kind"], entry["time"]
        if kind == "batch":
            data = batch(
                [(own["payload"], fields(own)) for own in inside], entry["compression"], publish_time=time_ms
            )
            positions = [MessagePosition(LEDGER_ID, entry_id, number) for number in range(len(inside))]
        else:
            inside, positions = inside[:1], [MessagePosition(LEDGER_ID, entry_id)]
            secret = {"encryption_keys": [EncryptionKeys(key="k", value=b"v")]} if kind == "encrypted" else {}
            own = {**fields(inside[0]), **secret}
            data = single(inside[0]["payload"], entry["compression"], publish_time=time_ms, **own)
        flags = {}
        if kind == "aborted":
            aborted.add(entry_id)
            flags = {"flags": RUN_TXN}
        else:
            messages += [
                told(own, position, time_ms, readable=kind != "encrypted")
                for own, position in zip(inside, positions, strict=True)
            ]
        runs.append(run([data], [len(inside)], first_entry_id=entry_id, first_index=100 + entry_id, **flags))
    return runs, messages, aborted


POSITIONS = st.builds(
    MessagePosition, st.integers(LEDGER_ID - 1, LEDGER_ID + 1), st.integers(-1, 12), st.integers(-1, 3)
)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(KEYS),
        "properties": st.lists(
            st.tuples(st.sampled_from(["color", "size"]), st.sampled_from(["", "1", None])), max_size=2
        ).map(tuple),
        "text": st.sampled_from([b"", b"red", b"dark", b"\xff"]),
        "since_ms": TIMES,
        "until_ms": TIMES,
        "by_event_time": st.booleans(),
        "start": POSITIONS,
        "at": POSITIONS,
    },
)


def is_asked(message: Told, asked: dict[str, Any]) -> bool:
    """The same condition, said once more and without any plan."""
    time_ms = message.event_time_ms if asked.get("by_event_time") else message.publish_time_ms
    at = asked.get("at")
    return (
        ("key" not in asked or message.key == asked["key"].encode())
        and all(
            name in message.properties and value in (None, message.properties[name])
            for name, value in asked.get("properties", ())
        )
        and (not asked.get("text") or (message.readable and asked["text"] in message.payload))
        and ("since_ms" not in asked or (time_ms > 0 and time_ms >= asked["since_ms"]))
        and ("until_ms" not in asked or (time_ms > 0 and time_ms < asked["until_ms"]))
        and ("start" not in asked or message.position >= asked["start"])
        and (at is None or message.position[:2] == at[:2])
        and (at is None or at.batch_index < 0 or message.position.batch_index == at.batch_index)
    )


def condition_of(asked: dict[str, Any]) -> Condition:
    given = {name: value for name, value in asked.items() if name != "at"}
    if at := asked.get("at"):
        given |= {"ledger_id": at.ledger_id, "entry_id": at.entry_id}
        given |= {"batch_index": at.batch_index} if at.batch_index >= 0 else {}
    return Condition(**given)


@given(
    entries=st.lists(ENTRY, min_size=1, max_size=8),
    part_runs=st.integers(2, 8),
    row_group_bytes=st.sampled_from([1, 400, 1 << 20]),
    asked=st.lists(CONDITIONS, min_size=2, max_size=4),
)
def test_a_search_finds_what_reading_every_message_finds(
    entries: list[dict[str, Any]], part_runs: int, row_group_bytes: int, asked: list[dict[str, Any]]
) -> None:
    runs, messages, aborted = ledger_of(entries)
    with tempfile.TemporaryDirectory() as directory:
        objects = write_ledger(
            Path(directory), runs, part_runs=part_runs, row_group_bytes=row_group_bytes, aborted=aborted
        )
        everything = search(objects, Condition())
        assert [message.position for message in everything] == [message.position for message in messages]
        for message, like in zip(everything, messages, strict=True):
            assert message.key_bytes == like.key
            assert message.properties == like.properties
            assert (message.payload, bool(message.unreadable)) == (like.payload, not like.readable)
            assert (message.publish_time_ms, message.event_time_ms) == (
                like.publish_time_ms,
                like.event_time_ms,
            )
        for each in asked:
            condition, looked = condition_of(each), Looked()
            found = search(objects, condition, looked)
            expected = [message for message in messages if is_asked(message, each)]
            assert [message.position for message in found] == [message.position for message in expected]
            assert found == [message for message in everything if condition.matches(message)], (
                "messages from brokers are asked the same"
            )
            assert looked.row_groups_read <= looked.row_groups
            if len(found) > 1:
                after = found[0].position._replace(batch_index=found[0].position.batch_index + 1)
                resumed = search(objects, replace(condition, start=after))
                assert resumed == found[1:], "a search goes on where it stopped"
