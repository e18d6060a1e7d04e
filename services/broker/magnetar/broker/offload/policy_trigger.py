"""Offload by policy: the owner of a topic periodically selects ledgers to offload.

The rules are Apache Pulsar's: from the newest ledger backwards, a closed ledger is offloaded once it and all
newer ones exceed the threshold in bytes, or once it has been closed for the threshold in seconds. The
selection marks the ledger as wanted, by one write to its own key; the next job offloads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from magnetar.broker.housekeeping import look_at_all
from magnetar.broker.offload.held_ledgers import is_held
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.policy import OffloadPolicy
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.offload.offload_refusals import NoLedgerToOffload
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.offload_figures import OffloadFigures, is_offloaded
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_state import want
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

WANTS_AT_ONCE: Final = 100
"""Maximum ledgers of a topic that are marked in one pass; later passes mark the others."""

_TOLD_MAX: Final = 1_000

WANTED: Final = Counter(
    "magnetar_offload_wanted_total",
    "Ledgers marked for offload by policies.",
    registry=REGISTRY,
)
NOWHERE: Final = Gauge(
    "magnetar_offload_topics_without_location",
    "Loaded topics whose policies require offload while no location is configured.",
    registry=REGISTRY,
)
LEDGERS: Final = Gauge(
    "magnetar_offload_ledgers",
    "Ledgers of loaded topics in offload, by state: waiting (for a job), running, complete, and left "
    "(complete and deleted from bookies; also counted as complete).",
    ["state"],
    registry=REGISTRY,
)
HELD: Final = Gauge(
    "magnetar_offload_held_ledgers",
    "Closed ledgers of loaded topics that are to be offloaded, and wait for the end of an open transaction.",
    registry=REGISTRY,
)
LEDGER_BYTES: Final = Gauge(
    "magnetar_offload_ledger_bytes",
    "Stored bytes of the offloaded ledgers of loaded topics.",
    registry=REGISTRY,
)
OBJECT_BYTES: Final = Gauge(
    "magnetar_offload_object_bytes",
    "Bytes of the objects of the offloaded ledgers of loaded topics.",
    registry=REGISTRY,
)


def due(spans: Sequence[LedgerSpan], policy: OffloadPolicy, now_ms: int) -> list[LedgerSpan]:
    """Returns the closed ledgers that this policy offloads and that are not wanted yet, the oldest first."""
    found: list[LedgerSpan] = []
    byte_length = 0
    for span in reversed(spans):
        byte_length += span.byte_length
        if not span.closed or not span.entries or span.offload is not None:
            continue
        too_much = 0 <= policy.threshold_bytes < byte_length
        too_old = policy.threshold_s >= 0 and now_ms - span.closed_ms >= policy.threshold_s * 1000
        if too_much or too_old:
            found.append(span)
    found.reverse()
    return found


class PolicyTrigger:
    """Checks the loaded topics of one broker until it is cancelled."""

    def __init__(
        self,
        loaded: Callable[[], Mapping[str, Topic]],
        ledgers: OffloadLedgers,
        config: OffloadConfig,
        clock: Clock,
    ) -> None:
        self._loaded = loaded
        self._ledgers = ledgers
        self._config = config
        self._clock = clock
        self._figures = OffloadFigures()
        self._wanted: list[int] = []
        """Number of ledgers marked in this pass, one item for each topic that had some."""
        self._nowhere: set[str] = set()
        self._held = 0
        self._told: set[str] = set()

    async def run(self) -> None:
        """Runs a pass over all topics at each interval, until canceled."""
        while True:
            await asyncio.sleep(self._config.check_interval_s)
            await self.look()

    async def look(self) -> None:
        """Runs one pass; failures are logged and retried by the next pass."""
        self._figures, self._wanted, self._nowhere, self._held = OffloadFigures(), [], set(), 0
        await look_at_all("offload", list(self._loaded().values()), self._look_at, self._clock)
        if self._wanted:
            log.info(
                "offload requested by policies",
                topics=len(self._wanted),
                ledgers=sum(self._wanted),
            )
        figures = self._figures
        for state in ("waiting", "running", "complete", "left"):
            LEDGERS.labels(state=state).set(getattr(figures, state))
        LEDGER_BYTES.set(figures.byte_length)
        OBJECT_BYTES.set(figures.object_bytes)
        NOWHERE.set(len(self._nowhere))
        HELD.set(self._held)
        # Topics that recovered or were unloaded are logged again when they fail again.
        self._told &= self._nowhere

    def _look_at(self, topic: Topic) -> Awaitable[None] | None:
        if not isinstance(topic, PersistentTopic):
            return None
        spans = topic.ledger.spans.spans
        self._figures.add(spans)
        policy = topic.policies.offload
        wanted = due(spans, policy, self._clock.wall_ms()) if policy.automatic else []
        if topic.ledger.transactions is not None:
            wanted = self._without_held(topic, wanted)
        if not wanted:
            return None
        if policy.location is None:
            self._tell(topic)
            return None
        return self._want(topic, wanted[:WANTS_AT_ONCE], policy.location)

    def _without_held(self, topic: PersistentTopic, wanted: list[LedgerSpan]) -> list[LedgerSpan]:
        """Returns those that no open transaction holds back, and counts those that one does."""
        ledger = topic.ledger
        ready = [span for span in wanted if not is_held(ledger, span)]
        requested = (
            each for each in ledger.spans.spans if each.offload is not None and not is_offloaded(each)
        )
        self._held += len(wanted) - len(ready) + sum(is_held(ledger, each) for each in requested)
        return ready

    async def _want(self, topic: PersistentTopic, spans: Sequence[LedgerSpan], location: str) -> None:
        name, creation_id = topic.name, topic.ledger.creation_id
        exact = topic.policies.offload.exact
        step = partial(want, location=location, exact=exact, now_ms=self._clock.wall_ms())
        wanted = []
        for span in spans:
            try:
                await self._ledgers.change(name, creation_id, span.ref.id, step)
            except NoLedgerToOffload:
                continue  # trimmed meanwhile
            wanted.append(span.ref.id)
            WANTED.inc()
        if wanted:
            self._wanted.append(len(wanted))
            log.debug("offload requested by policy", topic=name.full, ledgers=wanted, to=location)
        await topic.ledger.refresh_offload()

    def _tell(self, topic: Topic) -> None:
        name = topic.name.full
        self._nowhere.add(name)
        if name in self._told or len(self._told) >= _TOLD_MAX:
            return
        self._told.add(name)
        log.warning("cannot offload ledgers", topic=name, reason=topic.policies.offload.missing_location)
