"""Namespaces with something of everything in them, and what metadata still has of one."""

from __future__ import annotations

from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.broker.tenancy import Tenancy
from magnetar.common.metadata.keys import encode_name
from magnetar.common.metadata.store import ABSENT
from magnetar.common.metadata.values import Namespace, TopicHead, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger import finish_intents

from tests.simulation.power_loss import KEYS, World
from tests.unit.broker.topics.world import ListeningPeer, Topics, subscribed

DEMO = NamespaceName("acme", "demo")
OTHER = NamespaceName("acme", "other")
SCHEMA = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)


def tenancy_of(made: Topics) -> Tenancy:
    return Tenancy(made.process.metadata, KEYS, made.process.clock)


async def make(made: Topics, name: NamespaceName = DEMO) -> None:
    tenancy = tenancy_of(made)
    if await tenancy.tenant(name.tenant) is None:
        await tenancy.create_tenant(name.tenant, ["admin"], ["sim"])
    await tenancy.create_namespace(name, Namespace(bundle_count=4))


async def furnish(made: Topics, name: NamespaceName = DEMO) -> None:
    """Topics of each kind with a subscription, policies and schemas; one is of the system."""
    await make(made, name)
    for local in ("t", "p-partition-0"):
        topic = TopicName.parse(f"persistent://{name}/{local}")
        if topic.partition_index >= 0:
            await made.partitioned.create_partitioned(topic.base, 2, {})
        await subscribed(await made.load(topic.full), ListeningPeer())
    await made.load(f"non-persistent://{name}/n")
    await made.schemas.put(TopicName.parse(f"{name}/t"), SCHEMA, DEFAULT_RULES)
    writer = PolicyWriter(made.process.metadata, KEYS)
    await writer.change_topic(TopicName.parse(f"{name}/t"), lambda own: setattr(own, "message_ttl_s", 5))
    system = KEYS.topic_head(TopicName.parse(f"persistent://{name}/__change_events"))
    await made.process.metadata.put(system, encode(TopicHead(creation_id=99)), ABSENT)


def of_namespace(world: World, name: NamespaceName) -> list[str]:
    """Every key that has to do with a namespace or its topics, ledgers among them."""
    part = f"/{name.tenant}/{name.namespace}"
    return [
        key
        for key, value in world.metadata.dump().items()
        if f"{part}/" in f"{key}/" or f"/{name}/".encode() in value or encode_name(str(name)) in key
    ]


def intents(world: World) -> list[str]:
    return [key for key in world.metadata.dump() if key.startswith(KEYS.intents_prefix)]


def assert_nothing_left(world: World, name: NamespaceName = DEMO) -> None:
    assert of_namespace(world, name) == []
    assert intents(world) == []
    heads = [item for key, item in world.metadata.dump().items() if key.startswith(KEYS.topic_heads_prefix())]
    living = {decode(TopicHead, value).creation_id for value in heads}
    closed = [key for key in world.metadata.dump() if key.startswith(f"{KEYS.root}topics/")]
    assert {KEYS.topic_ledger_ids_of(key)[0] for key in closed} <= living


async def recovered(made: Topics) -> None:
    """What a broker does at its start and once a minute."""
    await made.deletions.finish()
    await finish_intents(made.ledgers)
