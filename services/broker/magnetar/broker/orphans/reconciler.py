"""Scans metadata for orphans periodically, and clears those that persist.

An orphan is cleared only if two scans, at least `age_min_s` apart, have found it unchanged; the clearing
transaction checks again. Without an operator's request the broker does not clear:

- orphans that may be intended (`ask_first`);

- anything, when more than a fifth of all ledgers have no name, or of all topics no namespace (more than a
  few, or all of them): metadata may have been lost or restored;

- anything, while restored metadata is not released: a ledger created during the backup is an orphan and holds
  later confirmed messages.

In a cluster the leader scans; two leaders at the same time do no harm.
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
"""Maximum orphans remembered; further ones are counted, and found again when these are cleared."""

SHARE_MAX: Final = 0.2
"""Share of all ledgers, or of all topics; with more orphans, the broker clears nothing automatically."""

PAUSE_S: Final = 0.02
"""Pause between two steps of a periodic scan."""

ORPHANS = Gauge(
    "magnetar_orphans", "Orphans in metadata at the last scan, by kind.", ["kind"], registry=REGISTRY
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
    """Finds and clears the orphans of one cluster."""

    def __init__(self, ledgers: ManagedLedgerContext, registry: TopicRegistry, config: OrphanConfig) -> None:
        self._ledgers = ledgers
        self._config = config
        self._clock = ledgers.clock
        self._clearing = Clearing(ledgers, registry)
        self._suspects: dict[str, Suspect] = {}
        self._looking = asyncio.Lock()
        self.looked_ms = 0
        """Time when the last scan ended, ms since 1970 UTC; 0: none."""
        self.truncated = False
        """Whether the last scan found more than SUSPECTS_MAX orphans."""
        self._too_many = False
        self._restored = False
        self.leads: Callable[[], bool] = lambda: True
        """Scans periodically on the leader; any broker scans on request."""

    @property
    def suspects(self) -> list[Suspect]:
        """Orphans of the last scan, ordered by key."""
        return [self._suspects[key] for key in sorted(self._suspects)]

    @property
    def halted(self) -> str | None:
        """The reason why the broker clears nothing automatically; None while it does."""
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
        """Whether it was an orphan for long enough, in at least two scans."""
        return suspect.looks > 1 and self._clock.monotonic() - suspect.since >= self._config.age_min_s

    def settled(self, kinds: Collection[str] = KINDS) -> list[Orphan]:
        """Returns the orphans that may be cleared."""
        return [each.orphan for each in self.suspects if each.orphan.kind in kinds and self.is_settled(each)]

    async def look(self, *, pause_s: float = 0.0) -> None:
        """Scans all of metadata once; a concurrent call waits for the first. Raises MetadataError,
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
        """Clears the settled orphans; returns the cleared and the failed ones, whose errors are logged.

        `asked`: on an operator's request, also orphans that require one.
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
        """Scans periodically and clears settled orphans, until cancelled."""
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
                log.warning("orphan scan failed, retrying", error=str(error))

    def _count(self) -> None:
        found = [each.orphan for each in self._suspects.values()]
        for kind in KINDS:
            ORPHANS.labels(kind=kind).set(sum(each.kind == kind for each in found))
        ORPHAN_BYTES.labels(where="metadata").set(sum(each.byte_count for each in found))


def _too_many(lost: int, present: int) -> bool:
    """Whether too many keys are orphans; a few are always accepted, unless they are all."""
    return lost > SHARE_MAX * present and (lost > SMALL_NUMBER or lost >= present)
