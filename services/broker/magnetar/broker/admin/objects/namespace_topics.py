"""Operations on all topics of a namespace or of one of its bundles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused, status_of
from magnetar.broker.admin.edge.owners import bundle_elsewhere, require_bundle_here
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects.bundles import bundle_in
from magnetar.broker.admin.objects.partitions import attempt, by_owner
from magnetar.broker.admin.objects.topics import load
from magnetar.broker.topics.topic import Topic
from magnetar.common.cluster.bundles import bundle_at, bundles_of
from magnetar.common.errors import MagnetarError, TopicNotFound
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.topic_name import TopicName, is_system_topic
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

AT_ONCE: Final = 20
"""Topics processed concurrently; clients and other requests are served in between."""

_NAMESPACE_SEGMENTS: Final = 5
"""Segments of the path /admin/v2/namespaces/{tenant}/{namespace}."""

_NAMED_MAX: Final = 5
"""Bundles that an error names for each failure, and failures that it names."""

T = TypeVar("T")
R = TypeVar("R")


async def bundle_of(call: Call) -> BundleRange | None:
    """Returns the bundle in the path; None when the path has none. Raises NamespaceNotFound, Refused
    (412).
    """
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    return bundle_in(call, namespace) if "bundle" in call.names else None


async def bundle_here(call: Call) -> BundleRange | None:
    """Returns the bundle in the path as `bundle_of`. Raises a redirect when another broker owns it, as
    `require_bundle_here`.
    """
    bundle = await bundle_of(call)
    if bundle is not None:
        await require_bundle_here(call, bundle)
    return bundle


async def names_within(call: Call, bundle: BundleRange | None, *, persistent: bool) -> list[TopicName]:
    """Returns the namespace's topics in one domain, without system topics; each partition by its own name."""
    names = map(TopicName.parse, await call.broker.list_topics(call.namespace, persistent))
    return [name for name in names if (bundle is None or name.hash in bundle) and not is_system_topic(name)]


async def all_names_within(call: Call, bundle: BundleRange | None) -> list[TopicName]:
    """Returns the topics as `names_within` in both domains; only the loaded ones of non-persistent topics."""
    return [
        name
        for persistent in (True, False)
        for name in await names_within(call, bundle, persistent=persistent)
    ]


async def load_all(call: Call, names: Iterable[TopicName]) -> list[Topic]:
    """Loads these topics; those deleted meanwhile are left out."""

    async def one(name: TopicName) -> Topic | None:
        try:
            return await load(call.broker, name)
        except TopicNotFound:
            return None

    return [topic for topic in await for_each(names, one) if topic is not None]


async def on_bundles(
    call: Call, names: list[TopicName], here: Callable[[list[TopicName]], Awaitable[bool]]
) -> bool:
    """Calls `here` with the topics that this broker owns, and forwards the request to the owners of the
    others, bundle by bundle. Returns whether any broker found something to do.

    All bundles are tried; the error then names the bundles that failed, and why. The request can be repeated:
    `here` skips topics that are done. A request that names a bundle was redirected to its owner before.
    """
    cluster = call.broker.cluster
    if cluster is None:
        return await here(names)
    bundles = bundles_of(await call.broker.policy_writer.namespace(call.namespace))
    by_bundle: dict[BundleRange, list[TopicName]] = {}
    async for name in iterate_cooperatively(names):
        by_bundle.setdefault(bundles[bundle_at(bundles, name.hash)], []).append(name)

    async def act(bundle: BundleRange, owner: BrokerRegistration | None) -> bool:
        if owner is None:
            return await here(by_bundle[bundle])
        parts = call.request.rel_url.raw_path.strip("/").split("/")
        what = parts[
            _NAMESPACE_SEGMENTS + ("bundle" in call.names) :
        ]  # The request may name a bundle itself.
        path = "/".join(("", *parts[:_NAMESPACE_SEGMENTS], str(bundle), *what))
        try:
            await call.request.app[PEERS].ask(owner, call.request.method, path, caller=call.request)
        except TopicNotFound:
            return False
        return True

    async def one(bundle: BundleRange) -> bool:
        find = partial(bundle_elsewhere, cluster, call.namespace, bundle)
        return await by_owner(find, partial(act, bundle))

    return any(await each_bundle(sorted(by_bundle, key=lambda bundle: bundle.lower), one))


async def each_bundle(
    bundles: Iterable[BundleRange], act: Callable[[BundleRange], Awaitable[R]], at_once: int = AT_ONCE
) -> list[R]:
    """Calls `act` on every bundle, even if some fail; the error then names those that failed, and why."""

    async def one(bundle: BundleRange) -> tuple[BundleRange, R | MagnetarError | Refused]:
        return bundle, await attempt(act(bundle))

    done: list[R] = []
    failures: dict[BundleRange, MagnetarError | Refused] = {}
    for bundle, result in await for_each(bundles, one, at_once):
        if isinstance(result, MagnetarError | Refused):
            failures[bundle] = result
        else:
            done.append(result)
    if failures:
        raise _some_failed(failures, len(done))
    return done


def _some_failed(failures: Mapping[BundleRange, MagnetarError | Refused], done: int) -> Exception:
    first = next(iter(failures.values()))
    if len(failures) + done == 1:
        return first
    by_reason: dict[str, list[str]] = {}
    for bundle, error in failures.items():
        by_reason.setdefault(str(error), []).append(str(bundle))
    reasons = [
        f"{', '.join(bundles[:_NAMED_MAX])}{' ...' if len(bundles) > _NAMED_MAX else ''}: {reason}"
        for reason, bundles in list(by_reason.items())[:_NAMED_MAX]
    ]
    more = f"{len(failures)} of {len(failures) + done} bundles failed, the others are done"
    status = first.status if isinstance(first, Refused) else status_of(first)
    return Refused(status, f"{'; '.join(reasons)} ({more}; try again, which skips those that are done)")


async def for_each(items: Iterable[T], act: Callable[[T], Awaitable[R]], at_once: int = AT_ONCE) -> list[R]:
    """Calls `act` on every item, even if some fail; then raises the first failure."""
    waiting = list(items)
    found: list[R] = []
    failure: BaseException | None = None
    for first in range(0, len(waiting), at_once):
        results = await asyncio.gather(
            *(act(item) for item in waiting[first : first + at_once]), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                failure = failure or result
            else:
                found.append(result)
    if failure is not None:
        raise failure
    return found
