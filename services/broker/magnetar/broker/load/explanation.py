"""Why a bundle is at its broker, and what would move it: reasons made of what the leader decides by. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.reason import Reason

if TYPE_CHECKING:  # not loaded by a standalone
    from magnetar.broker.load.config import LoadConfig
    from magnetar.broker.load.placement import Candidate
    from magnetar.common.cluster.bundle_owners import Owned
    from magnetar.common.control.control_pb2 import Load


class PlacementCode(StrEnum):
    """The kinds of reasons; docs/explain.md has each with its test."""

    SOLE_BROKER = "sole_broker"
    OWNED = "owned"
    NO_OWNER = "no_owner"
    BEST_CHOICE = "best_choice"
    BETTER_CHOICE = "better_choice"
    NO_CHOICE = "no_choice"
    LOAD = "load"
    BALANCING_OFF = "balancing_off"
    POLICIES_PIN = "policies_pin"
    RESTING = "resting"
    DRAINING = "draining"
    NOT_ALLOWED = "not_allowed"
    UNLOAD = "unload"
    SPLIT = "split"
    SPLITTING_OFF = "splitting_off"
    BUNDLES_MAX = "bundles_max"
    SINGLE_TOPIC = "single_topic"


_NEXT: Final[Mapping[PlacementCode, str]] = {
    PlacementCode.SOLE_BROKER: "nothing: there is no other broker",
    PlacementCode.OWNED: "nothing: an owner keeps its bundles while it runs and nothing below moves them",
    PlacementCode.NO_OWNER: "nothing: the next lookup assigns it",
    PlacementCode.BEST_CHOICE: "nothing",
    PlacementCode.BETTER_CHOICE: "unload the bundle to have it assigned anew",
    PlacementCode.NO_CHOICE: "see magnetar admin ns-isolation-policy list, and which brokers run",
    PlacementCode.LOAD: "nothing: the leader compares by itself; after a split less moves at once",
    PlacementCode.BALANCING_OFF: "set loadBalancerEnabled and loadBalancerSheddingEnabled to change that",
    PlacementCode.POLICIES_PIN: "set loadBalancerSheddingBundlesWithPoliciesEnabled to have load move it",
    PlacementCode.RESTING: "nothing: it may move again after that time",
    PlacementCode.DRAINING: "nothing: the broker hands its bundles over before it stops",
    PlacementCode.NOT_ALLOWED: "unload the bundle: it then goes to a broker that the policies allow",
    PlacementCode.UNLOAD: "magnetar admin namespaces unload --bundle moves it now",
    PlacementCode.SPLIT: "nothing: its owner splits it; magnetar admin namespaces split-bundle does now",
    PlacementCode.SPLITTING_OFF: "set loadBalancerAutoBundleSplitEnabled, or use split-bundle",
    PlacementCode.BUNDLES_MAX: "raise loadBalancerNamespaceMaximumBundles, or use split-bundle",
    PlacementCode.SINGLE_TOPIC: "partition the topic: a bundle is split between topics",
}


def placement_reason(
    code: PlacementCode, text: str, *, since_ms: int = 0, stops: bool = False, **data: Any
) -> Reason:
    """Returns a reason with the advice of its code; `stops` is set for what moves the bundle soon."""
    return Reason(code, text, _NEXT[code], since_ms, stops, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePlacement:
    """The leader's view of the place of one bundle."""

    owner: Owned | None
    """The running owner."""
    choice: str | None
    """The broker that the bundle would be assigned to now; None when no broker may have it."""
    candidates: Sequence[Candidate]
    """All running brokers."""
    allowed: frozenset[str]
    """Ids of the brokers that isolation policies allow."""
    steady_percent: Mapping[str, float]
    """Smoothed load of the brokers that reported lately, in percent."""
    limit_percent: float | None
    """Load beyond which a broker sheds bundles; None without a comparison."""
    pinned: bool
    """Whether policies of the namespace keep load from moving it."""
    rests_s: float
    """Seconds for which load moves neither the bundle nor bundles of its broker, after a move."""


