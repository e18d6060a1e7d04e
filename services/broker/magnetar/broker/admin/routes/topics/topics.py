"""Routes that list, create, unload, terminate and delete topics."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, bounded, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.bundles import bundle_in, bundle_range
from magnetar.broker.admin.objects.partitions import Ask, on_parts, on_topic, same
from magnetar.broker.admin.objects.topics import (
    loaded,
    owned_topic_routes,
    partitions_of,
    persistent,
    require_namespace,
    require_topic,
    stored,
    visible_topics,
)
from magnetar.broker.handlers.name_limits import check_properties
from magnetar.broker.topics.registry.creation_guards import guards_of
from magnetar.common.errors import NotAllowed, TopicNotFound
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import DOMAINS, PERSISTENT, TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers
from magnetar.ledger.managed_ledger.topic_head import PropertiesChange


async def _list(call: Call) -> web.Response:
    namespace = call.namespace
    bundle = call.request.query.get("bundle")
    within = None if bundle is None else bundle_range(bundle)
    await require_namespace(call.broker, namespace, "Namespace does not exist")
    names = await visible_topics(
        call.broker, namespace, call.domain == PERSISTENT, system_too=call.flag("includeSystemTopic")
    )
    if within is not None:
        names = [name for name in names if TopicName.parse(name).hash in within]
    return answer(names)


async def _list_in_bundle(call: Call) -> web.Response:
    """Lists a bundle's non-persistent topics that are loaded: others do not exist."""
    namespace = call.namespace
    await require_namespace(call.broker, namespace, "Namespace does not exist")
    bundle = bundle_in(call, await call.broker.policy_writer.namespace(namespace))
    names = await visible_topics(call.broker, namespace, False, system_too=True)
    return answer([name for name in names if TopicName.parse(name).hash in bundle])


async def _create(call: Call) -> web.Response:
    topic, broker = call.topic, call.broker
    properties = bounded("topic", await call.text_map())
    await require_namespace(broker, topic.namespace, "Namespace not found")
    await broker.registry.check_allowed(topic)
    if topic.partition_index >= 0:
        partitions = await broker.partitions(topic.base)
        if topic.partition_index >= partitions:
            raise Refused(
                412,
                f'Can\'t create topic {topic.local_name} with "-partition-" followed by numeric value if '
                f"there isn't a partitioned topic {topic.base_local_name} created.",
            )
    if await broker.partitions(topic) or await broker.registry.exists(topic):
        raise Refused(409, "This topic already exists")
    broker.registry.exclusions.check_not_deleted(topic)
    if not topic.persistent:
        await broker.registry.get(topic, create=True, claim=True)
        return done()
    try:
        await broker.registry.check_room(topic)
    except NotAllowed as error:
        raise Refused(412, f"Exceed maximum number of topics in namespace. {error}") from error
    ledgers = broker.ledgers
    is_partition = topic.partition_index >= 0
    guards = partial(guards_of, ledgers.metadata, ledgers.keys, topic, partition=is_partition)
    with broker.registry.exclusions.creating(topic):
        if await broker.registry.exists(topic):  # a concurrent request created it
            raise Refused(409, "This topic already exists")
        await create_managed_ledgers(ledgers, [topic.full], properties=properties, guards=guards)
    return done()


async def _delete(call: Call) -> web.Response:
    topic = call.topic
    if await partitions_of(call):
        raise Refused(
            409,
            f"{topic} is a partitioned topic, instead of calling delete topic, please call "
            "delete-partitioned-topic.",
        )
    try:
        await call.broker.registry.delete(topic, force=call.flag("force"))
    except TopicNotFound as error:
        raise TopicNotFound(f"Topic {topic} not found") from error
    return done()


async def _unload(call: Call) -> web.Response:
    topic, broker = call.topic, call.broker
    await require_namespace(broker, topic.namespace, "Namespace not found")
    count = await require_topic(broker, topic, may_be_created=False)
    names = [topic.partition(index) for index in range(count)] or [topic]
    await on_parts(call, names, broker.registry.unload, same(call))
    return done()


async def _terminate(call: Call) -> web.Response:
    if await partitions_of(call):
        raise Refused(405, "Termination of a partitioned topic is not allowed")
    topic = await loaded(call)
    if not topic.name.persistent:
        raise Refused(406, "Need to provide a persistent topic name")
    return answer(message_id(await topic.terminate()))


async def _terminate_partitions(call: Call) -> web.Response:
    if not await partitions_of(call):
        await loaded(call)
        raise Refused(405, "Termination of a topic that is not partitioned: use terminate")

    async def terminate(name: TopicName) -> dict[str, int]:
        part = await call.broker.registry.get(name, create=True, claim=True)
        return message_id(await part.terminate())

    if call.broker.cluster is not None and call.topic.persistent:
        await call.broker.partitioned.create_missing(call.topic)
    found = (await on_topic(call, terminate, Ask("POST", "terminate"))).done
    return answer({str(name.partition_index): last for name, last in found.items()})


async def _properties(call: Call) -> web.Response:
    if await partitions_of(call):
        found = await call.broker.partitioned.get(call.topic)
        return answer({} if found is None else dict(found.properties))
    return answer(dict(stored(await loaded(call), "Properties").ledger.properties))


