"""The load of all brokers as the leader knows it: their last reports, evened out, with what is on its way.

Time is given. A broker's steady load follows its reports slowly, so that a short peak moves nothing; at first
it is the average of all that was reported. What was moved away from a broker or given to it counts at once,
before any report shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.load_report import usage_percent, work
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import LoadReport
from magnetar.common.errors import InvalidName
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

SETTLE_S: Final = 10.0
"""Between the assignment of a bundle and the first report that is believed to have it in it."""

PENDING_S: Final = 60.0
"""After which a bundle that was given counts no more by itself: what was not reported since is no news."""

EXPECTED_MIN_PERCENT: Final = 0.5
EXPECTED_MAX_PERCENT: Final = 10.0
"""What a bundle that nobody has measured is expected to take of its broker."""

REPORTS_MAX: Final = 10_000
"""Brokers whose reports are kept."""


@dataclass(frozen=True, slots=True)
class BundleShare:
    """What a bundle takes of its broker, in percentage points of the broker's load."""

    bundle: Bundle
    share: float


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker at one moment, as decisions see it."""

    broker_id: str
    usage: float
    """As last reported, with what was given since; in percent."""
    steady: float
    """Evened out over time."""
    topics: int
    age_s: float
    """Of the last report."""
    shares: tuple[BundleShare, ...] = ()
    """Its most loaded bundles, the most loaded first."""
    draining: bool = False


class _Pending:
    """Bundles that a broker was given lately, with what each is expected to take, in the order of time."""

    __slots__ = ("_given", "total")

    def __init__(self) -> None:
        self._given: dict[Bundle, tuple[float, float]] = {}
        self.total = 0.0

    def add(self, bundle: Bundle, share: float, now: float) -> None:
        self.drop(bundle)
        self._given[bundle] = now, share
        self.total += share

    def drop(self, bundle: Bundle) -> None:
        found = self._given.pop(bundle, None)
        if found is not None:
            self.total = self.total - found[1] if self._given else 0.0

    def drop_until(self, at: float) -> None:
        """What was given then or before counts no more."""
        while self._given:
            bundle = next(iter(self._given))
            if self._given[bundle][0] > at:
                return
            self.drop(bundle)


@dataclass(slots=True, eq=False)
class _Known:
    report: LoadReport
    since_s: float
    """When the first report of this run came."""
    received_s: float
    usage: float
    """Of the report, with what was moved since."""
    steady: float
    """When the report was received, with what was moved since."""
    parts: dict[Bundle, float]
    """Of the reported bundles: which part of the broker's load each is."""
    pending: _Pending
    """What was given and may not be in the report."""


class ClusterLoad:
    """Reports by broker. Plain calls."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._known: dict[str, _Known] = {}
        self._given: dict[str, _Pending] = {}
        """The same for brokers that have not reported yet."""

    def report(self, report: LoadReport, now: float) -> None:
        """A broker has reported. One of another run than before begins anew."""
        broker_id = report.broker_id
        usage = usage_percent(report, self._config.report)
        known = self._known.get(broker_id)
        if known is None or known.report.run != report.run:
            if known is None and len(self._known) >= REPORTS_MAX:
                return
            given = self._given.pop(broker_id, None) or _Pending()
            self._known[broker_id] = _Known(report, now, now, usage, usage, _parts(report), given)
            return
        known.steady = self._steady(known, now)
        known.report, known.received_s, known.usage = report, now, usage
        known.parts = _parts(report)
        known.pending.drop_until(now - SETTLE_S)

    def keep(self, runs: Mapping[str, int]) -> None:
        """Forget all brokers but these, which are up, and former runs of these."""
        for broker_id in [each for each, known in self._known.items() if runs.get(each) != known.report.run]:
            del self._known[broker_id]
        for broker_id in [each for each in self._given if each not in runs]:
            del self._given[broker_id]

    def given(self, bundle: Bundle, broker_id: str, now: float) -> None:
        """A broker was given a bundle that it will report later."""
        self._pending(broker_id).add(bundle, self.expected_share(bundle), now)

    def not_given(self, bundle: Bundle, broker_id: str) -> None:
        """It did not take it after all."""
        self._pending(broker_id).drop(bundle)

    def moved(self, bundle: Bundle, share: float, from_broker: str, to_broker: str) -> None:
        """A bundle is moved: the steady load of both is another one from now on."""
        for broker_id, change in ((from_broker, -share), (to_broker, share)):
            known = self._known.get(broker_id)
            if known is not None:
                known.usage = max(0.0, known.usage + change)
                known.steady = max(0.0, known.steady + change)

    def reported(self, broker_ids: Iterable[str]) -> bool:
        """Whether all of these have reported."""
        return all(broker_id in self._known for broker_id in broker_ids)

    def reports(self, now: float) -> list[tuple[LoadReport, float]]:
        """The last report of each broker with its age in seconds, by broker id."""
        return [(known.report, now - known.received_s) for _, known in sorted(self._known.items())]

    def brokers(self, now: float) -> list[BrokerLoad]:
        """Every broker whose report still counts, by id."""
        age_max = self._config.shedding.report_age_max_s
        return [
            self._broker(broker_id, known, now)
            for broker_id, known in sorted(self._known.items())
            if now - known.received_s <= age_max
        ]

    def usage_of(self, broker_id: str, now: float) -> tuple[float, int]:
        """(load in percent, topics) of a broker; one that has not reported is taken for an average one."""
        pending = self._pending(broker_id)
        pending.drop_until(now - PENDING_S)
        known = self._known.get(broker_id)
        if known is None:
            usages = [each.usage for each in self._known.values()]
            return (sum(usages) / len(usages) if usages else 0.0) + pending.total, 0
        return known.usage + pending.total, known.report.total.topics

    def expected_share(self, bundle: Bundle) -> float:
        """What a bundle will take of its broker: as it does now where it is known, else as most do."""
        for known in self._known.values():
            part = known.parts.get(bundle)
            if part is not None:
                return known.usage * part
        bundles = sum(known.report.bundles for known in self._known.values())
        usage = sum(known.usage for known in self._known.values())
        average = usage / bundles if bundles else EXPECTED_MIN_PERCENT
        return min(max(average, EXPECTED_MIN_PERCENT), EXPECTED_MAX_PERCENT)

    # -- inside

    def _pending(self, broker_id: str) -> _Pending:
        known = self._known.get(broker_id)
        if known is not None:
            return known.pending
        return self._given.setdefault(broker_id, _Pending())

    def _steady(self, known: _Known, now: float) -> float:
        """A minute after a change, `history` of the difference is left; less where less is known."""
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
            tuple(BundleShare(bundle, steady * part) for bundle, part in known.parts.items()),
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
