"""Settings of load balancing. Keys and defaults are Pulsar's unless a text gives a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.common.config.settings import setting

DYNAMIC: Final = frozenset(
    {
        "failureDomainsEnabled",
        "loadBalanceSheddingDelayInSeconds",
        "loadBalancerAutoBundleSplitEnabled",
        "loadBalancerAutoUnloadSplitBundlesEnabled",
        "loadBalancerBandwidthInResourceWeight",
        "loadBalancerBandwidthOutResourceWeight",
        "loadBalancerBrokerLoadDataTTLInSeconds",
        "loadBalancerBrokerMaxTopics",
        "loadBalancerBrokerOverloadedThresholdPercentage",
        "loadBalancerBrokerThresholdShedderPercentage",
        "loadBalancerCPUResourceWeight",
        "loadBalancerDistributeBundlesEvenlyEnabled",
        "loadBalancerHistoryResourcePercentage",
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        "loadBalancerMemoryResourceWeight",
        "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        "loadBalancerNamespaceBundleMaxMsgRate",
        "loadBalancerNamespaceBundleMaxSessions",
        "loadBalancerNamespaceBundleMaxTopics",
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        "loadBalancerNamespaceMaximumBundles",
        "loadBalancerReportUpdateMaxIntervalMinutes",
        "loadBalancerReportUpdateMinIntervalMillis",
        "loadBalancerReportUpdateThresholdPercentage",
        "loadBalancerSheddingBundlesWithPoliciesEnabled",
        "loadBalancerSheddingConditionHitCountThreshold",
        "loadBalancerSheddingEnabled",
        "loadBalancerSheddingGracePeriodMinutes",
        "loadBalancerSheddingIntervalMinutes",
        "namespaceBundleUnloadingTimeoutMs",
    }
)
"""Settings that change at run time, as in Pulsar: components read them at the moment of use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """Settings of load reports, and the limits against which a figure becomes a percentage."""

    threshold_percent: int = setting(
        10,
        "Change of a broker's load, in percent, that triggers a report before the regular one.",
        key="loadBalancerReportUpdateThresholdPercentage",
        minimum=0,
    )
    interval_min_ms: int = setting(
        5_000,
        "Milliseconds between two measurements of a broker's load, each of which may trigger a report.",
        key="loadBalancerReportUpdateMinIntervalMillis",
        minimum=100,
    )
    interval_max_min: int = setting(
        15,
        "Minutes after which a broker reports its load even if it has not changed.",
        key="loadBalancerReportUpdateMaxIntervalMinutes",
        minimum=1,
    )
    bundles_max: int = setting(
        100,
        "Most loaded bundles in a report; other bundles are never moved for their load (Pulsar: 10, too "
        "few to balance many small bundles).",
        key="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        minimum=1,
        maximum=1_000,
    )
    cpu_weight: float = setting(
        1.0,
        "Weight of the broker's CPU, in percent of one processor: it is one process on one core.",
        key="loadBalancerCPUResourceWeight",
        minimum=0,
    )
    memory_weight: float = setting(
        0.0,
        "Weight of the broker's memory, in percent of the machine's.",
        key="loadBalancerMemoryResourceWeight",
        minimum=0,
    )
    bandwidth_in_weight: float = setting(
        1.0,
        "Weight of published bytes, in percent of loadBalancerOverrideBrokerNicSpeedGbps.",
        key="loadBalancerBandwidthInResourceWeight",
        minimum=0,
    )
    bandwidth_out_weight: float = setting(
        1.0,
        "Weight of delivered bytes, in percent of loadBalancerOverrideBrokerNicSpeedGbps.",
        key="loadBalancerBandwidthOutResourceWeight",
        minimum=0,
    )
    nic_gbps: float = setting(
        0.0,
        "Gigabits per second of the broker's network in each direction; 0: unknown, not counted.",
        key="loadBalancerOverrideBrokerNicSpeedGbps",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """Settings of bundle placement."""

    evenly: bool = setting(
        True,
        "Spread the bundles of each namespace evenly over the brokers before comparing their load.",
        key="loadBalancerDistributeBundlesEvenlyEnabled",
    )
    topics_max: int = setting(
        50_000,
        "Topics from which a broker is assigned no more bundles unless all brokers have as many.",
        key="loadBalancerBrokerMaxTopics",
        minimum=1,
    )
    overloaded_percent: int = setting(
        85,
        "Load, in percent, from which a broker is assigned no more bundles unless all brokers exceed it; "
        "such a broker also sheds bundles, however loaded the others are.",
        key="loadBalancerBrokerOverloadedThresholdPercentage",
        minimum=1,
    )
    failure_domains: bool = setting(
        False,
        "Keep the namespaces of an anti-affinity group in different failure domains if possible.",
        key="failureDomainsEnabled",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingConfig:
    """Settings of load shedding: when bundles move from one broker to another."""

    enabled: bool = setting(
        True, "Move bundles from overloaded brokers to others.", key="loadBalancerSheddingEnabled"
    )
    interval_min: float = setting(
        1.0,
        "Minutes between two comparisons of the brokers' load.",
        key="loadBalancerSheddingIntervalMinutes",
        minimum=0.001,
    )
    threshold_percent: int = setting(
        10,
        "Percentage points above the average from which a broker is overloaded, and below it from which it "
        "is underloaded.",
        key="loadBalancerBrokerThresholdShedderPercentage",
        minimum=1,
    )
    hits: int = setting(
        3,
        "Consecutive comparisons that must find a broker overloaded or underloaded before bundles move.",
        key="loadBalancerSheddingConditionHitCountThreshold",
        minimum=1,
    )
    history: float = setting(
        0.9,
        "Weight of the previous load after one minute, 0 to 1: the higher, the less a short peak counts.",
        key="loadBalancerHistoryResourcePercentage",
        minimum=0,
        maximum=0.999,
    )
    broker_rest_s: int = setting(
        180,
        "Seconds for which a broker that shed or received bundles is left out of shedding.",
        key="loadBalanceSheddingDelayInSeconds",
        minimum=0,
    )
    bundle_rest_min: float = setting(
        30.0,
        "Minutes for which a moved bundle is not moved again.",
        key="loadBalancerSheddingGracePeriodMinutes",
        minimum=0,
    )
    brokers_max: int = setting(
        3,
        "Maximum number of brokers that shed bundles after one comparison.",
        key="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        minimum=1,
    )
    with_policies: bool = setting(
        False,
        "Also move bundles of namespaces with an isolation policy or an anti-affinity group.",
        key="loadBalancerSheddingBundlesWithPoliciesEnabled",
    )
    report_age_max_s: int = setting(
        1_800,
        "Seconds after which a broker's last report is ignored.",
        key="loadBalancerBrokerLoadDataTTLInSeconds",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingConfig:
    """Settings of automatic bundle splits, which the owner performs."""

    enabled: bool = setting(
        True, "Split overloaded bundles automatically.", key="loadBalancerAutoBundleSplitEnabled"
    )
    unload: bool = setting(
        True,
        "Hand the parts of an automatically split bundle to other brokers at once.",
        key="loadBalancerAutoUnloadSplitBundlesEnabled",
    )
    interval_min: float = setting(
        1.0,
        "Minutes between two checks for bundles to split.",
        key="loadBalancerSplitIntervalMinutes",
        minimum=0.001,
    )
    topics_max: int = setting(
        1_000,
        "Topics of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxTopics",
        minimum=1,
    )
    sessions_max: int = setting(
        1_000,
        "Producers and consumers of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxSessions",
        minimum=1,
    )
    message_rate_max: int = setting(
        30_000,
        "Messages per second, published and delivered, of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxMsgRate",
        minimum=1,
    )
    bandwidth_max_mb: int = setting(
        100,
        "Megabytes per second, published and delivered, of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxBandwidthMbytes",
        minimum=1,
    )
    bundles_max: int = setting(
        128,
        "Bundles of a namespace from which none is split automatically.",
        key="loadBalancerNamespaceMaximumBundles",
        minimum=1,
        maximum=128,
    )
    at_once_max: int = setting(
        10,
        "Maximum number of a broker's bundles that are split after one check.",
        key="loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        minimum=1,
    )
    hits: int = setting(
        3,
        "Consecutive checks that must find a bundle over a limit before it is split.",
        key="loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Settings of load balancing."""

    enabled: bool = setting(
        True,
        "Report load, move and split bundles. If false, bundles go to the broker with the fewest.",
        key="loadBalancerEnabled",
    )
    unload_timeout_ms: int = setting(
        60_000,
        "Timeout of a bundle handover in milliseconds; after it, the bundle stays with its owner.",
        key="namespaceBundleUnloadingTimeoutMs",
        minimum=1,
    )
    report: ReportConfig = field(default_factory=ReportConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    shedding: SheddingConfig = field(default_factory=SheddingConfig)
    splitting: SplittingConfig = field(default_factory=SplittingConfig)
