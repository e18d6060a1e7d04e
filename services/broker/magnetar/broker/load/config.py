"""What the sharing of load can be told. Keys and defaults are Pulsar's unless the text says why."""

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
"""Those that change while brokers run, as in Pulsar: whoever has them reads them at the moment of use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What a broker says of its load, and how a figure becomes a percentage of what it can do."""

    threshold_percent: int = setting(
        10,
        "Percent by which a broker's load must have changed to be reported before its time.",
        key="loadBalancerReportUpdateThresholdPercentage",
        minimum=0,
    )
    interval_min_ms: int = setting(
        5_000,
        "Milliseconds between two looks at a broker's load, each of which may lead to a report.",
        key="loadBalancerReportUpdateMinIntervalMillis",
        minimum=100,
    )
    interval_max_min: int = setting(
        15,
        "Minutes after which a broker's load is reported although it has not changed.",
        key="loadBalancerReportUpdateMaxIntervalMinutes",
        minimum=1,
    )
    bundles_max: int = setting(
        100,
        "Bundles in a report, the most loaded ones; others are never moved for their load (Pulsar: 10, too "
        "few to even out many small bundles).",
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
        "Gigabits a second that the broker's network carries each way; 0: not known, and does not count.",
        key="loadBalancerOverrideBrokerNicSpeedGbps",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """Who is given a bundle."""

    evenly: bool = setting(
        True,
        "Spread the bundles of each namespace evenly over the brokers, before their load counts.",
        key="loadBalancerDistributeBundlesEvenlyEnabled",
    )
    topics_max: int = setting(
        50_000,
        "Topics of a broker from which on it is given no more bundles, unless all have as many.",
        key="loadBalancerBrokerMaxTopics",
        minimum=1,
    )
    overloaded_percent: int = setting(
        85,
        "Load of a broker, in percent, from which on it is given no more bundles unless all are; and with "
        "which it gives some away, however loaded the others are.",
        key="loadBalancerBrokerOverloadedThresholdPercentage",
        minimum=1,
    )
    failure_domains: bool = setting(
        False,
        "Keep the namespaces of an anti-affinity group in different failure domains, as far as possible.",
        key="failureDomainsEnabled",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingConfig:
    """When bundles are moved from one broker to another."""

    enabled: bool = setting(
        True, "Move bundles away from brokers with more load than others.", key="loadBalancerSheddingEnabled"
    )
    interval_min: float = setting(
        1.0,
        "Minutes between two comparisons of the brokers' load.",
        key="loadBalancerSheddingIntervalMinutes",
        minimum=0.001,
    )
    threshold_percent: int = setting(
        10,
        "Percentage points above the average at which a broker's load is too much, and below it at which it "
        "is too little.",
        key="loadBalancerBrokerThresholdShedderPercentage",
        minimum=1,
    )
    hits: int = setting(
        3,
        "Comparisons in a row that must find a broker's load too much, or too little, before bundles move.",
        key="loadBalancerSheddingConditionHitCountThreshold",
        minimum=1,
    )
    history: float = setting(
        0.9,
        "Part of a broker's load that is still the former one a minute later: the higher, the less a short "
        "peak counts.",
        key="loadBalancerHistoryResourcePercentage",
        minimum=0,
        maximum=0.999,
    )
    broker_rest_s: int = setting(
        180,
        "Seconds for which a broker that gave or was given bundles takes no part in moving.",
        key="loadBalanceSheddingDelayInSeconds",
        minimum=0,
    )
    bundle_rest_min: float = setting(
        30.0,
        "Minutes for which a bundle that was moved is not moved again.",
        key="loadBalancerSheddingGracePeriodMinutes",
        minimum=0,
    )
    brokers_max: int = setting(
        3,
        "Brokers that bundles are taken from after one comparison.",
        key="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        minimum=1,
    )
    with_policies: bool = setting(
        False,
        "Move bundles of namespaces with an isolation policy or an anti-affinity group, too.",
        key="loadBalancerSheddingBundlesWithPoliciesEnabled",
    )
    report_age_max_s: int = setting(
        1_800,
        "Seconds after which the last report of a broker counts no more.",
        key="loadBalancerBrokerLoadDataTTLInSeconds",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingConfig:
    """When a bundle is split, by its owner."""

    enabled: bool = setting(
        True, "Split bundles with much load by themselves.", key="loadBalancerAutoBundleSplitEnabled"
    )
    unload: bool = setting(
        True,
        "Hand the parts of a bundle that was split by itself to other brokers at once.",
        key="loadBalancerAutoUnloadSplitBundlesEnabled",
    )
    interval_min: float = setting(
        1.0,
        "Minutes between two looks at which bundles have too much.",
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
        "Messages a second, published and delivered, of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxMsgRate",
        minimum=1,
    )
    bandwidth_max_mb: int = setting(
        100,
        "Megabytes a second, published and delivered, of a bundle above which it is split.",
        key="loadBalancerNamespaceBundleMaxBandwidthMbytes",
        minimum=1,
    )
    bundles_max: int = setting(
        128,
        "Bundles of a namespace from which on none is split by itself.",
        key="loadBalancerNamespaceMaximumBundles",
        minimum=1,
        maximum=128,
    )
    at_once_max: int = setting(
        10,
        "Bundles of a broker that are split after one look.",
        key="loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        minimum=1,
    )
    hits: int = setting(
        3,
        "Looks in a row that must find that a bundle has too much before it is split.",
        key="loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """How brokers share the load."""

    enabled: bool = setting(
        True,
        "Report load, move and split bundles. Without it, bundles go to the broker with the fewest and stay.",
        key="loadBalancerEnabled",
    )
    unload_timeout_ms: int = setting(
        60_000,
        "Milliseconds that handing a bundle to another broker may take; then it stays where it was.",
        key="namespaceBundleUnloadingTimeoutMs",
        minimum=1,
    )
    report: ReportConfig = field(default_factory=ReportConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    shedding: SheddingConfig = field(default_factory=SheddingConfig)
    splitting: SplittingConfig = field(default_factory=SplittingConfig)
