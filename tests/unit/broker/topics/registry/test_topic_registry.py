"""Topics are deleted with everything that belongs to them, and only when nobody needs them."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.config import TopicConfig
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import LOADS_BEFORE_CLOSE_S, TopicRegistry
from magnetar.broker.topics.subscribe import persistent_subscriptions
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import (
    ConsumerAssignFailed,
    LogFull,
    NamespaceNotEmpty,
    NotAllowed,
    ServiceNotReady,
    TopicBusy,
    TopicNotFound,
)
from magnetar.common.metadata.store import ABSENT
from magnetar.common.metadata.values import Namespace, Policies, TopicHead, encode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger, Done
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends, subscribed
from tests.unit.ledger.managed_ledger.harness import until

NAME = TopicName.parse("orders")
VOLATILE = TopicName.parse("non-persistent://public/default/orders")


def test_a_deleted_topic_leaves_nothing_and_the_next_one_is_new() -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        topic = await made.load("orders")
        await made.schemas.put(
            NAME, pb.Schema(name="s", schema_data=b"", type=pb.Schema.String), DEFAULT_RULES
        )
        await topic.subscriptions.create("s")
        peer = ListeningPeer()
        producer = await producer_of(topic, peer)
        topic.publishing.publish(producer, sends(b"entry"))
        await until(lambda: peer.types == ["SEND_RECEIPT"])
        topic.producers.remove(producer)
        await made.registry.delete(NAME, force=False)
        assert made.keys() == nothing
        assert not made.registry.loaded
        again = await made.load("orders")
        assert again is not topic
        assert not again.subscriptions
        assert again.storage_entries == 0
        assert await made.schemas.get(NAME) is None

    in_a_broker(scenario)


def test_a_topic_that_is_not_loaded_is_deleted_without_loading_it() -> None:
    async def scenario(made: Topics) -> None:
        nothing = made.keys()
        topic = await made.load("orders")
        await topic.close()
        made.registry._forget(topic)
        await made.registry.delete(NAME, force=False)
        assert made.keys() == nothing
        assert not made.registry.loaded

    in_a_broker(scenario)


@pytest.mark.parametrize("name", [NAME, VOLATILE], ids=str)
def test_a_topic_in_use_is_deleted_only_by_force_and_its_clients_are_told(name: TopicName) -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load(name.full)
        producing, consuming = ListeningPeer(), ListeningPeer()
        producer = await producer_of(topic, producing)
        with pytest.raises(TopicBusy):
            await made.registry.delete(name, force=False)
        topic.producers.remove(producer)
        await subscribed(topic, consuming)
        with pytest.raises(TopicBusy):
            await made.registry.delete(name, force=False)
        assert await made.load(name.full) is topic, "a refusal changes nothing"
        await producer_of(topic, producing)
        await made.registry.delete(name, force=True)
        assert producing.types == ["CLOSE_PRODUCER"]
        assert consuming.types == ["CLOSE_CONSUMER"]
        assert producing.connected
        assert not await made.registry.exists(name)

    in_a_broker(scenario)


def test_a_subscription_without_consumers_forbids_only_the_deletion_of_unused_topics() -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        await topic.subscriptions.create("s")
        with pytest.raises(TopicBusy):
            await made.registry.delete(NAME, force=False, unless_subscribed=True)
        await made.registry.delete(NAME, force=False)
        assert not await made.registry.exists(NAME)

    in_a_broker(scenario)


def test_who_asks_while_a_topic_is_deleted_is_told_to_come_back() -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        deletion = asyncio.create_task(made.registry.delete(NAME, force=False))
        answers = []
        while not deletion.done():
            await asyncio.sleep(0)
            if deletion.done():
                break
            with pytest.raises(ServiceNotReady) as refused:
                await made.load("orders")
            answers.append(refused.value)
            with pytest.raises(ServiceNotReady):
                await made.registry.delete(NAME, force=True)
            await asyncio.sleep(0.001)
        await deletion
        assert answers
        assert await made.load("orders") is not topic

    in_a_broker(scenario)


@pytest.mark.parametrize("name", [NAME, VOLATILE], ids=str)
def test_who_may_create_a_topic_gets_it_in_the_moment_in_which_another_asked_in_vain(
    name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's load has ended, and nobody was told yet: it is not to be waited for again and again."""

    async def scenario(made: Topics) -> None:
        missing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def not_there(_: TopicName) -> None:
            await missing
            raise TopicNotFound("it is not there")

        with monkeypatch.context() as patched:
            patched.setattr(made.registry, "check_allowed", not_there)
            in_vain = asyncio.create_task(made.registry.get(name, create=False))
            while name.full not in made.registry._loading:  # noqa: ASYNC110 -- a turn of the loop is meant
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            missing.set_result(None)
            await asyncio.sleep(0)
        assert made.registry._loading[name.full].task.done(), "the moment that is meant"
        assert (await made.registry.get(name, create=True)).name == name
        with pytest.raises(TopicNotFound):
            await in_vain
        assert not made.registry._loading

    in_a_broker(scenario)


