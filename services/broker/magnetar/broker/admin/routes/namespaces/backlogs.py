"""Routes for the backlogs and subscriptions of all topics of a namespace or bundle."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.backlogs import skip
from magnetar.broker.admin.objects.namespace_topics import (
    all_names_within,
    bundle_here,
    for_each,
    load_all,
    names_within,
    on_bundles,
)
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import stored_subscription
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation


async def _clear(call: Call) -> web.Response:
    only = call.subscription if "subscription" in call.names else None
    names = await names_within(call, await bundle_here(call), persistent=True)

    async def clear(topic: Topic) -> bool:
        assert isinstance(topic, PersistentTopic), "only persistent topics were requested"
        wanted = [name for name in topic.subscriptions if only in (None, name)]
        for name in wanted:
            await skip(stored_subscription(topic, name), topic.ledger.last_position)
        return bool(wanted)

    async def here(some: list[TopicName]) -> bool:
        return any(await for_each(await load_all(call, some), clear))

    found = await on_bundles(call, names, here)
    if only is not None and names and not found:
        raise Refused(404, f"Subscription {only} not found on any topic of {call.namespace}")
    return done()


async def _unsubscribe(call: Call) -> web.Response:
    """Deletes a subscription from all topics; in a bundle where any topic has a connected consumer of it,
    from none. Topics without the subscription are skipped.
    """
    names = await all_names_within(call, await bundle_here(call))
    await on_bundles(call, names, partial(_unsubscribe_here, call))
    return done()


async def _unsubscribe_here(call: Call, names: list[TopicName]) -> bool:
    name = call.subscription
    topics = await load_all(call, names)
    if name == COMPACTION_SUBSCRIPTION:
        return await _remove_views(call, topics)
    having = [topic for topic in topics if name in topic.subscriptions]
    if any(topic.subscriptions[name].consumers for topic in having):
        raise Refused(412, "Subscription has active connected consumers")

    async def delete(topic: Topic) -> None:
        subscription: Any = topic.subscriptions.get(name)
        if subscription is None or await topic.subscriptions.delete_unused(subscription):
            return
        if topic.subscriptions.get(name) is subscription:
            raise Refused(412, f"Subscription has active connected consumers on {topic.name}")

    await for_each(having, delete)
    return bool(having)


async def _remove_views(call: Call, topics: list[Topic]) -> bool:
    """Deletes the compacted views of topics that have one, after runs in progress."""
    having = [
        topic
        for topic in topics
        if isinstance(topic, PersistentTopic) and topic.compaction_subscription() is not None
    ]
    await for_each(having, call.broker.compactions.remove)
    return bool(having)


_NO_SUBSCRIPTION: Final = {404: "Namespace does not exist; no topic has the subscription"}
_NO_BUNDLE: Final = {412: "Invalid bundle range; invalid name"}
_CONNECTED: Final = {412: "Subscription has active connected consumers; Invalid bundle range; invalid name"}
_BUNDLE: Final = f"{NAMESPACE_PATH}/{{bundle}}"


def _route(path: str, handler: Any, summary: str, errors: dict[int, str]) -> Route:
    return Route(
        object="namespaces",
        method="POST",
        path=path,
        handler=handler,
        summary=summary,
        status=204,
        errors={**NAMESPACE_ERRORS, **errors},
        operation=Operation.NAMESPACE_CONSUME,
    )


ROUTES: Final = [
    route
    for where, path, errors in (
        ("a namespace", NAMESPACE_PATH, {}),
        ("a bundle", _BUNDLE, _NO_BUNDLE),
    )
    for route in (
        _route(f"{path}/clearBacklog", _clear, f"Clear the backlogs of all topics of {where}.", errors),
        _route(
            f"{path}/clearBacklog/{{subscription}}",
            _clear,
            f"Clear the backlog of a subscription on all topics of {where}.",
            {**errors, **_NO_SUBSCRIPTION},
        ),
        _route(
            f"{path}/unsubscribe/{{subscription}}",
            _unsubscribe,
            f"Delete a subscription from all topics of {where}.",
            _CONNECTED,
        ),
    )
]
