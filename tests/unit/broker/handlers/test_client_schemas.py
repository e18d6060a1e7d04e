"""Schemas of producers and consumers at one topic, through the broker's own paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.handlers.client_schemas import check_consumer, is_auto_consume, producer_version
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.schemas.schema_store import NO_VERSION, SchemaStore
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Put
from magnetar.common.metadata.values import Namespace, SchemaRecord, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import Strategy
from magnetar.common.wire.pulsar_pb2 import CommandProducer, CommandSubscribe, Schema
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore

from tests.schemas.verdicts import STRATEGIES, VerdictCase, verdict_cases

KEYS = Keys("sim")
TOPIC = TopicName.parse("orders")
NONE = Schema(name="n", schema_data=b"", type=Schema.Type.Value("None"))
AUTO = Schema(name="n", schema_data=b"", type=Schema.AutoConsume)
INT8 = Schema(name="n", schema_data=b"", type=Schema.Int8)
INT16 = Schema(name="n", schema_data=b"", type=Schema.Int16)
FIRST, SECOND = bytes(8), (1).to_bytes(8)


@dataclass
class FakeTopic:
    """The parts of a topic that its schemas depend on."""

    rules: SchemaRules = field(default_factory=SchemaRules)
    has_producers: bool = False
    storage_bytes: int = 0
    entries_in: int = 0
    consumers: list[bool] = field(default_factory=list)
    """For each consumer of the only subscription, whether it is one of AUTO_CONSUME."""
    name: TopicName = TOPIC

    @property
    def policies(self) -> object:
        return SimpleNamespace(schemas=self.rules)

    @property
    def producers(self) -> object:
        return SimpleNamespace(present=self.has_producers)

    @property
    def stats(self) -> object:
        return SimpleNamespace(entries_in=self.entries_in)

    @property
    def subscriptions(self) -> object:
        consumers = [SimpleNamespace(is_auto_consume=each) for each in self.consumers]
        return {"s": SimpleNamespace(consumers=consumers)}


@dataclass
class World:
    """A store of schemas over simulated metadata."""

    server: SimMetadataServer
    schemas: SchemaStore

    async def produce(self, topic: FakeTopic, schema: Schema | None) -> bytes:
        command = CommandProducer(topic=TOPIC.full, producer_id=1, request_id=1, schema=schema)
        return await producer_version(self.schemas, cast(Any, topic), command)

    async def consume(self, topic: FakeTopic, schema: Schema | None) -> None:
        command = CommandSubscribe(
            topic=TOPIC.full,
            subscription="s",
            subType=CommandSubscribe.SubType.Exclusive,
            consumer_id=1,
            request_id=1,
            schema=schema,
        )
        await check_consumer(self.schemas, cast(Any, topic), command)

    async def versions(self, topic: FakeTopic) -> list[int]:
        return [each.version for each in await self.schemas.history(topic.name)]

    def start_with(self, history: list[tuple[int, SchemaDefinition]]) -> None:
        """Stores versions without any check."""
        for number, each in history:
            record = SchemaRecord(
                version=number, type=each.type, data=each.data, properties=dict(each.properties)
            )
            self.server.commit([Put(KEYS.schema(TOPIC, number), encode(record))])


def simulated(body: Callable[[World], Awaitable[None]]) -> None:
    loop = SimLoop(3)

    async def main() -> None:
        server = SimMetadataServer()
        server.commit([Put(KEYS.namespace(TOPIC.namespace), encode(Namespace()))])
        store = SimMetadataStore(server, loop.rng, faults=MetadataFaults(delay_max_s=0))
        await body(World(server, SchemaStore(store, KEYS, SimClock(loop))))

    run(loop, main())


def wire(definition: SchemaDefinition) -> Schema:
    made = Schema(name="n", schema_data=definition.data, type=cast(Any, definition.type))
    for key, value in definition.properties.items():
        made.properties.add(key=key, value=value)
    return made


CASES = [case for case in verdict_cases() if case.new.type not in (SchemaType.NONE, SchemaType.AUTO_CONSUME)]
"""All but three, whose clients have no schema for a broker."""


def test_three_verdicts_are_of_clients_without_a_schema() -> None:
    assert len(CASES) == 144


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_producers_and_consumers_get_the_verdicts_of_the_table(case: VerdictCase) -> None:
    """For every strategy: what is answered, what is stored, and that nothing else changes."""

    async def letter(call: Awaitable[object], taken: Callable[[object], str], refused: str) -> str:
        try:
            return taken(await call)
        except InvalidSchema:
            return "x"
        except IncompatibleSchema:
            return refused

    found = {"put": "", "subscribe": ""}
    old = [number for number, _ in case.history]
    has_schema = bool(case.history) and case.history[-1][1].type != SchemaType.NONE

    for strategy in STRATEGIES:

        async def body(world: World, strategy: Strategy = strategy) -> None:
            world.start_with(case.history)
            topic = FakeTopic(SchemaRules(strategy), storage_bytes=1)
            call = world.consume(topic, wire(case.new))
            found["subscribe"] += await letter(call, lambda _: "y", "n" if has_schema else "m")
            assert await world.versions(topic) == old, "a consumer of a topic in use stored a schema"
            added = len(case.history).to_bytes(8)
            call_put = world.produce(topic, wire(case.new))
            verdict = await letter(call_put, lambda version: "y" if version == added else "=", "n")
            found["put"] += verdict
            expected = [*old, len(old)] if verdict == "y" else old
            assert await world.versions(topic) == expected

        simulated(body)
    assert found == {"put": case.put, "subscribe": case.subscribe}


def test_producers_of_plain_bytes_store_nothing_and_get_the_empty_version() -> None:
    async def body(world: World) -> None:
        topic = FakeTopic()
        for none in (None, NONE):
            assert await world.produce(topic, none) == NO_VERSION
        assert await world.versions(topic) == []
        assert await world.produce(topic, INT8) == FIRST
        for none in (None, NONE):
            assert await world.produce(topic, none) == NO_VERSION

    simulated(body)


def test_producers_without_a_schema_are_refused_where_schemas_are_enforced() -> None:
    async def body(world: World) -> None:
        topic = FakeTopic(SchemaRules(enforced=True))
        assert await world.produce(topic, None) == NO_VERSION, "the topic has no schema"
        assert await world.produce(topic, INT8) == FIRST
        for none in (None, NONE):
            with pytest.raises(IncompatibleSchema, match="schemaValidationEnforced"):
                await world.produce(topic, none)
        assert await world.produce(topic, INT8) == FIRST
        await world.schemas.retire(TOPIC)
        assert await world.produce(topic, None) == NO_VERSION, "its schema is deleted"

    simulated(body)


def test_the_first_consumer_of_an_unused_topic_brings_its_schema() -> None:
    async def body(world: World) -> None:
        await world.consume(FakeTopic(consumers=[True, True]), INT8)
        assert await world.versions(FakeTopic()) == [0]
        await world.consume(FakeTopic(consumers=[False]), INT8)
        with pytest.raises(IncompatibleSchema):
            await world.consume(FakeTopic(), INT16)
        assert await world.versions(FakeTopic()) == [0]

    simulated(body)


def test_the_first_consumer_may_not_bring_a_schema_without_auto_update() -> None:
    async def body(world: World) -> None:
        fixed = FakeTopic(SchemaRules(may_update=False))
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await world.consume(fixed, INT8)
        await world.schemas.put(TOPIC, INT8, SchemaRules())
        await world.consume(fixed, INT8)

    simulated(body)


@pytest.mark.parametrize(
    "topic",
    [
        FakeTopic(has_producers=True),
        FakeTopic(storage_bytes=1),
        FakeTopic(consumers=[True, False]),
        FakeTopic(entries_in=1, name=TopicName.parse("non-persistent://public/default/orders")),
    ],
    ids=["producers", "data", "consumers", "published"],
)
def test_a_consumer_does_not_bring_a_schema_to_a_topic_in_use(topic: FakeTopic) -> None:
    async def body(world: World) -> None:
        with pytest.raises(IncompatibleSchema, match="in use and has no schema"):
            await world.consume(topic, INT8)
        assert await world.versions(topic) == []
        topic.rules = SchemaRules(Strategy.ALWAYS_COMPATIBLE)
        await world.consume(topic, INT8)
        assert await world.versions(topic) == []

    simulated(body)


def test_published_entries_of_a_persistent_topic_do_not_count_once_they_are_trimmed() -> None:
    async def body(world: World) -> None:
        await world.consume(FakeTopic(entries_in=5), INT8)
        assert await world.versions(FakeTopic()) == [0]

    simulated(body)


def test_consumers_that_take_the_schema_of_each_message_are_not_checked() -> None:
    async def body(world: World) -> None:
        await world.schemas.put(TOPIC, INT8, SchemaRules())
        never = FakeTopic(SchemaRules(Strategy.ALWAYS_INCOMPATIBLE), storage_bytes=1)
        for schema in (None, NONE, AUTO):
            await world.consume(never, schema)
        with pytest.raises(InvalidSchema, match="AUTO_CONSUME"):
            await world.produce(FakeTopic(), AUTO)

    simulated(body)


def test_only_auto_consume_is_auto_consume() -> None:
    def command(schema: Schema | None) -> CommandSubscribe:
        return CommandSubscribe(schema=schema)

    assert [is_auto_consume(command(each)) for each in (AUTO, NONE, None, INT8)] == [
        True,
        False,
        False,
        False,
    ]
