"""Compares restored metadata with bookies, copies misplaced entries, and reports what cannot be repaired.

An operator runs it (`magnetar admin metadata reconcile`) after bookies were started and before brokers are.
Every step is idempotent and may be interrupted: entries are copied to bookies before metadata names them, by
compare-and-set, and the restoration is marked reconciled only at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.bookie.autorecovery.entry_copier import CopyFailed, EntryCopier
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.bookie.restoration.inventory import Inventory, take_inventory
from magnetar.bookie.restoration.ledger_claims import owner_of, read_claims
from magnetar.bookie.restoration.ledger_verdict import Share, judge
from magnetar.common.errors import MagnetarError, StorageError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import ABSENT, MetadataStore, Op, Put
from magnetar.common.metadata.values import (
    BookieCookie,
    Counter,
    LedgerMetadata,
    Restoration,
    decode,
    encode,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.repair_plan import Move, striping_of, with_move

log = get_logger(__name__)

ATTEMPTS_MAX: Final = 8
"""Maximum attempts at one ledger whose metadata changes meanwhile, because auto-recovery is running."""


_HALF: Final = "the restoration was not finished: run `magnetar admin metadata restore` again"


class NotReconcilable(MagnetarError):
    """Nothing was compared; the message names the obstacle."""


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A ledger on bookies that metadata lacks or does not assign to a topic or transaction coordinator."""

    ref: LedgerRef
    entries: int
    byte_length: int
    bookies: tuple[str, ...]
    topic: str = ""
    """The owner in the ledger's metadata, which does not reference it; empty if metadata lacks the ledger."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A ledger with entries in metadata that no bookie holds."""

    ledger_id: int
    topic: str
    entries: int
    cursors: bool = False
    """Whether it holds the topic's cursors: then the topic cannot be loaded."""


@dataclass(slots=True)
class Findings:
    """Results and repairs of a comparison."""

    bookies: list[str] = field(default_factory=list)
    ledgers: int = 0
    brought_home: list[int] = field(default_factory=list)
    """Ledgers with entries outside the ensembles that metadata names."""
    problems: dict[int, str] = field(default_factory=dict)
    """Reasons, by ledger, why its entries could not be copied back."""
    unnamed: list[Unnamed] = field(default_factory=list)
    """Ledgers created after the backup, or while it was taken."""
    garbage: int = 0
    """Ledgers on bookies that were already deleted before the backup was taken."""
    missing: list[Missing] = field(default_factory=list)


async def bookies_to_ask(
    metadata: MetadataStore, keys: Keys, registry: BookieRegistry, without: Collection[str] = ()
) -> list[str]:
    """Returns all bookies in metadata, which must be up, and all other registered ones, except `without`.
    Raises NotReconcilable, MetadataError.
    """
    listing = await metadata.children(keys.cookies_prefix)
    known = {decode(BookieCookie, item.value).bookie_id for item in listing.items}
    up = set(registry.bookies)
    away = sorted(known - up - set(without))
    if away:
        raise NotReconcilable(
            f"bookies are not up: {', '.join(away)}. Start them: what only they hold would be "
            "overlooked. Of those that are gone for good say so (--without)"
        )
    if not up:
        raise NotReconcilable("no bookie is up: start them first")
    return sorted(up - set(without))