def test_a_client_that_was_let_in_just_before_is_not_left_on_a_deleted_topic() -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        deletion = asyncio.create_task(made.registry.delete(NAME, force=False))
        await asyncio.sleep(0)
        with pytest.raises(ServiceNotReady):
            await producer_of(topic, ListeningPeer())
        with pytest.raises(ServiceNotReady):
            await subscribed(topic, ListeningPeer())
        await deletion

    in_a_broker(scenario)


def test_a_topic_being_loaded_is_deleted_after_that() -> None:
    async def scenario(made: Topics) -> None:
        loading = asyncio.create_task(made.load("orders"))
        await asyncio.sleep(0)
        await made.registry.delete(NAME, force=False)
        await asyncio.wait([loading])
        assert not await made.registry.exists(NAME)
        assert not made.registry.loaded

    in_a_broker(scenario)


def test_what_does_not_exist_cannot_be_deleted() -> None:
    async def scenario(made: Topics) -> None:
        for name in (NAME, VOLATILE):
            with pytest.raises(TopicNotFound):
                await made.registry.delete(name, force=True)

    in_a_broker(scenario)


def test_a_topic_whose_storage_does_not_answer_is_deleted_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(self: PersistentTopic) -> None:
        await asyncio.Event().wait()

    async def scenario(made: Topics) -> None:
        await made.load("orders")
        with monkeypatch.context() as patch:
            patch.setattr(PersistentTopic, "close", never)
            await made.registry.delete(NAME, force=False)
        assert not await made.registry.exists(NAME)
        assert not made.registry.loaded

    in_a_broker(scenario)


def test_a_domain_that_is_switched_off_has_no_topics() -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders")
        with pytest.raises(NotAllowed):
            await made.load(VOLATILE.full)

    in_a_broker(scenario, BrokerConfig(topics=TopicConfig(non_persistent_enabled=False)))


def test_a_durable_subscription_is_not_made_of_the_reader_of_its_name_that_just_left() -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        reader, consumer = await subscribed(topic, ListeningPeer(), durable=False)
        coming = asyncio.create_task(subscribed(topic, ListeningPeer()))
        topic.remove_consumer(reader, consumer)
        subscription, _ = await coming
        await asyncio.sleep(1)
        assert subscription.cursor.durable
        await made.registry.unload(NAME)
        assert list((await made.load("orders")).subscriptions) == ["s"]

    in_a_broker(scenario)


def test_policies_that_cannot_be_read_keep_no_other_topic_from_its_own() -> None:
    async def scenario(made: Topics) -> None:
        broken, other = await made.load("broken"), await made.load("orders")
        writer = PolicyWriter(made.process.metadata, KEYS)
        await made.process.metadata.put(KEYS.topic_policies(broken.name), b"\xff", ABSENT)

        def expire(policies: Policies) -> None:
            policies.message_ttl_s = 7

        await writer.change_topic(NAME, expire)
        made.registry.policies_changed(None, broken.name)
        await asyncio.sleep(1)
        made.registry.policies_changed(None, NAME)
        await asyncio.sleep(1)
        assert other.policies.message_ttl_s == 7

    in_a_broker(scenario)


@pytest.mark.parametrize("by_client", [True, False])
def test_who_subscribes_after_a_deletion_that_storage_refused_has_a_subscription_that_lasts(
    monkeypatch: pytest.MonkeyPatch, by_client: bool
) -> None:
    def refusing(self: CursorLedger, done: Done | None = None) -> None:
        if done is not None:
            asyncio.get_running_loop().call_soon(done, LogFull("the disk is full"))

    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        subscription, consumer = await subscribed(topic, ListeningPeer())
        if not by_client:
            topic.remove_consumer(subscription, consumer)
        with monkeypatch.context() as patch:
            patch.setattr(CursorLedger, "flush", refusing)
            unsubscribing = topic.subscriptions.unsubscribe(subscription, consumer, force=False)
            deleting = topic.subscriptions.delete_unused(subscription)
            called, other = (unsubscribing, deleting) if by_client else (deleting, unsubscribing)
            other.close()
            with pytest.raises(LogFull):
                await called
        await subscribed(topic, ListeningPeer())
        await made.registry.unload(NAME)
        assert list((await made.load("orders")).subscriptions) == ["s"]

    in_a_broker(scenario)


