"""Looks for orphans from time to time, remembers what it suspects, and clears what stays suspect.

Nothing is cleared that was not an orphan at two looks, unchanged, with the least age between them; and the
transaction that clears it checks once more. On its own the broker clears nothing of which an operator has to
be asked, and nothing at all when more than a fifth of all ledgers have no name, or of all topics no namespace
(more than a few of them, or all there are): that is what lost or restored metadata looks like, nor while
metadata says of itself that it was restored and not released: a ledger that was made while the copy was taken
is an orphan, and holds what was confirmed since. Of the
brokers of a cluster the leader scans; two leaders for a moment do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.orphans.orphan import KINDS, LEDGER, PARTITIONED_TOPIC, TOPIC, TOPIC_LEDGER, Orphan
from magnetar.broker.orphans.orphan_removal import Clearing
from magnetar.broker.orphans.orphan_scan import Look
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.restoration import holds_deletion, read_restoration
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.garbage_collector import ORPHAN_BYTES, SMALL_NUMBER
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

SUSPECTS_MAX: Final = 10_000
"""So many are remembered; the others are counted, and found when these are gone."""

SHARE_MAX: Final = 0.2
"""Share of all ledgers, or of all topics; with more orphans, the broker clears nothing automatically."""

PAUSE_S: Final = 0.02
"""Pause between two steps of a periodic scan."""

ORPHANS = Gauge(
    "magnetar_orphans", "Orphans in metadata at the last look, by kind.", ["kind"], registry=REGISTRY
)
CLEARED = Counter(
    "magnetar_orphans_cleared", "Orphans in metadata that were cleared, by kind.", ["kind"], registry=REGISTRY
)


@dataclass(slots=True)
class Suspect:
    """An orphan in every scan since `since`."""

    orphan: Orphan
    since: float
    """Monotonic seconds."""
    since_ms: int
    looks: int = 1


class Reconciler:
    """The orphans of one cluster, as one broker knows them."""

    def __init__(self, ledgers: ManagedLedgerContext, registry: TopicRegistry, config: OrphanConfig) -> None:
        self._ledgers = ledgers
        self._config = config
        self._clock = ledgers.clock
        self._clearing = Clearing(ledgers, registry)
        self._suspects: dict[str, Suspect] = {}
        self._looking = asyncio.Lock()
        self.looked_ms = 0
        """When the last look ended; 0: there was none."""
        self.truncated = False
        """Whether there were more than are remembered."""
        self._too_many = False
        self._restored = False
        self.leads: Callable[[], bool] = lambda: True
        """Scans periodically on the leader; any broker scans on request."""

    @property
    def suspects(self) -> list[Suspect]:
        """Orphans of the last scan, in the order of keys."""
        return [self._suspects[key] for key in sorted(self._suspects)]

    @property
    def halted(self) -> str | None:
        """Why the broker clears nothing on its own; None while it does."""
        if not self._config.clear:
            return "magnetarOrphanClearingEnabled is off"
        if self._restored:
            return (
                "metadata was restored from a copy and not released: see `magnetar admin metadata status "
                "--look`, then `release`"
            )
        if self._too_many:
            return (
                "more than a fifth of all ledgers have no name, or of all topics no namespace: metadata may "
                "have been lost or restored"
            )
        return None

    def is_settled(self, suspect: Suspect) -> bool:
        """Whether it was an orphan for long enough, at two looks at least."""
        return suspect.looks > 1 and self._clock.monotonic() - suspect.since >= self._config.age_min_s

    def settled(self, kinds: Collection[str] = KINDS) -> list[Orphan]:
        """Returns the orphans that may be cleared."""
        return [each.orphan for each in self.suspects if each.orphan.kind in kinds and self.is_settled(each)]

    async def look(self, *, pause_s: float = 0.0) -> None:
        """Go through all of metadata once; a second caller waits for the first. Raises MetadataError,
        StorageError.
        """

        async def pause() -> None:
            await asyncio.sleep(pause_s)

        async with self._looking:
            look = Look(self._ledgers.metadata, self._ledgers.keys, pause)
            now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
            restoration = await read_restoration(self._ledgers.metadata, self._ledgers.keys)
            self._restored = holds_deletion(restoration)
            found: dict[str, Suspect] = {}
            counts = dict.fromkeys(KINDS, 0)
            async for orphan in look.orphans():
                counts[orphan.kind] += 1
                if len(found) >= SUSPECTS_MAX:
                    continue
                known = self._suspects.get(orphan.key)
                if known is not None and known.orphan.version == orphan.version:
                    found[orphan.key] = Suspect(orphan, known.since, known.since_ms, known.looks + 1)
                else:
                    found[orphan.key] = Suspect(orphan, now, now_ms)
            self._suspects = found
            self.truncated = sum(counts.values()) > len(found)
            self.looked_ms = self._clock.wall_ms()
            # A ledger may be found twice: by its topic's key and by its own.
            self._too_many = _too_many(max(counts[LEDGER], counts[TOPIC_LEDGER]), look.ledgers) or _too_many(
                counts[TOPIC] + counts[PARTITIONED_TOPIC], look.topics
            )
            self._count()

    async def clear(
        self, kinds: Collection[str] = KINDS, *, asked: bool
    ) -> tuple[list[Orphan], list[Orphan]]:
        """Clear the settled ones; returns what was cleared and what failed, with its reason in the log.

        `asked`: on an operator's request, also orphans that need one.
        """
        cleared, failed = [], []
        for orphan in self.settled(kinds):
            if orphan.ask_first and not asked:
                continue
            try:
                done = await self._clearing.clear(orphan)
            except MagnetarError as error:
                log.warning("orphan not cleared", kind=orphan.kind, what=orphan.what, error=str(error))
                failed.append(orphan)
                continue
            if done:
                CLEARED.labels(kind=orphan.kind).inc()
                log.info("orphan cleared", kind=orphan.kind, what=orphan.what, reason=orphan.reason)
                cleared.append(orphan)
            self._suspects.pop(orphan.key, None)
        self._count()
        return cleared, failed

    async def run(self) -> None:
        """Look, and clear what is settled, for ever."""
        while True:
            await asyncio.sleep(self._config.check_interval_s)
            if not self.leads():
                continue
            try:
                await self.look(pause_s=PAUSE_S)
                if self.halted is None:
                    await self.clear(asked=False)
                elif self._suspects:
                    log.warning("orphans are not cleared", reason=self.halted, orphans=len(self._suspects))
            except MagnetarError as error:
                log.warning("orphans could not be looked for, trying again", error=str(error))

    def _count(self) -> None:
        found = [each.orphan for each in self._suspects.values()]
        for kind in KINDS:
            ORPHANS.labels(kind=kind).set(sum(each.kind == kind for each in found))
        ORPHAN_BYTES.labels(where="metadata").set(sum(each.byte_count for each in found))


def _too_many(lost: int, present: int) -> bool:
    """A few may always be lost, unless they are all there is."""
    return lost > SHARE_MAX * present and (lost > SMALL_NUMBER or lost >= present)
