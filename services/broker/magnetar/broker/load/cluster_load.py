"""The leader's view of every broker's load: last reports, smoothed, plus moves in flight.

Time is a parameter. A broker's steady load follows its reports slowly, so a short peak moves nothing; it
starts at the average of all reports. A bundle that was moved counts for its new broker at once, before any
report shows it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.load_report import usage_percent, work
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import LoadReport
from magnetar.common.errors import InvalidName
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

SETTLE_S: Final = 10.0
"""Seconds between the assignment of a bundle and the first report that is assumed to include it."""

PENDING_S: Final = 60.0
"""Seconds after which an assigned bundle stops counting separately: reports are assumed to include it."""

EXPECTED_MIN_PERCENT: Final = 0.5
EXPECTED_MAX_PERCENT: Final = 10.0
"""Assumed share of its broker's load of a bundle that was never measured, in percent."""

REPORTS_MAX: Final = 10_000
"""Maximum number of brokers whose reports are kept."""


@dataclass(frozen=True, slots=True)
class BundleShare:
    """A bundle's share of its broker's load, in percentage points."""

    bundle: Bundle
    share: float


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A snapshot of one broker for placement and shedding decisions."""

    broker_id: str
    usage: float
    """Last reported load plus bundles assigned since, in percent."""
    steady: float
    """Load smoothed over time, in percent."""
    topics: int
    age_s: float
    """Age of the last report, in seconds."""
    parts: Mapping[Bundle, float] = field(default_factory=dict)
    """The part of its load, 0 to 1, of its most loaded bundles, in descending order."""
    draining: bool = False

    @property
    def shares(self) -> list[BundleShare]:
        """Its most loaded bundles, in descending order; made for the few brokers that shed bundles."""
        return [BundleShare(bundle, self.steady * part) for bundle, part in self.parts.items()]


class _Pending:
    """Bundles recently assigned to a broker, with the expected share of each, oldest first."""

    __slots__ = ("_given", "_oldest", "total")

    def __init__(self) -> None:
        self._given: dict[Bundle, tuple[float, float]] = {}
        self._oldest = math.inf
        """A time before which no bundle was assigned."""
        self.total = 0.0

    def add(self, bundle: Bundle, share: float, now: float) -> None:
        self.drop(bundle)
        self._given[bundle] = now, share
        self._oldest = min(self._oldest, now)
        self.total += share

    def drop(self, bundle: Bundle) -> None:
        found = self._given.pop(bundle, None)
        if found is not None:
            self.total = self.total - found[1] if self._given else 0.0

    def drop_until(self, at: float) -> None:
        """Drops bundles assigned at or before this time."""
        if at < self._oldest:
            return
        while self._given:
            bundle, (self._oldest, _) = next(iter(self._given.items()))
            if self._oldest > at:
                return
            self.drop(bundle)
        self._oldest = math.inf


@dataclass(slots=True, eq=False)
class _Known:
    report: LoadReport
    since_s: float
    """Time of the first report of this run, in seconds."""
    received_s: float
    usage: float
    """Load in the report, adjusted for moves since."""
    steady: float
    """Steady load at the time of the report, adjusted for moves since."""
    parts: dict[Bundle, float]
    """Each reported bundle's part of the broker's load, 0 to 1."""
    pending: _Pending
    """Assigned bundles that the report may not include."""
    topics: int
    """Topics in the report."""


@dataclass(frozen=True, slots=True)
class _Averages:
    of_broker: float
    """Load of a broker, in percent."""
    of_bundle: float
    """Expected share of a bundle that was never measured, in percentage points."""


class ClusterLoad:
    """Load reports by broker; synchronous."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._known: dict[str, _Known] = {}
        self._given: dict[str, _Pending] = {}
        """Assigned bundles of brokers that have not reported yet."""
        self._measured_by: dict[Bundle, str] = {}
        """The broker that reported a bundle last."""
        self._averages: _Averages | None = None
        """None when a report or a move has changed them."""
        self._times: deque[tuple[float, str]] = deque()
        """When bundles were assigned, and to which broker."""
        self._changed: set[str] = set()
        self._unknown: set[str] = set()
        """Brokers that were asked about before they reported: the average is said of them."""

    def report(self, report: LoadReport, now: float) -> None:
        """Records a report; a report of a new run replaces all that was known of the broker."""
        broker_id = report.broker_id
        usage = usage_percent(report, self._config.report)
        known = self._known.get(broker_id)
        if known is None or known.report.run != report.run:
            if known is None and len(self._known) >= REPORTS_MAX:
                return
            given = self._given.pop(broker_id, None) or _Pending()
            parts = _parts(report)
            self._measure(broker_id, {} if known is None else known.parts, parts)
            self._known[broker_id] = _Known(report, now, now, usage, usage, parts, given, report.total.topics)
            return
        known.steady = self._steady(known, now)
        known.report, known.received_s, known.usage = report, now, usage
        known.topics = report.total.topics
        before, known.parts = known.parts, _parts(report)
        self._measure(broker_id, before, known.parts)
        known.pending.drop_until(now - SETTLE_S)

    def keep(self, runs: Mapping[str, int]) -> None:
        """Drops all brokers except these, which are running, and earlier runs of these."""
        for broker_id in [each for each, known in self._known.items() if runs.get(each) != known.report.run]:
            self._measure(broker_id, self._known.pop(broker_id).parts, {})
        for broker_id in [each for each in self._given if each not in runs]:
            del self._given[broker_id]

    def given(self, bundle: Bundle, broker_id: str, now: float) -> None:
        """Records an assigned bundle, which the broker will report later."""
        self._times.append((now, broker_id))
        self._changed.add(broker_id)
        self._pending(broker_id).add(bundle, self.expected_share(bundle), now)

    def not_given(self, bundle: Bundle, broker_id: str) -> None:
        """Withdraws an assignment that the broker did not accept."""
        self._changed.add(broker_id)
        self._pending(broker_id).drop(bundle)

    def moved(self, bundle: Bundle, share: float, from_broker: str, to_broker: str) -> None:
        """Records a move, which changes the steady load of both brokers."""
        for broker_id, change in ((from_broker, -share), (to_broker, share)):
            known = self._known.get(broker_id)
            if known is not None:
                self._changed.add(broker_id)
                known.usage = max(0.0, known.usage + change)
                known.steady = max(0.0, known.steady + change)
        self._averages = None

    def reported(self, broker_ids: Iterable[str]) -> bool:
        """Whether all of these brokers have reported."""
        return all(broker_id in self._known for broker_id in broker_ids)

    def reports(self, now: float) -> list[tuple[LoadReport, float]]:
        """Returns the last report of each broker with its age in seconds, by broker id."""
        return [(known.report, now - known.received_s) for _, known in sorted(self._known.items())]

    def brokers(self, now: float) -> list[BrokerLoad]:
        """Returns every broker whose report is recent enough, by id."""
        age_max = self._config.shedding.report_age_max_s
        return [
            self._broker(broker_id, known, now)
            for broker_id, known in sorted(self._known.items())
            if now - known.received_s <= age_max
        ]

    def usage_of(self, broker_id: str, now: float) -> tuple[float, int]:
        """Returns (load in percent, topics) of a broker; the average if it has not reported."""
        known = self._known.get(broker_id)
        pending = self._pending(broker_id) if known is None else known.pending
        pending.drop_until(now - PENDING_S)
        if known is None:
            self._unknown.add(broker_id)
            return self._average().of_broker + pending.total, 0
        return known.usage + pending.total, known.topics

    def forget_pending(self, now: float) -> None:
        """Drops assigned bundles that no longer count separately."""
        while self._times and self._times[0][0] <= now - PENDING_S:
            broker_id = self._times.popleft()[1]
            known = self._known.get(broker_id)
            pending = self._given.get(broker_id) if known is None else known.pending
            if pending is not None:
                self._changed.add(broker_id)
                pending.drop_until(now - PENDING_S)

    def take_changed(self) -> set[str]:
        """Returns the brokers of which `usage_of` says something else than at the last call."""
        changed, self._changed = self._changed, set()
        if self._averages is None:
            changed |= self._unknown
            self._unknown -= self._known.keys()
        return changed

    def expected_share(self, bundle: Bundle) -> float:
        """Returns the expected share of a bundle: its present share if known, otherwise a typical one."""
        known = self._known.get(self._measured_by.get(bundle, ""))
        if known is not None:
            return known.usage * known.parts[bundle]
        return self._average().of_bundle

    # -- inside

    def _measure(self, broker_id: str, before: Iterable[Bundle], parts: Iterable[Bundle]) -> None:
        """Notes which bundles the broker reports from now on."""
        self._changed.add(broker_id)
        for bundle in before:
            if self._measured_by.get(bundle) == broker_id:
                del self._measured_by[bundle]
        for bundle in parts:
            self._measured_by[bundle] = broker_id
        self._averages = None

    def _average(self) -> _Averages:
        """Returns the averages of all reports. The leader needs them for each bundle that it assigns, and
        they change with a report only.
        """
        if self._averages is None:
            usage = sum(known.usage for known in self._known.values())
            bundles = sum(known.report.bundles for known in self._known.values())
            of_bundle = usage / bundles if bundles else EXPECTED_MIN_PERCENT
            self._averages = _Averages(
                usage / len(self._known) if self._known else 0.0,
                min(max(of_bundle, EXPECTED_MIN_PERCENT), EXPECTED_MAX_PERCENT),
            )
        return self._averages

    def _pending(self, broker_id: str) -> _Pending:
        known = self._known.get(broker_id)
        if known is not None:
            return known.pending
        return self._given.setdefault(broker_id, _Pending())

    def _steady(self, known: _Known, now: float) -> float:
        """Returns the smoothed load: a minute after a change, `history` of the difference is left; less for a
        young broker.
        """
        passed, before = now - known.received_s, known.received_s - known.since_s
        if passed <= 0:
            return known.steady
        history: float = min(self._config.shedding.history ** (passed / 60), before / (before + passed))
        return known.usage + (known.steady - known.usage) * history

    def _broker(self, broker_id: str, known: _Known, now: float) -> BrokerLoad:
        steady = self._steady(known, now)
        return BrokerLoad(
            broker_id,
            known.usage + known.pending.total,
            steady,
            known.report.total.topics,
            now - known.received_s,
            known.parts,
            known.report.draining,
        )


def _parts(report: LoadReport) -> dict[Bundle, float]:
    total = work(report.total)
    found: dict[Bundle, float] = {}
    for each in report.loads:
        try:
            bundle = NamespaceName.parse(each.namespace), BundleRange.parse(each.bundle)
        except InvalidName:
            continue
        found[bundle] = work(each.load) / total if total else 0.0
    return found
