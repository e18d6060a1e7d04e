"""Calls on topics with partitions, which several brokers may serve: each partition's is done by its owner.

Those that are served here are done here, one after the other with a turn for messages in between; those of
other brokers are asked of them meanwhile. All are tried though some fail. What is not there is left out. When
some failed, the answer is the first failure, and says which partitions it was and that the others are done.
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
"""How many owners of a partition are asked, where it goes from one to the other meanwhile."""

AGAIN_AFTER_S: Final = 0.2
"""Before its owner is looked for again; what this broker knows of owners is a moment old."""

_NAMED_MAX: Final = 5
"""Partitions that an error names."""

_TOPIC_SEGMENTS: Final = 6
"""Of /admin/v2/{domain}/{tenant}/{namespace}/{topic}."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """What the owner of a partition is asked: behind the topic in the path, with the call's own query."""

    method: str
    verb: str = ""
    """Percent-encoded."""
    body: Any = NOTHING
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Refusals that are as good as an answer, by status."""
    root: str = "/admin/v2"


def same(call: Call, body: Any = NOTHING) -> Ask:
    """What the call itself is, of a partition; with the body that it had."""
    verb = "/".join(call.request.rel_url.raw_path.strip("/").split("/")[_TOPIC_SEGMENTS:])
    return Ask(call.request.method, verb, body)


@dataclass(slots=True)
class Parts:
    """How a call went on each partition."""

    done: dict[TopicName, Any] = field(default_factory=dict)
    """What came of it, in the order of partitions."""
    missing: dict[TopicName, Exception] = field(default_factory=dict)
    """There is no such partition, or it has not what is asked for."""


async def on_topic(call: Call, here: Callable[[TopicName], Awaitable[Any]], ask: Ask) -> Parts:
    """Do something with the call's topic, or with each of its partitions, as `on_parts`.

    Raises whatever `here` raises of a topic without partitions; NamespaceNotFound.
    """
    count = await partitions_of(call)
    if not count:
        return Parts({call.topic: await here(call.topic)})
    return await on_parts(call, [call.topic.partition(index) for index in range(count)], here, ask)


async def on_parts(
    call: Call, names: Iterable[TopicName], here: Callable[[TopicName], Awaitable[Any]], ask: Ask
) -> Parts:
    """Do `here` with each that is served here, and `ask` the owners of the others.

    Both answer the same for a partition; JSON values, where others are asked. Raises the first failure, but
    for what is not found (404), once all were tried.
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
    """What came of it, or the error."""
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
    """Done by the owner, also by the next one when what it owns leaves the one that was asked.

    `act` is told who it is, None for this broker. Raises as they do.
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
    """The owner's answer. Raises as Peers.ask."""
    parts = (name.domain, name.tenant, name.namespace.namespace, name.local_name)
    path = f"{ask.root}/" + "/".join(quote(part, safe="") for part in parts)
    query = {key: value for key, value in call.request.query.items() if key != AUTHORITATIVE}
    peers, raw_path = call.request.app[PEERS], f"{path}/{ask.verb}" if ask.verb else path
    try:
        return await peers.ask(owner, ask.method, raw_path, query, ask.body)
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
    return Refused(_status(first), f"{which}: {first}; it is done on {len(parts.done)} others")


def _status(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    assert isinstance(error, MagnetarError), "nothing else is kept"
    return status_of(error)


def not_created(error: Exception) -> bool:
    """Whether a partition is missing altogether, and does not just lack what is asked for."""
    return isinstance(error, TopicNotFound) and str(error) == NOT_CREATED