@pytest.mark.parametrize("name", ["persistent://public/used/t", "non-persistent://public/used/t"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 20, 1_000])
def test_no_topic_is_left_without_its_namespace(name: str, steps: int) -> None:
    async def scenario(made: Topics) -> None:
        metadata, namespace = made.process.metadata, TopicName.parse(name).namespace
        tenancy = Tenancy(metadata, KEYS, made.process.clock)
        await tenancy.create_namespace(namespace, Namespace(bundle_count=4))

        loading = asyncio.create_task(made.load(name))
        for _ in range(steps):
            await asyncio.sleep(0)
        deletion = asyncio.create_task(made.deletions.delete_namespace(namespace))
        for _ in range(steps):
            await asyncio.sleep(0)
        late = asyncio.create_task(made.load(name + "2"))
        results = await asyncio.gather(loading, deletion, late, return_exceptions=True)
        if await metadata.get(KEYS.namespace(namespace)) is None:
            assert isinstance(results[0], ServiceNotReady | TopicNotFound)
            assert isinstance(results[2], ServiceNotReady | TopicNotFound)
            assert not made.registry.loaded
            assert not (await metadata.children(KEYS.topic_heads_prefix("persistent", namespace))).items
        else:
            assert isinstance(results[1], NamespaceNotEmpty)
            assert not isinstance(results[0], Exception)

    in_a_broker(scenario)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", [NAME, VOLATILE], ids=str)
def test_a_consumer_that_is_refused_leaves_no_subscription(name: TopicName, durable: bool) -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load(name.full)
        sticky = ConsumerOptions(1, "c", 0, {}, None, sticky=True)
        request = SubscribeRequest(
            "s",
            pb.CommandSubscribe.Key_Shared,
            durable,
            True,
            None,
            0,
            {},
            sticky,
            ListeningPeer(),
            sends_entry_metadata=False,
        )
        with pytest.raises(ConsumerAssignFailed):
            await topic.subscriptions.subscribe(request)
        assert not topic.subscriptions
        if isinstance(topic, PersistentTopic):
            assert not topic.ledger.cursors

    in_a_broker(scenario)


def test_a_subscription_that_goes_while_it_seeks_within_a_batch_is_no_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("orders")
        assert isinstance(topic, PersistentTopic)
        await topic.subscriptions.create("s")
        subscription = topic.subscriptions["s"]

        async def messages_of(ledger: ManagedLedger, position: Position, read_bytes_max: int) -> int:
            await topic.subscriptions.delete_unused(subscription)
            return 3

        monkeypatch.setattr(persistent_subscriptions, "messages_of", messages_of)
        await topic.subscriptions.seek(subscription, EARLIEST, [0b110])
        assert not topic.subscriptions

    in_a_broker(scenario)


def test_topics_of_the_system_are_listed_only_when_asked_for() -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders")
        system = TopicName.parse("persistent://public/default/__change_events")
        await made.process.metadata.put(KEYS.topic_head(system), encode(TopicHead(creation_id=99)))
        namespace = system.namespace
        assert await made.registry.list(namespace, persistent=True) == [TopicName.parse("orders").full]
        every = await made.registry.list(namespace, persistent=True, system_too=True)
        assert every == [system.full, TopicName.parse("orders").full]
        with pytest.raises(NotAllowed):
            await made.load(system.full)

    in_a_broker(scenario)


def test_a_load_that_does_not_end_keeps_no_broker_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(self: TopicRegistry, name: TopicName, create: bool) -> Topic:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    async def scenario(made: Topics) -> None:
        await made.load("orders")
        with monkeypatch.context() as patch:
            patch.setattr(TopicRegistry, "_load", hang)
            loading = asyncio.create_task(made.load("stuck"))
            await asyncio.sleep(1)
            await asyncio.wait_for(made.registry.close(), 2 * LOADS_BEFORE_CLOSE_S)
        with pytest.raises(ServiceNotReady):
            await loading
        assert not made.registry.loaded

    in_a_broker(scenario)


@pytest.mark.parametrize("kept", [False, True])
def test_grants_stay_when_a_topic_is_deleted_for_inactivity_and_other_policies_go(kept: bool) -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders")
        writer = PolicyWriter(made.process.metadata, KEYS)

        def edit(policies: Policies) -> None:
            policies.message_ttl_s = 9
            policies.permissions["alice"].names[:] = ["consume"]

        await writer.change_topic(NAME, edit)
        await made.registry.delete(NAME, force=False, unless_subscribed=True, keep_grants=kept)
        left = await writer.topic(NAME)
        assert {role: list(each.names) for role, each in left.permissions.items()} == (
            {"alice": ["consume"]} if kept else {}
        )
        assert not left.HasField("message_ttl_s")

    in_a_broker(scenario)
