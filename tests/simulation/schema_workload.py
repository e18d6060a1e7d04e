"""Brokers that put, delete and erase schemas of one topic at once, while answers get lost and brokers die.

What is checked:
- a put returns a version that held this schema when it was returned, or an equal one;
- versions have no holes, and none changes once it is written;
- since a deletion, no two versions are equal, and each was compatible with the one before.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.schemas.history import definition_of, definition_of_record
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.schemas.schema_store import SchemaStore, version_number
from magnetar.common.errors import IncompatibleSchema, MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Put, WatchEvent
from magnetar.common.metadata.values import Namespace, SchemaRecord, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.schemas.definition import SchemaDefinition
from magnetar.common.schemas.rules import Strategy, Versions, check_put, find
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore

KEYS: Final = Keys("sim")
TOPIC: Final = TopicName.parse("orders")
BACKWARD: Final = SchemaRules(Strategy.BACKWARD)
BROKERS: Final = 3
SCHEMAS: Final = 7
"""Different schemas; those with a higher number have more fields, each without a default."""


def schema(number: int, spaces: int = 0) -> Schema:
    """A record with `number` fields: a reader with fewer fields is compatible, one with more is not."""
    fields = [{"name": f"f{each}", "type": "int"} for each in range(number)]
    text = json.dumps({"type": "record", "name": "R", "fields": fields}) + " " * spaces
    return Schema(name="orders", schema_data=text.encode(), type=Schema.Avro)


@dataclass(frozen=True)
class Returned:
    """A version that a put returned."""

    wanted: SchemaDefinition
    version: int
    asked_at: int
    returned_at: int
    """Revisions of the store."""


@dataclass(eq=False)
class SimBroker:
    """One broker's view of the schemas; it dies without notice."""

    store: SimMetadataStore
    schemas: SchemaStore
    following: asyncio.Task[None]

    def die(self) -> None:
        self.store.crash()
        self.following.cancel()


@dataclass(eq=False)
class SchemaWorkload:
    """One simulated run: `drive`, then `check`."""

    loop: SimLoop
    faults: bool
    server: SimMetadataServer = field(default_factory=SimMetadataServer)
    done: Counter[str] = field(default_factory=Counter)
    returned: list[Returned] = field(default_factory=list)
    written: list[tuple[int, int, SchemaRecord | None]] = field(default_factory=list)
    """Each change: revision, number, and the record; None where it was erased."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.loop.rng.getrandbits(64))
        self.server.commit([Put(KEYS.namespace(TOPIC.namespace), encode(Namespace()))])
        self.server.subscribe(self._note)

    def _note(self, events: list[WatchEvent]) -> None:
        for event in events:
            if event.key.startswith(KEYS.schemas_prefix(TOPIC)):
                number = int(event.key.rsplit("/", 1)[1])
                record = None if event.value is None else decode(SchemaRecord, event.value)
                self.written.append((event.version, number, record))

    def _start(self) -> SimBroker:
        faults = MetadataFaults()
        if self.faults:
            faults = MetadataFaults(unknown_probability=0.1, late_probability=0.05, watch_delay_max_s=0.1)
        store = SimMetadataStore(self.server, self.loop.rng, faults=faults)
        schemas = SchemaStore(store, KEYS, SimClock(self.loop))
        return SimBroker(store, schemas, asyncio.create_task(schemas.follow()))

    async def drive(self, steps: int) -> None:
        brokers = [self._start() for _ in range(BROKERS)]
        calls: set[asyncio.Task[None]] = set()
        for _ in range(steps):
            for _ in range(self.rng.randint(1, 6)):
                calls.add(asyncio.create_task(self._call(self.rng.choice(brokers))))
            await asyncio.sleep(self.rng.uniform(0, 0.01))
            if self.faults and self.rng.random() < 0.03:
                index = self.rng.randrange(BROKERS)
                brokers[index].die()
                brokers[index] = self._start()
                self.done["died"] += 1
        await asyncio.wait(calls, timeout=30)
        for call in calls:
            if call.done():
                call.result()
            else:
                call.cancel()  # its broker died
        await asyncio.sleep(2)  # writes whose outcome was lost arrive
        for broker in brokers:
            broker.die()
        await asyncio.sleep(0)

    async def _call(self, broker: SimBroker) -> None:
        chance = self.rng.random()
        asked_at = self.server.revision
        try:
            if chance < 0.03:
                await broker.schemas.retire(TOPIC)
                self.done["retired"] += 1
            elif chance < 0.05:
                await broker.schemas.erase(TOPIC)
                self.done["erased"] += 1
            else:
                wanted = schema(self.rng.randrange(SCHEMAS), self.rng.randrange(2))
                version = await broker.schemas.put(TOPIC, wanted, BACKWARD)
                self.returned.append(
                    Returned(definition_of(wanted), version_number(version), asked_at, self.server.revision)
                )
                self.done["put"] += 1
        except IncompatibleSchema:
            self.done["refused"] += 1
        except MetadataError:
            self.done["failed"] += 1

    def check(self) -> None:
        """Replays all changes in order. Raises AssertionError for a broken promise."""
        versions: dict[int, SchemaDefinition] = {}
        at: dict[int, list[tuple[int, SchemaDefinition]]] = {}
        for revision, number, record in self.written:
            if record is None:
                versions.pop(number, None)
                continue
            assert number not in versions, f"version {number} was written over"
            assert number == len(versions), f"version {number} behind {sorted(versions)}"
            assert record.version == number
            definition = definition_of_record(record)
            if record.type:
                self._check_appended(definition, sorted(versions.items()))
            versions[number] = definition
            at.setdefault(number, []).append((revision, definition))
        for each in self.returned:
            held = [
                definition
                for revision, definition in at.get(each.version, ())
                if revision <= each.returned_at
            ]
            assert any(find(each.wanted, [(0, definition)]) == 0 for definition in held), each

    def _check_appended(self, new: SchemaDefinition, history: Versions) -> None:
        assert find(new, history) is None, f"{new} is there already in {history}"
        check_put(new, history, Strategy.BACKWARD)


def simulated(seed: int, *, faults: bool, steps: int = 60) -> SchemaWorkload:
    """Runs and checks a workload. Raises AssertionError for a broken promise."""
    loop = SimLoop(seed)
    made: list[SchemaWorkload] = []

    async def main() -> None:
        made.append(SchemaWorkload(loop, faults=faults))
        await made[0].drive(steps)

    run(loop, main())
    made[0].check()
    return made[0]
