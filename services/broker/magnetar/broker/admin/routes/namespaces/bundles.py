"""Routes that unload, split, merge and describe bundles.

In a cluster, unloading hands a bundle to another broker, and its owner splits it; before a merge, the bundles
are handed to one of their owners. Any broker accepts the calls. In a standalone, unloading closes the topics,
which are loaded again when clients look them up, and splitting and merging only change metadata.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id
from magnetar.broker.admin.objects.bundles import bundle_in, bundle_range
from magnetar.broker.admin.objects.namespace_topics import all_names_within, bundle_of, each_bundle, for_each
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.common.cluster.bundles import (
    BY_LOAD,
    BY_TOPIC_COUNT,
    EQUAL_RANGES,
    LARGEST,
    bundle_at,
    bundles_of,
    by_topic_count,
    halves,
    merge,
    split,
    within,
)
from magnetar.common.errors import NotAllowed
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_MOVED_AT_ONCE: Final = 4
"""Concurrent handovers of one namespace's bundles, as in the drain of a stopping broker."""


async def _unload(call: Call) -> web.Response:
    bundle = await bundle_of(call)
    destination = call.request.query.get("destinationBroker", "")
    moves = call.broker.bundle_moves
    if moves is not None:

        async def unload(each: BundleRange) -> None:
            try:
                await moves.unload(call.namespace, each, destination)
            except NotAllowed as error:
                if bundle is not None:  # for a namespace: the broker may already own some of its bundles
                    raise Refused(412, str(error)) from error

        await each_bundle(await _bundles(call, bundle), unload, _MOVED_AT_ONCE)
        return done()
    if destination and destination != broker_id(call):
        raise Refused(405, f"there is no broker {destination} to unload to: this is a standalone")
    await _close(call, bundle)
    return done()


async def _bundles(call: Call, bundle: BundleRange | None) -> list[BundleRange]:
    """Returns the given bundle, or all bundles of the namespace."""
    if bundle is not None:
        return [bundle]
    return bundles_of(await call.broker.policy_writer.namespace(call.namespace))


async def _close(call: Call, bundle: BundleRange | None) -> None:
    broker, namespace = call.broker, call.namespace
    await for_each(
        [
            topic.name
            for topic in broker.topics.values()
            if topic.name.namespace == namespace and (bundle is None or topic.name.hash in bundle)
        ],
        broker.registry.unload,
    )


async def _split(call: Call) -> web.Response:
    writer, name = call.broker.policy_writer, call.namespace
    bundle = await _bundle_to_split(call, await writer.namespace(name))
    algorithm = _algorithm(call)
    moves = call.broker.bundle_moves
    if moves is not None:
        # Only the owner has the load of its topics.
        boundaries = [] if algorithm == BY_LOAD else await _boundaries(call, bundle, algorithm)
        try:
            await moves.split(name, bundle, boundaries, algorithm=algorithm, unload=call.flag("unload"))
        except NotAllowed as error:
            raise Refused(412, str(error)) from error
        return done()
    boundaries = await _boundaries(call, bundle, algorithm)
    parts = {bundle.lower, *boundaries, bundle.upper}
    tried = False

    def edit(namespace: Namespace) -> None:
        nonlocal tried
        bundles = bundles_of(namespace)
        edges = {edge for each in bundles for edge in (each.lower, each.upper)}
        if tried and parts <= edges:
            return  # our own commit, whose response was lost
        if bundle not in bundles:
            raise Refused(409, f"{name}/{bundle} was split by another request meanwhile")
        tried = True
        split(namespace, bundle, boundaries)

    await writer.change_namespace(name, edit)
    if call.flag("unload"):
        await _close(call, bundle)
    return done()


async def _bundle_to_split(call: Call, namespace: Namespace) -> BundleRange:
    if call.names["bundle"] != LARGEST:
        return bundle_in(call, namespace)
    bundles = bundles_of(namespace)
    counts = [0] * len(bundles)
    for name in await all_names_within(call, None):
        counts[bundle_at(bundles, name.hash)] += 1
    return bundles[counts.index(max(counts))]


def _algorithm(call: Call) -> str:
    config = call.broker.config.bundles
    algorithm = call.request.query.get("splitAlgorithmName") or config.split_algorithm
    if algorithm not in config.split_algorithms:
        raise Refused(
            412,
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(config.split_algorithms)}]",
        )
    return algorithm


async def _boundaries(call: Call, bundle: BundleRange, algorithm: str) -> list[int]:
    """Returns the split points, at least one. Raises Refused (412)."""
    positions = _positions(await call.json_or(None))
    if algorithm == EQUAL_RANGES:
        found, reason = halves(bundle), "it covers a single hash"
    elif algorithm == BY_TOPIC_COUNT:
        found = by_topic_count(bundle, [name.hash for name in await all_names_within(call, bundle)])
        reason = "it has fewer than two topics, or all have the same hash"
    elif algorithm == BY_LOAD:
        found = await _cut_by_load(call, bundle)
        reason = "fewer than two of its topics are loaded, or all have the same hash"
    else:
        found = [each for each in positions if bundle.lower < each < bundle.upper]
        reason = "the body has no position within the bundle"
    if not found:
        raise Refused(412, f"{call.namespace}/{bundle} cannot be split by {algorithm}: {reason}")
    return found