def why_here(bundle: str, placement: BundlePlacement) -> list[Reason]:
    """Returns why the bundle, named by its range, is at its broker."""
    owner, choice = placement.owner, placement.choice
    found: list[Reason] = []
    if owner is None:
        text = f"bundle {bundle} has no owner"
        found.append(placement_reason(PlacementCode.NO_OWNER, text, broker=None))
    else:
        found.append(
            placement_reason(
                PlacementCode.OWNED,
                f"broker {owner.broker_id} owns bundle {bundle}",
                since_ms=owner.since_ms,
                broker=owner.broker_id,
                epoch=owner.version,
            )
        )
    if choice is None:
        draining = sum(each.draining for each in placement.candidates)
        text = (
            f"no broker may take it: {len(placement.candidates)} run, {draining} of them are draining, and "
            f"isolation policies allow {len(placement.allowed)}"
        )
        found.append(placement_reason(PlacementCode.NO_CHOICE, text, running=len(placement.candidates)))
        return found
    (chosen,) = [each for each in placement.candidates if each.broker_id == choice]
    figures = _figures(chosen)
    if owner is not None and choice != owner.broker_id:
        text = f"it would be assigned to broker {choice} now ({figures})"
        found.append(placement_reason(PlacementCode.BETTER_CHOICE, text, broker=choice))
    else:
        text = f"broker {choice} is the best choice now, of {len(placement.candidates)} ({figures})"
        found.append(placement_reason(PlacementCode.BEST_CHOICE, text, broker=choice))
    return found


def what_would_move(placement: BundlePlacement, config: LoadConfig) -> list[Reason]:
    """Returns what would move the bundle away; empty without an owner."""
    owner = placement.owner
    if owner is None:
        return []
    found: list[Reason] = []
    at = next((each for each in placement.candidates if each.broker_id == owner.broker_id), None)
    if at is not None and at.draining:
        text = f"broker {owner.broker_id} is draining: its bundles are handed over"
        found.append(placement_reason(PlacementCode.DRAINING, text, stops=True, broker=owner.broker_id))
    if owner.broker_id not in placement.allowed:
        text = f"isolation policies do not allow broker {owner.broker_id} for this namespace"
        found.append(placement_reason(PlacementCode.NOT_ALLOWED, text, broker=owner.broker_id))
    found.append(_load(owner.broker_id, placement, config))
    if placement.rests_s > 0:
        text = f"a move was not long ago: load moves it in {placement.rests_s:.0f} s at the earliest"
        found.append(placement_reason(PlacementCode.RESTING, text, seconds=round(placement.rests_s)))
    found.append(
        placement_reason(PlacementCode.UNLOAD, "an unload, or the end of its broker, moves it at once")
    )
    return found


def what_would_split(load: Load, namespace_bundles: int, config: LoadConfig) -> list[Reason]:
    """Returns what would split a bundle with this load, of a namespace with so many bundles."""
    from magnetar.broker.load.splitting import has_too_much, shares_of_each_limit  # not for a standalone

    splitting = config.splitting
    if not (config.enabled and splitting.enabled):
        text = "no bundle is split by itself: load balancing or automatic splits are disabled"
        return [placement_reason(PlacementCode.SPLITTING_OFF, text)]
    if namespace_bundles >= splitting.bundles_max:
        text = f"{namespace_bundles} bundles in its namespace: from {splitting.bundles_max} on none is split"
        return [placement_reason(PlacementCode.BUNDLES_MAX, text, bundles=namespace_bundles)]
    shares = shares_of_each_limit(load, splitting)
    if load.topics <= 1:
        text = f"a bundle is split between topics, and it has {load.topics} loaded"
        return [placement_reason(PlacementCode.SINGLE_TOPIC, text, topics=load.topics)]
    percent = {kind: round(100 * share, 1) for kind, share in shares.items()}
    told = ", ".join(f"{kind} {each:g}" for kind, each in percent.items())
    text = (
        f"load in percent of the limits: {told}; it is split when one is above 100 at "
        f"{splitting.hits} checks in a row, one every {splitting.interval_min:g} min"
    )
    return [placement_reason(PlacementCode.SPLIT, text, stops=has_too_much(load, splitting), percent=percent)]


def _load(broker_id: str, placement: BundlePlacement, config: LoadConfig) -> Reason:
    if not (config.enabled and config.shedding.enabled):
        text = "load moves nothing: load balancing or shedding is disabled"
        return placement_reason(PlacementCode.BALANCING_OFF, text)
    if placement.pinned:
        text = "load does not move it: its namespace has an isolation policy or an anti-affinity group"
        return placement_reason(PlacementCode.POLICIES_PIN, text)
    load, limit = placement.steady_percent.get(broker_id), placement.limit_percent
    if load is None or limit is None:
        text = "load: too few brokers have reported theirs to compare"
        return placement_reason(PlacementCode.LOAD, text, percent=load, limit=limit)
    return placement_reason(
        PlacementCode.LOAD,
        f"load: broker {broker_id} has {load:.1f} percent, and sheds bundles above {limit:.1f} at "
        f"{config.shedding.hits} comparisons in a row, one every {config.shedding.interval_min} min",
        stops=load > limit,
        percent=round(load, 1),
        limit=round(limit, 1),
    )


def _figures(candidate: Candidate) -> str:
    return (
        f"{candidate.usage:.1f} percent load, {candidate.bundles} bundles, {candidate.of_namespace} of the "
        "namespace"
    )
