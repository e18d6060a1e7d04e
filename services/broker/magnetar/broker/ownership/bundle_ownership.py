"""Bundles owned by this broker, and the transactions that change ownership.

Metadata decides which broker tries to serve a bundle; the fences of its topics' ledgers decide which broker
can. Every change is one transaction, so no intermediate state has to be completed: taking, splitting and
merging check the version of the namespace, which holds the bundle boundaries, so that owned ranges never
overlap. After an unknown outcome, the change's guard key (the owner key) is read.

The table of own bundles follows metadata: a bundle is added once metadata assigns it to this broker, and
removed as soon as metadata shows another owner or none. See docs/decisions/bundle-ownership.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from magnetar.broker.ownership.bundle_locks import BundleLocks
from magnetar.broker.ownership.own_bundles import OwnBundle, OwnBundles
from magnetar.broker.ownership.ownership import not_served
from magnetar.broker.ownership.presence import Presence
from magnetar.broker.ownership.split_merge import PARTS_MAX, Recut, parts_to_merge
from magnetar.broker.service_urls import ServiceUrls, urls_of
from magnetar.common.cluster import bundles
from magnetar.common.cluster.broker_directory import BrokerDirectory, addresses_of
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners, Owned, read_owner
from magnetar.common.cluster.rings import Ring, Rings
from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.errors import (
    BeingChanged,
    InvalidName,
    MetadataError,
    NamespaceNotFound,
    ServiceNotReady,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore, Op, Put
from magnetar.common.metadata.values import BrokerRegistration, BundleOwner, Namespace, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from prometheus_client import Gauge

log = get_logger(__name__)

BUNDLES_OWNED: Final = Gauge(
    "magnetar_bundles_owned", "Bundles owned by this broker of a cluster.", registry=REGISTRY
)

TRIES_MAX: Final = 10
"""Attempts of a change that conflicts with concurrent changes."""

GIVEN_WAIT_S: Final = 10.0
"""Seconds that requests for a topic wait while its bundle is handed to another broker."""

SETTLE_RETRY_S: Final = 0.2
SETTLE_RETRY_MAX_S: Final = 5.0
"""Maximum seconds between two attempts to read a bundle's owner while metadata does not answer; the wait
doubles.
"""


class BundleOwnership:
    """The bundles of one run of this broker: an `Ownership`. `open` it once the broker is registered."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        presence: Presence,
        rings: Rings,
        owners: BundleOwners,
        directory: BrokerDirectory,
    ) -> None:
        """`rings`, `owners` and `directory` are mirrors that the caller starts and closes."""
        self.table = OwnBundles()
        self.lease = presence.lease
        self.finder = TopicFinder(rings, owners, directory, self)
        """Finds owners; this broker assigns bundles itself until another assigner is set."""
        self.on_lost: Callable[[NamespaceName, BundleRange], None] = lambda namespace, bundle: None
        """Called at once with a bundle that this broker has lost: another broker may already serve its
        topics.
        """
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._presence = presence
        self._rings = rings
        self._owners = owners
        self._directory = directory
        self._tasks = TaskOwner("bundle ownership")
        self._locks = BundleLocks()
        self._recuts = Recut(metadata, keys, presence, rings)
        self._settling: set[Bundle] = set()
        self._refusing: str | None = "it is starting"
        self._over = False
        self._owners.on_change(self._owner_changed)
        self._rings.on_change(self._ring_changed)

    # -- owned bundles, and owners of others

    def check(self, name: TopicName) -> None:
        """Checks that this broker owns the topic's bundle. Raises ServiceNotReady."""
        own = self.table.of_topic(name)
        if own is None or own.giving:
            raise not_served(name)

    async def settled(self, name: TopicName) -> None:
        """Waits, for a bounded time, while the topic's bundle is handed to another broker; see Ownership."""
        own = self.table.of_topic(name)
        if own is not None and own.given is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(own.given.wait(), GIVEN_WAIT_S)

    async def claim(self, name: TopicName) -> None:
        """Checks like `check`, after assigning an unowned bundle. Raises as TopicFinder.find."""
        await self.settled(name)
        if self.table.of_topic(name) is None:
            await self.finder.find(name)
        self.check(name)

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Returns the addresses of the topic's owner, once a handover is finished. Raises as
        TopicFinder.find.
        """
        await self.settled(name)
        return urls_of(addresses_of(await self.finder.find(name, listener), listener))

    # -- begin and end

    def open(self) -> None:
        """Starts taking bundles: the broker is registered."""
        self._refusing = None

    def refuse(self, reason: str) -> None:
        """Stops taking bundles, for a reason that is returned to callers; owned bundles stay."""
        self._refusing = reason

    def drop_everything(self, reason: str) -> None:
        """Drops all bundles because metadata has ended this run. `on_lost` is not called."""
        self._over, self._refusing = True, reason
        self.table.clear()
        BUNDLES_OWNED.set(0)

    async def close(self) -> None:
        """Stops all background work; the bundles are released with the session. Idempotent."""
        self.drop_everything("it is shutting down")
        await self.finder.close()
        await self._tasks.close()

    # -- changes

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Assigns an unowned bundle to this broker, as the `Assigner` without load information. Raises as
        `take`.
        """
        return (await self.take(namespace, bundle)).broker_id

    async def take(self, namespace: NamespaceName, bundle: BundleRange, over: Owned | None = None) -> Owned:
        """Takes the bundle, unless another running broker owns it; returns the owner.

        `over` is an ownership that its broker hands over: while it exists, it is replaced although that
        broker is running. Raises NamespaceNotFound; ServiceNotReady when the boundaries have changed, when a
        bundle of earlier boundaries is still owned, or when this broker takes no bundles; MetadataError.
        """
        async with self._alone((namespace, bundle)):
            own = self.table.get(namespace, bundle)
            if own is not None:
                return self._owned(own)
            try:
                return await self._take(namespace, bundle, over)
            except MetadataError:
                self._settle_soon(namespace, bundle)  # a write may still be applied
                raise

    async def release(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Releases the bundle, whose topics must be closed. Does nothing when this broker does not own it.

        Raises MetadataError; this broker then remains the owner until metadata shows otherwise.
        """
        async with self.giving(namespace, bundle) as owned:
            if owned is None:
                return
            try:
                await self._metadata.delete(self._keys.bundle_owner(namespace, bundle), owned.version)
            except (VersionMismatch, UnknownOutcome):
                pass  # the following read shows the outcome

    @asynccontextmanager
    async def giving(self, namespace: NamespaceName, bundle: BundleRange) -> AsyncIterator[Owned | None]:
        """Blocks the opening of the bundle's topics during a handover. Yields None when this broker does not
        own it.

        At the end, reads the owner from metadata; if it is still this broker, topics can be opened again.
        """
        async with self._alone((namespace, bundle)):
            own = self.table.get(namespace, bundle)
            if own is None:
                yield None
                return
            own.given = given = asyncio.Event()
            try:
                yield self._owned(own)
            finally:
                try:
                    await self._given(own)
                except BaseException:
                    self._settle_soon(namespace, bundle)
                    raise
                finally:
                    given.set()

    async def keep(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned) -> None:
        """Ends a handover, while `giving`: a broker that has not yet taken over `owned` no longer can. Raises
        MetadataError.
        """
        key = self._keys.bundle_owner(namespace, bundle)
        data = self._own_value(owned.since_ms)
        try:
            version = await self._presence.session.put_ephemeral(key, data, owned.version)
        except (VersionMismatch, UnknownOutcome):
            return  # the read at the end of `giving` shows the outcome
        self._owners.note(namespace, bundle, read_owner(data, version))

    async def split(
        self, namespace: NamespaceName, bundle: BundleRange, boundaries: Sequence[int]
    ) -> list[BundleRange]:
        """Splits an owned bundle at these hashes. This broker then owns all parts, and no topic is closed.

        Raises InvalidName for boundaries outside the bundle, or too many; ServiceNotReady when this broker
        does not own the bundle; BeingChanged when concurrent changes exhaust the attempts; MetadataError with
        an unknown outcome.
        """
        parts = bundles.parts_of(bundle, boundaries)
        if len(parts) > PARTS_MAX:
            raise InvalidName(f"bundle {bundle} can be split into {PARTS_MAX} parts at most at a time")
        inner = [part.upper for part in parts[:-1]]
        await self._recut(namespace, [bundle], parts, lambda value: bundles.split(value, bundle, inner))
        log.info("bundle split", namespace=str(namespace), bundle=str(bundle), into=list(map(str, parts)))
        return parts

    async def merge(self, namespace: NamespaceName, merged: BundleRange) -> Owned:
        """Merges the owned bundles of this range into one; no topic is closed.

        Does nothing when it is one bundle. Raises InvalidName when no bundle begins or ends there, or there
        are too many; NamespaceNotFound; otherwise as `split`.
        """
        parts = parts_to_merge(await self._rings.load(namespace), merged)
        if len(parts) > 1:
            await self._recut(namespace, parts, [merged], lambda value: bundles.merge(value, merged))
            log.info("bundles merged", namespace=str(namespace), bundle=str(merged), of=list(map(str, parts)))
        return self._owned(self._ours(namespace, merged))

    # -- the transactions

    async def _take(self, namespace: NamespaceName, bundle: BundleRange, over: Owned | None) -> Owned:
        key = self._keys.bundle_owner(namespace, bundle)
        data = self._own_value(self._clock.wall_ms())
        if over is not None:
            owned = await self._take_over(namespace, bundle, data, over)
            if owned is not None:
                return owned
        for _ in range(TRIES_MAX):
            ring = await self._rings.load(namespace)
            found = await self._owner_in(namespace, bundle, ring)
            if found is not None and self._is_ours(found):
                self._adopt(namespace, bundle, found)
                return found
            ops: list[Op] = [Check(self._keys.namespace(namespace), ring.version)]
            if found is not None and (over is None or over.version != found.version):
                gone = await self._gone(found)
                if gone is None:
                    self._owners.note(namespace, bundle, found)
                    return found
                ops.append(gone)
            ops.append(Put(key, data, ABSENT if found is None else found.version, ephemeral=True))
            if self._refusing is not None:
                raise ServiceNotReady(f"this broker takes no bundles: {self._refusing}")
            try:
                version = await self._presence.session.commit(ops)
            except (VersionMismatch, UnknownOutcome):
                continue  # the next read shows the outcome
            owned = read_owner(data, version)
            self._adopt(namespace, bundle, owned)
            return owned
        raise BeingChanged(f"bundle {bundle} of {namespace} is changed by others; look its topics up again")

    async def _take_over(
        self, namespace: NamespaceName, bundle: BundleRange, data: bytes, over: Owned
    ) -> Owned | None:
        """Takes the bundle at once from the mirrors, because publishers wait. Returns None when metadata has
        to be read first.
        """
        ring = self._rings.get(namespace)
        if ring is None or bundle not in ring.bundles or self._refusing is not None:
            return None
        ops: list[Op] = [
            Check(self._keys.namespace(namespace), ring.version),
            Put(self._keys.bundle_owner(namespace, bundle), data, over.version, ephemeral=True),
        ]
        try:
            version = await self._presence.session.commit(ops)
        except (VersionMismatch, UnknownOutcome):
            return None
        owned = read_owner(data, version)
        self._adopt(namespace, bundle, owned)
        return owned

    async def _owner_in(self, namespace: NamespaceName, bundle: BundleRange, ring: Ring) -> Owned | None:
        """Returns the bundle's owner in metadata, read after the boundaries, so that owners of earlier
        bundles are seen.
        """
        if bundle not in ring.bundles:
            raise ServiceNotReady(f"{namespace} has no bundle {bundle}; look its topics up again")
        found = None
        listing = await self._metadata.children(self._keys.namespace_bundle_owners_prefix(namespace))
        for item in listing.items:
            _, other = self._keys.bundle_of_owner(item.key)
            if other == bundle:
                found = read_owner(item.value, item.version)
            elif other.overlaps(bundle):
                raise ServiceNotReady(
                    f"bundle {bundle} of {namespace} waits for the release of {other}, which it was a "
                    "part of; look its topics up again"
                )
        return found

    async def _gone(self, owned: Owned) -> Check | None:
        """Returns None when the owner is running; otherwise the check that proves in a transaction that it is
        not.
        """
        if self._directory.is_current(owned.broker_id, owned.run):
            return None
        key = self._keys.broker(owned.broker_id)
        found = await self._metadata.get(key)
        if found is None:
            return Check(key, ABSENT)
        registration = decode(BrokerRegistration, found.value)
        self._directory.note(registration, found.version)
        return None if registration.run == owned.run else Check(key, found.version)

    async def _recut(
        self,
        namespace: NamespaceName,
        before: Sequence[BundleRange],
        after: Sequence[BundleRange],
        edit: Callable[[Namespace], None],
    ) -> None:
        touched = [(namespace, each) for each in (*before, *after)]
        async with self._alone(*touched):
            owned = [self._ours(namespace, each) for each in before]
            since_ms = max(own.since_ms for own in owned)
            try:
                version = await self._recuts.commit(namespace, owned, after, self._own_value(since_ms), edit)
            except (MetadataError, ServiceNotReady, BeingChanged):
                for each in touched:
                    self._settle_soon(*each)
                raise
            for own in owned:
                self._owners.note_gone(namespace, own.range, own.version)
                self.table.remove(own)
            known = Owned(self._presence.broker_id, self._presence.run, version, since_ms)
            for part in after:
                self._adopt(namespace, part, known)

    # -- the table follows metadata

    def _adopt(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned) -> None:
        """Adds a bundle that metadata assigns to this broker."""
        if self._over:
            raise ServiceNotReady(f"this broker takes no bundles: {self._refusing}")
        own = self.table.get(namespace, bundle)
        if own is not None:
            own.version, own.since_ms, own.given = owned.version, owned.since_ms, None
        else:
            # Metadata never assigns two overlapping bundles: this broker has lost the older one.
            for older in self.table.overlapping(namespace, bundle):
                self._lose(older)
            self.table.add(OwnBundle(namespace, bundle, owned.version, owned.since_ms))
            BUNDLES_OWNED.set(len(self.table))
            log.info("bundle owned", namespace=str(namespace), bundle=str(bundle), epoch=owned.version)
        self._owners.note(namespace, bundle, owned)

    async def _given(self, own: OwnBundle) -> None:
        """Reconciles ownership after an attempted handover. Raises MetadataError."""
        known = self._owners.owner_of(own.namespace, own.range)
        if known is not None and known.version > own.version and not self._is_ours(known):
            self._lose(own)
        else:
            await self._settle(own.namespace, own.range)

    def _lose(self, own: OwnBundle) -> None:
        """Removes a bundle that metadata no longer assigns to this broker."""
        if self.table.remove(own):
            BUNDLES_OWNED.set(len(self.table))
            log.info("bundle lost", namespace=str(own.namespace), bundle=str(own.range))
            self.on_lost(own.namespace, own.range)

    async def _settle(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Updates the table from the bundle's owner in metadata. Raises MetadataError."""
        key = self._keys.bundle_owner(namespace, bundle)
        found = await self._metadata.get(key)
        owned = None if found is None else read_owner(found.value, found.version)
        own = self.table.get(namespace, bundle)
        if owned is None or not self._is_ours(owned):
            if own is not None:
                self._owners.note_gone(namespace, bundle, own.version)
                self._lose(own)
            if owned is not None:
                self._owners.note(namespace, bundle, owned)
            return
        try:
            cut_so = bundle in (await self._rings.load(namespace)).bundles
        except NamespaceNotFound:
            cut_so = False
        if cut_so:
            self._adopt(namespace, bundle, owned)
            return
        # The bundle has earlier boundaries: owners of the new bundles wait for its release.
        if own is not None:
            self._lose(own)
        await self._metadata.delete(key, owned.version)
        self._owners.note_gone(namespace, bundle, owned.version)

    def _settle_soon(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Schedules `_settle`, retrying until metadata is reachable."""
        if (namespace, bundle) not in self._settling and not self._over:
            self._settling.add((namespace, bundle))
            self._tasks.spawn(self._settle_at_last(namespace, bundle), f"owner of {bundle} of {namespace}")

    async def _settle_at_last(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        wait_s = SETTLE_RETRY_S
        try:
            while not self._over:
                try:
                    async with self._alone((namespace, bundle)):
                        await self._settle(namespace, bundle)
                    return
                except MetadataError as error:
                    log.warning(
                        "owner of a bundle cannot be read, retrying",
                        namespace=str(namespace),
                        bundle=str(bundle),
                        error=str(error),
                    )
                except ServiceNotReady:
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, SETTLE_RETRY_MAX_S)
        finally:
            self._settling.discard((namespace, bundle))

    def _owner_changed(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned | None) -> None:
        if self._over or (namespace, bundle) in self._locks:
            return  # a running change reads it at its end
        own = self.table.get(namespace, bundle)
        if owned is not None and self._is_ours(owned):
            if own is None or own.version < owned.version:
                self._settle_soon(namespace, bundle)
        elif own is not None and (owned is None or owned.version > own.version):
            self._lose(own)

    def _ring_changed(self, namespace: NamespaceName, ring: Ring | None) -> None:
        for own in self.table.of(namespace):
            if ring is None or (own.version < ring.version and own.range not in ring.bundles):
                self._settle_soon(namespace, own.range)

    @asynccontextmanager
    async def _alone(self, *touched: Bundle) -> AsyncIterator[None]:
        """Excludes other changes of these bundles; applies received events at the end."""
        try:
            async with self._locks.alone(*touched):
                yield
        finally:
            for namespace, bundle in touched:
                self._owner_changed(namespace, bundle, self._owners.owner_of(namespace, bundle))

    # -- helpers

    def _ours(self, namespace: NamespaceName, bundle: BundleRange) -> OwnBundle:
        own = self.table.get(namespace, bundle)
        if own is None:
            raise ServiceNotReady(f"bundle {bundle} of {namespace} is not owned by this broker")
        return own

    def _is_ours(self, owned: Owned) -> bool:
        return owned.run == self._presence.run and owned.broker_id == self._presence.broker_id

    def _owned(self, own: OwnBundle) -> Owned:
        return Owned(self._presence.broker_id, self._presence.run, own.version, own.since_ms)

    def _own_value(self, since_ms: int) -> bytes:
        return encode(
            BundleOwner(broker_id=self._presence.broker_id, run=self._presence.run, since_ms=since_ms)
        )