async def _cut_by_load(call: Call, bundle: BundleRange) -> list[int]:
    from magnetar.broker.control.split_points import cut_by_load  # a standalone does not need them otherwise

    return await cut_by_load(call.broker.topics.values(), call.namespace, bundle)


async def _merge(call: Call) -> web.Response:
    writer, name = call.broker.policy_writer, call.namespace
    asked = bundle_range(call.names["bundle"])
    within(bundles_of(await writer.namespace(name)), asked)
    moves = call.broker.bundle_moves
    if moves is not None:
        await moves.merge(name, asked)
    else:
        await writer.change_namespace(name, lambda namespace: merge(namespace, asked))
    return done()


def _positions(value: Any) -> list[int]:
    """Parses the body; clients without a value send nothing, null or an empty string."""
    if value is None or value == "":
        return []
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise Refused(400, "the body must be a list of whole numbers, positions in the hash ring")
    return value


async def _positions_of_topics(call: Call) -> web.Response:
    bundle = await bundle_of(call)
    asked = {TopicName.parse(text).full for text in call.request.query.getall("topics", [])}
    found = {
        name.full: name.hash
        for name in await all_names_within(call, bundle)
        if not asked or name.full in asked or name.base.full in asked
    }
    return answer({"namespace": str(call.namespace), "bundle": str(bundle), "topicHashPositions": found})


async def _delete(call: Call) -> web.Response:
    """Checks that the bundle is empty. As in Pulsar, its range stays in the namespace. Raises Refused."""
    bundle = await bundle_of(call)
    if await all_names_within(call, bundle):
        if call.flag("force"):
            raise Refused(405, "a bundle with topics cannot be force-deleted: delete its topics first")
        raise Refused(409, "Cannot delete non empty bundle: delete its topics first")
    return done()


_BUNDLE: Final = f"{NAMESPACE_PATH}/{{bundle}}"
_ERRORS: Final = {**NAMESPACE_ERRORS, 412: "Invalid bundle range; invalid name"}
_MOVED: Final = {
    405: "a standalone has no other broker",
    412: "Invalid bundle range; the broker owns the bundle already",
    503: "no broker takes the bundle, or the named broker is not available",
}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    errors = {**_ERRORS, **more.pop("errors", {})}
    return Route(
        object="namespaces", method=method, path=path, handler=handler, summary=summary, errors=errors, **more
    )


ROUTES: Final = [
    _route(
        "PUT",
        f"{NAMESPACE_PATH}/unload",
        _unload,
        "Unload all bundles of a namespace to other brokers; a standalone closes its topics.",
        status=204,
        errors=_MOVED,
        operation=Operation.SUPER_USER,
    ),
    _route(
        "PUT",
        f"{_BUNDLE}/unload",
        _unload,
        "Unload a bundle to another broker; a standalone closes its topics.",
        query=("destinationBroker:String",),
        status=204,
        errors=_MOVED,
        operation=Operation.SUPER_USER,
    ),
    _route(
        "PUT",
        f"{_BUNDLE}/split",
        _split,
        "Split a bundle; `LARGEST` in place of the range means the bundle with the most topics.",
        query=("unload:boolean=false", f"splitAlgorithmName:String={EQUAL_RANGES}"),
        body="List<long>",
        status=204,
        errors={
            409: "Concurrent modification",
            412: "Invalid bundle range; Unsupported namespace bundle split algorithm; invalid split "
            "positions; too many bundles",
        },
        operation=Operation.SUPER_USER,
    ),
    _route(
        "PUT",
        f"{_BUNDLE}/merge",
        _merge,
        "Merge the bundles that make up a range into one. Not part of Apache Pulsar's API.",
        status=204,
        errors={
            409: "Concurrent modification",
            412: "Invalid bundle range; the range does not match bundle boundaries; too many bundles at a "
            "time",
            503: "not all bundles could be assigned to one broker; try again",
        },
        operation=Operation.SUPER_USER,
    ),
    _route(
        "GET",
        f"{_BUNDLE}/topicHashPositions",
        _positions_of_topics,
        "Get the positions in the hash ring of all or some topics of a bundle.",
        query=("topics:List<String>",),
        answer="TopicHashPositions",
        operation=Operation.POLICY,
    ),
]

LAST: Final = [
    # After the policies of namespaces: DELETE of a name that is none of them means a bundle.
    _route(
        "DELETE",
        _BUNDLE,
        _delete,
        "Delete a bundle that has no topics.",
        query=("force:boolean=false",),
        status=204,
        errors={405: "the bundle has topics", 409: "Cannot delete non empty bundle"},
        operation=Operation.NAMESPACE_ADMIN,
    ),
]
