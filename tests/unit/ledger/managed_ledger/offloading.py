"""Has ledgers of a topic offloaded into objects in memory, as a job would, for the tests beside it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import Intent, TopicLedger, decode
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsUnavailable
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.cold.layout import MANIFEST_NAME, attempt_path
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import ManagedLedger, offload_state
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules

from tests.simulation.cold_objects import LOCATION, Objects, SimColdStore, encode_manifest, encode_part
from tests.simulation.power_loss import KEYS
from tests.unit.ledger.managed_ledger.harness import TOPIC, Topic, until

NAME = TopicName.parse(TOPIC)
AT_ONCE = OffloadRules(deletion_lag_ms=0)


@dataclass
class Cold(SimColdStore):
    """Counts what is read, and is away when it is told so."""

    objects: Objects = field(default_factory=dict)
    in_use: list[str] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    failures: float = 0.0
    reads: int = 0
    key_reads: int = 0
    away: bool = False

    async def read(self, ledger: ColdLedger, first: int, last: int, max_bytes: int) -> list[Run]:
        self.reads += 1
        if self.away:
            raise ObjectsUnavailable("the objects are away")
        return await super().read(ledger, first, last, max_bytes)

    async def read_keys(self, ledger: ColdLedger, first: int, last: int) -> list[KeyRun]:
        self.key_reads += 1
        if self.away:
            raise ObjectsUnavailable("the objects are away")
        return await super().read_keys(ledger, first, last)


def with_objects(topic: Topic) -> Cold:
    """The topic's process can read objects from now on."""
    topic.ctx.cold = cold = Cold()
    return cold


async def offload(topic: Topic, cold: Cold, ledger_id: int, *, attempt: bytes = b"a" * 16) -> TopicLedger:
    """A job takes a closed ledger all the way; the owner does not know."""
    ledger = topic.ledger
    offloads = OffloadLedgers(topic.ctx.metadata, KEYS, topic.ctx.clock)
    now_ms = topic.ctx.clock.wall_ms()
    path = attempt_path(NAME, ledger_id, attempt)
    span = ledger.spans.by_id[ledger_id]
    reader = await topic.ctx.ledgers.open(span.ref)
    runs: list[Run] = []
    while not runs or runs[-1].last_entry_id < span.entries - 1:
        runs += await reader.read(runs[-1].last_entry_id + 1 if runs else 0, span.entries - 1, 1 << 20)
    parts = {"part-00000.parquet": encode_part(runs)}
    manifest = encode_manifest(parts)
    for name, data in [*parts.items(), (MANIFEST_NAME, manifest)]:
        cold.objects[f"{path}/{name}"] = data

    def whole_way(value: TopicLedger) -> TopicLedger:
        if value.offload.state != Offload.WANTED:
            value = offload_state.want(value, location=LOCATION, now_ms=now_ms)
        value = offload_state.begin(value, attempt=attempt, path=path, now_ms=now_ms)
        return offload_state.complete(
            value,
            attempt=attempt,
            entries=span.entries,
            rows=span.entries,
            raw_entries=0,
            object_bytes=len(manifest),
            manifest_sha256=hashlib.sha256(manifest).digest(),
            now_ms=now_ms,
        )

    return await offloads.change(NAME, ledger.creation_id, ledger_id, whole_way)


async def leave(topic: Topic, cold: Cold, ledger: ManagedLedger | None = None) -> int:
    """The owner lets storage go of the next ledger that is due; returns which."""
    ledger = topic.ledger if ledger is None else ledger
    await ledger.refresh_offload()
    due = ledger.due_to_leave()
    assert due is not None, "a ledger is due"
    assert await ledger.leave_bookies(await cold.verify(due))
    return due.ref.id


async def closed_topic(topic: Topic) -> list[int]:
    """Publish 25 entries, so that there are two closed ledgers of 10; returns these."""
    for size in (10, 10, 5):
        await topic.publish_confirmed(1, runs=size)
        if size == 10:
            topic.ledger.roll()
            await until(lambda: all(span.closed for span in topic.ledger.spans.spans))
    assert [span.entries for span in topic.ledger.spans.spans] == [10, 10, 5]
    return [span.ref.id for span in topic.ledger.spans.spans if span.closed]


async def value_of(topic: Topic, ledger_id: int) -> TopicLedger | None:
    found = await topic.ctx.metadata.get(KEYS.topic_ledger(topic.ledger.creation_id, ledger_id))
    return None if found is None else decode(TopicLedger, found.value)


async def intents_of(topic: Topic) -> list[Intent]:
    listing = await topic.ctx.metadata.children(KEYS.intents_prefix)
    return [decode(Intent, item.value) for item in listing.items]
