"""What clients are told of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from magnetar.common.metadata.values import PartitionedTopic, TopicHead, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)
from magnetar.discovery.config import LookupConfig

from tests.unit.discovery.front import KEYS, TOPIC, Front, config, with_front

Lookup = CommandLookupTopicResponse
Partitions = CommandPartitionedTopicMetadataResponse


def lookup(topic: str = TOPIC, request_id: int = 7, listener: str = "") -> BaseCommand:
    command = CommandLookupTopic(topic=topic, request_id=request_id)
    if listener:
        command.advertised_listener_name = listener
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=command)


def partitions(topic: str = TOPIC, request_id: int = 8) -> BaseCommand:
    command = CommandPartitionedTopicMetadata(topic=topic, request_id=request_id)
    return BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=command)


def test_lookup_of_an_owned_topic_is_answered_without_a_broker_call() -> None:
    async def body(front: Front) -> None:
        await front.own(front.b)
        client = await front.client()
        front.store.faults.unreachable = True
        answer = (await client.ask(lookup())).lookupTopicResponse
        front.store.faults.unreachable = False
        assert answer.request_id == 7
        assert answer.response == Lookup.Connect
        assert answer.authoritative
        assert answer.brokerServiceUrl == f"pulsar://127.0.0.1:{front.b.port}"
        assert not answer.HasField("brokerServiceUrlTls")
        assert not answer.proxy_through_service_url
        assert front.b.received == []

    with_front(body)


@pytest.mark.parametrize("through", [True, False])
def test_clients_are_told_to_come_through_discovery_where_it_is_configured(through: bool) -> None:
    async def body(front: Front) -> None:
        await front.own(front.a)
        answer = (await (await front.client()).ask(lookup())).lookupTopicResponse
        assert answer.proxy_through_service_url is through
        # Clients that have TLS with a load balancer before discovery name the broker by this, and need one.
        assert answer.brokerServiceUrlTls == (f"pulsar+ssl://127.0.0.1:{front.a.port}" if through else "")

    with_front(body, config(through_service_url=through))


def test_a_client_of_an_advertised_listener_is_sent_to_its_addresses() -> None:
    async def body(front: Front) -> None:
        registration = front.a.registration()
        registration.listeners["outside"].broker_url = "pulsar://gate:6650"
        registration.listeners["outside"].broker_url_tls = "pulsar+ssl://gate:6651"
        await front.register(registration)
        await front.own(front.a)
        client = await front.client()
        answer = (await client.ask(lookup(listener="outside"))).lookupTopicResponse
        assert answer.brokerServiceUrl == "pulsar://gate:6650"
        assert answer.brokerServiceUrlTls == "pulsar+ssl://gate:6651"
        refused = (await client.ask(lookup(listener="nowhere"))).lookupTopicResponse
        assert refused.response == Lookup.Failed
        assert refused.error == ServerError.ServiceNotReady
        assert "'outside'" in refused.message

    with_front(body)


def test_a_topic_of_no_namespace_is_not_found_and_a_name_that_cannot_be_is_said_so() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        missing = (await client.ask(lookup("persistent://public/nowhere/t"))).lookupTopicResponse
        assert (missing.response, missing.error) == (Lookup.Failed, ServerError.TopicNotFound)
        assert "public/nowhere" in missing.message
        wrong = (await client.ask(lookup("no-domain://public/default/t"))).lookupTopicResponse
        assert (wrong.response, wrong.error) == (Lookup.Failed, ServerError.InvalidTopicName)

    with_front(body)


def test_lookup_of_an_unowned_topic_fails_without_reachable_brokers() -> None:
    """The brokers of this test have no control address."""

    async def body(front: Front) -> None:
        answer = (await (await front.client()).ask(lookup())).lookupTopicResponse
        assert (answer.response, answer.error) == (Lookup.Failed, ServerError.ServiceNotReady)

    with_front(body)


def test_an_owner_whose_run_is_gone_is_not_named() -> None:
    async def body(front: Front) -> None:
        await front.own(front.a, run=99)
        answer = (await (await front.client()).ask(lookup())).lookupTopicResponse
        assert answer.response == Lookup.Failed

    with_front(body)


def test_without_metadata_owned_topics_are_answered_and_others_fail() -> None:
    async def body(front: Front) -> None:
        await front.own(front.a)
        client = await front.client()
        front.store.faults.unreachable = True
        found = (await client.ask(lookup())).lookupTopicResponse
        missing = (await client.ask(lookup("persistent://public/unknown/t"))).lookupTopicResponse
        unknown = (await client.ask(partitions())).partitionMetadataResponse
        front.store.faults.unreachable = False
        assert found.response == Lookup.Connect
        assert (missing.response, missing.error) == (Lookup.Failed, ServerError.MetadataError)
        assert (unknown.response, unknown.error) == (Partitions.Failed, ServerError.MetadataError)

    with_front(body)


def test_too_many_questions_at_once_are_refused_and_counted_off_again() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        client.send(partitions(request_id=1), partitions(request_id=2))
        # The broker that is asked for the first never answers; the second is refused at once.
        answer = (await client.next()).partitionMetadataResponse
        assert (answer.request_id, answer.error) == (2, ServerError.TooManyRequests)

    with_front(body, replace(config(), lookups=LookupConfig(lookups_max=1)))


def test_partitions_come_from_metadata() -> None:
    async def body(front: Front) -> None:
        topic = TopicName.parse("persistent://public/default/partitioned")
        await front.store.put(KEYS.partitioned_topic(topic), encode(PartitionedTopic(partitions=5)))
        await front.store.put(KEYS.topic_head(TopicName.parse(TOPIC)), encode(TopicHead()))
        client = await front.client()
        assert (await client.ask(partitions(topic.full))).partitionMetadataResponse.partitions == 5
        plain = (await client.ask(partitions())).partitionMetadataResponse
        assert (plain.response, plain.partitions) == (Partitions.Success, 0)
        assert front.a.received == front.b.received == []

    with_front(body)


def test_a_missing_topic_is_asked_of_a_broker_with_everything_the_client_said() -> None:
    async def body(front: Front) -> None:
        def create(command: BaseCommand) -> bytes:
            return commands.partition_metadata(command.partitionMetadata.request_id, 3)

        for broker in (front.a, front.b):
            broker.answers[BaseCommand.PARTITIONED_METADATA] = create
        client = await front.client()
        question = partitions(request_id=2**63)
        question.partitionMetadata.metadata_auto_creation_enabled = False
        answer = (await client.ask(question)).partitionMetadataResponse
        assert (answer.request_id, answer.partitions) == (2**63, 3)
        asked = (front.a.received + front.b.received)[-1].partitionMetadata
        assert asked.topic == TOPIC
        assert not asked.metadata_auto_creation_enabled

    with_front(body)


def test_a_brokers_refusal_reaches_the_client() -> None:
    async def body(front: Front) -> None:
        for broker in (front.a, front.b):
            broker.answers[BaseCommand.PARTITIONED_METADATA] = lambda command: commands.error_answer(
                command, ServerError.TopicNotFound, "no such topic"
            )
        answer = (await (await front.client()).ask(partitions())).partitionMetadataResponse
        assert (answer.request_id, answer.error) == (8, ServerError.TopicNotFound)

    with_front(body)


def test_topics_of_a_namespace_and_schemas_are_what_a_broker_answers() -> None:
    async def body(front: Front) -> None:
        for broker in (front.a, front.b):
            broker.answers[BaseCommand.GET_TOPICS_OF_NAMESPACE] = lambda command: (
                commands.topics_of_namespace(command.getTopicsOfNamespace.request_id, [TOPIC])
            )
            broker.answers[BaseCommand.GET_SCHEMA] = lambda command: commands.error_answer(
                command, ServerError.TopicNotFound, "no schema"
            )
        client = await front.client()
        listed = await client.ask(
            BaseCommand(
                type=BaseCommand.GET_TOPICS_OF_NAMESPACE,
                getTopicsOfNamespace=CommandGetTopicsOfNamespace(request_id=3, namespace="public/default"),
            )
        )
        assert listed.getTopicsOfNamespaceResponse.request_id == 3
        assert list(listed.getTopicsOfNamespaceResponse.topics) == [TOPIC]
        schema = await client.ask(
            BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=CommandGetSchema(request_id=4, topic=TOPIC))
        )
        assert schema.getSchemaResponse.request_id == 4
        assert schema.getSchemaResponse.error_code == ServerError.TopicNotFound

    with_front(body)