async def _put_properties(call: Call) -> web.Response:
    given = await call.text_map()

    def change(properties: dict[str, str]) -> dict[str, str]:
        properties.update(given)
        check_properties("topic", properties)
        return properties

    try:
        await _change_properties(call, change)
    except NotAllowed as error:
        raise Refused(412, str(error)) from error
    return done()


async def _delete_property(call: Call) -> web.Response:
    key = call.request.query.get("key", "")
    await _change_properties(
        call, lambda properties: {name: text for name, text in properties.items() if name != key}
    )
    return done()


async def _change_properties(call: Call, change: PropertiesChange) -> None:
    if await partitions_of(call):
        await call.broker.partitioned.change_properties(call.topic, change)
    else:
        await stored(await loaded(call), "Changing properties").ledger.change_properties(change)


async def _last_message_id(call: Call) -> web.Response:
    topic = await loaded(call)
    position, batch_index = await topic.last_message_id()
    batch = {"outstandingAcksInSameBatch": 0, "originalBatchSize": 0} if batch_index >= 0 else {}
    return answer({**message_id(position, batch_index, topic.name.partition_index), **batch})


async def _message_id_at(call: Call) -> web.Response:
    """Returns the id of the first message at or after a time, or the next position when there is none."""
    topic = await persistent(call, "Get message ID by timestamp")
    before = await topic.ledger.find_before_publish_time(call.number("timestamp"))
    found = topic.ledger.next_stored(before)
    if found is None:
        last = topic.ledger.last_confirmed
        found = Position(last.ledger_id, last.entry_id + 1) if last.ledger_id >= 0 else last
    return answer(message_id(found, partition=topic.name.partition_index))


def message_id(position: Position, batch_index: int = -1, partition: int = -1) -> dict[str, int]:
    """Returns a message id as JSON."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": batch_index,
        "batchSize": 0,
    }


_NOT_HERE: Final = {405: "the topic is partitioned or not persistent"}
_NOT_VOLATILE: Final = {405: "the topic is not persistent", 412: "the properties are too large in total"}

_CHANGED: Final = {**_NOT_VOLATILE, 409: "concurrent modification"}

ROUTES: Final = [
    *(
        Route(
            object=domain,
            method="GET",
            path=f"/admin/v2/{domain}/{{tenant}}/{{namespace}}",
            handler=_list,
            summary="List the topics of a namespace; each partition is listed by its own name.",
            query=("bundle:String", "includeSystemTopic:boolean=false"),
            answer="List<String>",
            errors={404: "Namespace does not exist", 412: "invalid name"},
            operation=Operation.NAMESPACE_USE,
        )
        for domain in DOMAINS
    ),
    *owned_topic_routes(
        "PUT",
        "",
        _create,
        "Create a non-partitioned topic.",
        body="Map<String, String>",
        status=204,
        errors={
            405: "the name is reserved",
            409: "This topic already exists",
            412: "invalid name; the partition does not exist; the namespace has the maximum number of topics",
        },
        operation=Operation.NAMESPACE_ADMIN,
    ),
    *owned_topic_routes(
        "DELETE",
        "",
        _delete,
        "Delete a topic with its subscriptions and messages.",
        query=("force:boolean=false",),
        status=204,
        errors={409: "the topic is partitioned", 412: "producers or consumers are connected"},
        operation=Operation.NAMESPACE_ADMIN,
    ),
    *owned_topic_routes(
        "PUT",
        "unload",
        _unload,
        "Unload a topic; the next access loads it again.",
        status=204,
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "POST",
        "terminate",
        _terminate,
        "Terminate a topic and return the id of its last message.",
        answer="MessageId",
        errors={405: "the topic is partitioned", 406: "the topic is not persistent"},
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "POST",
        "terminate/partitions",
        _terminate_partitions,
        "Terminate all partitions of a topic and return the id of the last message of each.",
        answer="Map<partition, MessageId>",
        errors={405: "the topic is not partitioned; the topic is not persistent"},
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "GET",
        "properties",
        _properties,
        "Get the properties of a topic.",
        answer="Map<String, String>",
        operation=Operation.TOPIC_LOOKUP,
    ),
    *owned_topic_routes(
        "PUT",
        "properties",
        _put_properties,
        "Set properties of a topic; other properties stay as they are.",
        body="Map<String, String>",
        status=204,
        errors=_CHANGED,
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "DELETE",
        "properties",
        _delete_property,
        "Remove a property of a topic.",
        query=("key:String",),
        status=204,
        errors=_CHANGED,
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "GET",
        "lastMessageId",
        _last_message_id,
        "Get the id of the last message.",
        answer="MessageId",
        errors=_NOT_HERE,
        operation=Operation.TOPIC_CONSUME,
    ),
    *owned_topic_routes(
        "GET",
        "messageid/{timestamp}",
        _message_id_at,
        "Get the id of the first message at or after a time (ms since 1970).",
        answer="MessageId",
        errors=_NOT_HERE,
        operation=Operation.TOPIC_CONSUME,
    ),
]

LAST: Final = [
    Route(
        object="non-persistent",
        method="GET",
        path="/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}",
        handler=_list_in_bundle,
        summary="List the topics of a bundle.",
        answer="List<String>",
        errors={404: "Namespace does not exist", 412: "invalid name; the bundle does not exist"},
        operation=Operation.NAMESPACE_USE,
    )
]
"""Routes tried after all others that may follow a namespace."""