class Reconciler:
    """Compares the bookies that are up; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        registry: BookieRegistry,
        clients: BookieClients,
        clock: Clock,
        rng: random.Random,
        *,
        progress: Callable[[int], None] = lambda ledgers: None,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._registry = registry
        self._clients = clients
        self._clock = clock
        self._progress = progress
        self._copier = EntryCopier(clients, rng, Throttle(0), lambda bookie_id: bookie_id in registry.bookies)

    async def compare(
        self, *, without: Collection[str] = (), mend: bool, leave: Collection[int] = ()
    ) -> Findings:
        """Compares all ledgers; with `mend` copies misplaced entries back and updates metadata.

        `without`: permanently lost bookies, which are not required. `leave`: ledgers whose problems an
        operator accepts. Raises NotReconcilable, MetadataError, StorageError (including BookieUnreachable).
        """
        version, restoration = await self._restoration()
        before_brokers = restoration.state == Restoration.RESTORED
        if mend and before_brokers:
            await self._require_no_broker()
        bookies = await bookies_to_ask(self._metadata, self._keys, self._registry, without)
        inventory = await take_inventory(self._clients, bookies)
        found = Findings(bookies=list(bookies))
        named = await self._ledgers(restoration, inventory, found, mend=mend)
        given = {ref.id for ref in named}
        for ref in inventory:
            if ref in named:
                continue
            # Brokers create and delete ledgers with ids from lost_until on.
            made_since = restoration.lost_from <= ref.id and (
                before_brokers or ref.id < restoration.lost_until
            )
            # An id is used twice only if metadata was restored and this was declared later.
            if made_since or ref.id in given:
                found.unnamed.append(_unnamed(ref, inventory))
            else:
                found.garbage += 1
        if mend and before_brokers and found.problems.keys() <= set(leave):
            await self._reconciled(version, restoration, inventory.highest_id)
        return found

    # --- internal ---

    async def _restoration(self) -> tuple[int, Restoration]:
        found = await self._metadata.get(self._keys.restoration)
        if found is None:
            raise NotReconcilable("this metadata was not restored: there is nothing to compare")
        restoration = decode(Restoration, found.value)
        if restoration.state == Restoration.WRITING:
            raise NotReconcilable(_HALF)
        return found.version, restoration

    async def _require_no_broker(self) -> None:
        """Refuses running brokers: one may have read this metadata before it was restored."""
        brokers = (await self._metadata.children(self._keys.brokers_prefix)).items
        if brokers:
            names = ", ".join(self._keys.broker_id_of(item.key) for item in brokers)
            raise NotReconcilable(
                f"brokers are up, and may be at work on open ledgers: {names}. Stop them, wait until their "
                "sessions have ended, and run this again"
            )

    async def _ledgers(
        self, restoration: Restoration, inventory: Inventory, found: Findings, *, mend: bool
    ) -> set[LedgerRef]:
        """Compares all ledgers in metadata and returns them. Once brokers may be up, ledgers with possible
        writers are skipped, and ledgers created since the inventory do not count as missing.
        """
        open_ones = restoration.state == Restoration.RESTORED
        named: set[LedgerRef] = set()
        claims = await read_claims(self._metadata, self._keys)
        async for page in ledger_pages(self._metadata, self._keys):
            for item in page.items:
                ledger = decode(LedgerMetadata, item.value)
                ref = LedgerRef(ledger.ref.id, ledger.ref.key)
                named.add(ref)
                found.ledgers += 1
                if ref.id < restoration.lost_from and inventory.of(ref) and claims.lack(ledger):
                    found.unnamed.append(_unnamed(ref, inventory, owner_of(ledger)))
                verdict = judge(ledger, inventory.of(ref), inventory.bookies)
                if verdict.missing and (open_ones or ref.id < restoration.lost_until):
                    topic, kind = owner_of(ledger), ledger.properties.get("kind", "")
                    entries = max(ledger.last_entry_id + 1, 0)
                    found.missing.append(Missing(ref.id, topic, entries, cursors=kind == "cursors"))
                if any(share.settled or open_ones for share in verdict.shares):
                    if mend:
                        await self._bring_home(ref, inventory, found, open_ones=open_ones)
                    else:
                        found.brought_home.append(ref.id)
                if found.ledgers % 100 == 0:
                    self._progress(found.ledgers)
        return named

    async def _bring_home(
        self, ref: LedgerRef, inventory: Inventory, found: Findings, *, open_ones: bool
    ) -> None:
        done: set[tuple[int, int]] = set()
        """(first entry of the fragment, position) of shares already copied back."""
        lost_sets = 0
        while lost_sets < ATTEMPTS_MAX:
            item = await self._metadata.get(self._keys.ledger(ref.id))
            if item is None:
                return
            ledger = decode(LedgerMetadata, item.value)
            left = [
                share
                for share in judge(ledger, inventory.of(ref), inventory.bookies).shares
                if (share.settled or open_ones) and (share.fragment.first, share.position) not in done
            ]
            if not left:
                found.brought_home.append(ref.id)
                return
            try:
                after = await self._bring(ref, ledger, left[0])
                if after is not None:
                    await self._metadata.commit([Put(item.key, encode(after), item.version)])
            except (VersionMismatch, UnknownOutcome):
                lost_sets += 1
            except StorageError as error:
                found.problems[ref.id] = str(error)
                return
            else:
                done.add((left[0].fragment.first, left[0].position))
        found.problems[ref.id] = "its metadata changes all the time: run this again"

    async def _bring(self, ref: LedgerRef, ledger: LedgerMetadata, share: Share) -> LedgerMetadata | None:
        """Copies one share to its bookie, or to a replacement if that is down; returns the updated metadata,
        or None if it needs no update. Raises CopyFailed.
        """
        fragment, striping = share.fragment, striping_of(ledger)
        target = share.bookie_id
        if target not in self._registry.bookies:
            target = self._in_its_place(share)
        first, last = fragment.first, fragment.last
        if not striping.striped:
            first = await self._copier.there_until(ref, first, last, target)
        copied = await self._copier.copy_share(
            ref, striping, fragment.bookie_ids, share.position, first, last, target, share.others
        )
        log.info("entries brought home", ledger=ref.id, first=first, last=last, bookie=target, copied=copied)
        if target == share.bookie_id:
            return None
        if share.settled:
            moved = with_move(ledger, Move(fragment, share.bookie_id), target)
            assert moved is not None, "the share was judged by this metadata"
            return moved
        after = LedgerMetadata()
        after.CopyFrom(ledger)
        after.fragments[-1].bookie_ids[share.position] = target
        return after

    def _in_its_place(self, share: Share) -> str:
        """Returns a replacement bookie, preferably one that holds part of the share."""
        able: Sequence[str] = [
            *(each for each in share.others if each in self._registry.bookies),
            *(info.bookie_id for info in self._registry.writable()),
        ]
        for bookie_id in able:
            if bookie_id not in share.fragment.bookie_ids:
                return bookie_id
        raise CopyFailed(f"no bookie can take the place of {share.bookie_id}, which is not up")

    async def _reconciled(self, version: int, restoration: Restoration, highest_id: int) -> None:
        restoration.state = Restoration.RECONCILED
        restoration.reconciled_ms = self._clock.wall_ms()
        ops: list[Op] = []
        counter = await self._metadata.get(self._keys.ledger_id_counter)
        after = 1 if counter is None else decode(Counter, counter.value).next
        if highest_id >= after:
            # More ledgers were created after the backup than ids were reserved for them.
            restoration.lost_until = highest_id + 1
            ops.append(
                Put(
                    self._keys.ledger_id_counter,
                    encode(Counter(next=highest_id + 1)),
                    ABSENT if counter is None else counter.version,
                )
            )
        ops.append(Put(self._keys.restoration, encode(restoration), version))
        await _commit(self._metadata, ops)


async def release(metadata: MetadataStore, keys: Keys, clock: Clock) -> Restoration:
    """Allows deletion of ledgers that metadata lacks. Raises NotReconcilable, also while bookies have ledgers
    that were not compared yet; MetadataError."""
    found = await metadata.get(keys.restoration)
    if found is None:
        raise NotReconcilable("this metadata was not restored: nothing is held back")
    restoration = decode(Restoration, found.value)
    if restoration.state == Restoration.RELEASED:
        return restoration
    if restoration.state == Restoration.WRITING:
        raise NotReconcilable(_HALF)
    if restoration.state == Restoration.RESTORED and (await metadata.children(keys.cookies_prefix)).items:
        raise NotReconcilable(
            "this metadata was not compared with bookies: run `magnetar admin metadata reconcile` first, "
            "or brokers may cut off what open ledgers got since the copy"
        )
    restoration.state = Restoration.RELEASED
    restoration.released_ms = clock.wall_ms()
    await _commit(metadata, [Put(keys.restoration, encode(restoration), found.version)])
    return restoration


async def _commit(metadata: MetadataStore, ops: Sequence[Op]) -> None:
    """Commits the last step. Raises NotReconcilable after a concurrent step or an unknown outcome."""
    try:
        await metadata.commit(ops)
    except (VersionMismatch, UnknownOutcome) as error:
        raise NotReconcilable(
            "the state of the restoration changed meanwhile, or is not known: see `magnetar admin metadata "
            f"status`, and run this again if it did not happen ({error})"
        ) from error


def _unnamed(ref: LedgerRef, inventory: Inventory, topic: str = "") -> Unnamed:
    held = inventory.of(ref)
    return Unnamed(
        ref,
        1 + max(state.last_entry_id for state in held.values()),
        max(state.byte_length for state in held.values()),
        tuple(sorted(held)),
        topic,
    )
