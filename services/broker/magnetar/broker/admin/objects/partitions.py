"""Operations on all partitions of a topic, each performed by the broker that owns it.

Partitions of this broker are processed one after the other, with turns for messages in between; the owners of
the others are called concurrently. All partitions are tried even if some fail. Missing partitions are
skipped. When some failed, the response is the first failure, with the names of the failed partitions and the
number of successful ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused, status_of
from magnetar.broker.admin.edge.owners import AUTHORITATIVE, topic_elsewhere
from magnetar.broker.admin.edge.peers import NOTHING, PEERS
from magnetar.broker.admin.objects.topics import NOT_CREATED, partitions_of
from magnetar.common.errors import MagnetarError, ServiceNotReady, TopicNotFound
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName

TRIES_MAX: Final = 3
"""Attempts to reach the owner of a partition while it moves between brokers."""

AGAIN_AFTER_S: Final = 0.2
"""Delay before an owner is looked up again; this broker's view of owners lags slightly."""

_NAMED_MAX: Final = 5
"""Partitions that an error message names."""

_TOPIC_SEGMENTS: Final = 6
"""Segments of the path /admin/v2/{domain}/{tenant}/{namespace}/{topic}."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the owner of a partition: a verb after the topic in the path, with its query."""

    method: str
    verb: str = ""
    """Percent-encoded."""
    body: Any = NOTHING
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Results for refusals that count as success, by status."""
    root: str = "/admin/v2"


def same(call: Call, body: Any = NOTHING) -> Ask:
    """Returns the request that repeats the call for a partition, with its body."""
    verb = "/".join(call.request.rel_url.raw_path.strip("/").split("/")[_TOPIC_SEGMENTS:])
    return Ask(call.request.method, verb, body)


@dataclass(slots=True)
class Parts:
    """The results of a call on each partition."""

    done: dict[TopicName, Any] = field(default_factory=dict)
    """Results, in the order of partitions."""
    missing: dict[TopicName, Exception] = field(default_factory=dict)
    """Partitions that do not exist, or lack the object of the call."""


async def on_topic(call: Call, here: Callable[[TopicName], Awaitable[Any]], ask: Ask) -> Parts:
    """Calls `here` for the call's topic, or for each of its partitions as `on_parts` does.

    Raises what `here` raises for a topic without partitions; NamespaceNotFound.
    """
    count = await partitions_of(call)
    if not count:
        return Parts({call.topic: await here(call.topic)})
    return await on_parts(call, [call.topic.partition(index) for index in range(count)], here, ask)


async def on_parts(
    call: Call, names: Iterable[TopicName], here: Callable[[TopicName], Awaitable[Any]], ask: Ask
) -> Parts:
    """Calls `here` for the topics that this broker owns, and sends `ask` to the owners of the others.

    Both return the same for a partition: JSON values, if other brokers are asked. Once all were tried, raises
    the first failure other than 'not found' (404).
    """
    wanted = list(names)
    elsewhere: list[TopicName] = []
    results: dict[TopicName, Any] = {}
    others: dict[TopicName, asyncio.Task[Any]] = {}
    if call.broker.cluster is not None:
        elsewhere = [name for name in wanted if call.broker.cluster.ownership.table.of_topic(name) is None]
        others = {name: asyncio.create_task(attempt(_anywhere(call, name, here, ask))) for name in elsewhere}
    try:
        for name in wanted:
            if name not in others:
                results[name] = await attempt(_anywhere(call, name, here, ask))
                await asyncio.sleep(0)
        for name, task in others.items():
            results[name] = await task
    finally:
        for task in others.values():
            task.cancel()
    return _sorted_out({name: results[name] for name in wanted})


async def attempt(work: Awaitable[T]) -> T | MagnetarError | Refused:
    """Returns the result of `work`, or its error."""
    try:
        return await work
    except (MagnetarError, Refused) as error:
        return error


async def _anywhere(
    call: Call, name: TopicName, here: Callable[[TopicName], Awaitable[Any]], ask: Ask
) -> Any:
    cluster = call.broker.cluster
    if cluster is None:
        return await here(name)

    async def act(owner: BrokerRegistration | None) -> Any:
        return await (here(name) if owner is None else ask_owner(call, owner, name, ask))

    return await by_owner(partial(topic_elsewhere, cluster, name), act)


async def by_owner(
    find: Callable[[], Awaitable[BrokerRegistration | None]],
    act: Callable[[BrokerRegistration | None], Awaitable[T]],
) -> T:
    """Calls `act` with the owner, and again with the next owner when the first one lost ownership meanwhile.

    `act` gets None for this broker. Raises what `find` and `act` raise.
    """
    asked: tuple[str, int] | None = None
    failure: ServiceNotReady | None = None
    for tried in range(TRIES_MAX):
        if tried:
            await asyncio.sleep(AGAIN_AFTER_S)
        owner = await find()
        identity = None if owner is None else (owner.broker_id, owner.run)
        if failure is not None and identity == asked:
            break
        asked = identity
        try:
            return await act(owner)
        except ServiceNotReady as error:
            failure = error
    assert failure is not None, "a try ends with an answer or a failure"
    raise failure


async def ask_owner(call: Call, owner: BrokerRegistration, name: TopicName, ask: Ask) -> Any:
    """Returns the response of the owner. Raises as Peers.ask."""
    parts = (name.domain, name.tenant, name.namespace.namespace, name.local_name)
    path = f"{ask.root}/" + "/".join(quote(part, safe="") for part in parts)
    query = {key: value for key, value in call.request.query.items() if key != AUTHORITATIVE}
    peers, raw_path = call.request.app[PEERS], f"{path}/{ask.verb}" if ask.verb else path
    try:
        return await peers.ask(owner, ask.method, raw_path, query, ask.body, caller=call.request)
    except (Refused, TopicNotFound) as error:
        if _status(error) not in ask.answers:
            raise
        return ask.answers[_status(error)]


def _sorted_out(results: Mapping[TopicName, Any]) -> Parts:
    parts = Parts()
    failures: dict[TopicName, MagnetarError | Refused] = {}
    for name, result in results.items():
        if not isinstance(result, MagnetarError | Refused):
            parts.done[name] = result
        elif _status(result) == 404:
            parts.missing[name] = result
        else:
            failures[name] = result
    if failures:
        raise _partial(failures, parts)
    return parts


def _partial(failures: Mapping[TopicName, MagnetarError | Refused], parts: Parts) -> Exception:
    first = next(iter(failures.values()))
    if not parts.done and len({str(each) for each in failures.values()}) == 1:
        return first
    indexes = [str(name.partition_index) for name in failures]
    named = ", ".join(indexes[:_NAMED_MAX]) + (" ..." if len(indexes) > _NAMED_MAX else "")
    which = f"partition {named}" if len(indexes) == 1 else f"{len(indexes)} partitions ({named})"
    return Refused(_status(first), f"{which}: {first}; the other {len(parts.done)} are done")


def _status(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    assert isinstance(error, MagnetarError), "nothing else is kept"
    return status_of(error)


def not_created(error: Exception) -> bool:
    """Returns whether the partition itself is missing, rather than the object of the call on it."""
    return isinstance(error, TopicNotFound) and str(error) == NOT_CREATED
