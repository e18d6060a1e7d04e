"""Growth and deletion of partitioned topics whose partitions belong to several brokers."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Ask, on_parts
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH
from magnetar.broker.metrics.views import TopicView
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import TopicBusy
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_OWN_API: Final = "/admin/magnetar/v1"


async def subscribe_alike(call: Call, topic: TopicName, new: range) -> None:
    """Creates the first partition's durable subscriptions on new partitions, through their owners."""
    broker = call.broker

    async def of_first(name: TopicName) -> dict[str, Any]:
        first = await broker.registry.get(name, create=False, claim=True)
        return {
            "subscriptions": {
                name: {"isDurable": each.cursor.durable, "subscriptionProperties": dict(each.properties)}
                for name, each in first.subscriptions.items()
                if isinstance(each, Subscription)
            }
        }

    found = await on_parts(call, [topic.partition(0)], of_first, Ask("GET", "stats"))
    for stats in found.done.values():
        for name, each in stats["subscriptions"].items():
            if each["isDurable"] and name != COMPACTION_SUBSCRIPTION:
                parts = [topic.partition(index) for index in new]
                await _subscribe(call, parts, name, each["subscriptionProperties"])


async def _subscribe(call: Call, parts: list[TopicName], name: str, properties: dict[str, str]) -> None:
    async def here(part: TopicName) -> None:
        topic = await call.broker.registry.get(part, create=False, claim=True)
        assert isinstance(topic, PersistentTopic), "only these have durable subscriptions"
        await topic.subscriptions.create_at(name, topic.ledger.first_position(), properties)

    body = {"ledgerId": -1, "entryId": -1, "properties": properties}
    verb = f"subscription/{quote(quote(name, safe=''), safe='')}"
    await on_parts(call, parts, here, Ask("PUT", verb, body, answers={409: None}))


async def delete_elsewhere(call: Call) -> None:
    """Deletes the partitions that other brokers own, unless any partition has clients and `force` is not set.

    A client that connects meanwhile keeps its partition, and then this broker deletes nothing. Raises
    TopicBusy or Refused (412), and as `on_parts`.
    """
    broker, topic, force = call.broker, call.topic, call.flag("force")
    names = [topic.partition(index) for index in range(await broker.partitions(topic))]

    async def clients_here(name: TopicName) -> dict[str, int]:
        return _clients(broker.topics.get(name.full))

    if not force:
        found = await on_parts(call, names, clients_here, Ask("GET", "clients", root=_OWN_API))
        busy = [name for name, each in found.done.items() if each["producers"] or each["consumers"]]
        if busy:
            raise TopicBusy(f"topic {busy[0]} has active producers/subscriptions; disconnect, or force")

    async def later(name: TopicName) -> None:
        """Does nothing: this broker deletes its partitions together with the metadata of the topic."""

    await on_parts(call, names, later, Ask("DELETE"))


async def _of_topic(call: Call) -> web.Response:
    """Counts the clients of one topic without loading it."""
    return answer(_clients(call.broker.topics.get(call.topic.full)))


def _clients(topic: TopicView | None) -> dict[str, int]:
    if topic is None:
        return {"producers": 0, "consumers": 0}
    consumers = sum(each.consumer_count for each in topic.subscriptions.values())
    return {"producers": topic.producer_count, "consumers": consumers}


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/clients",
        handler=_of_topic,
        summary="Count the producers and consumers of a topic; 0 when it is not loaded.",
        answer="TopicClients",
        errors=TOPIC_ERRORS,
        at_owner=True,
        operation=Operation.TOPIC_LOOKUP,
    )
]
