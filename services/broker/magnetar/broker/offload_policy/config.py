"""Broker configuration of offload, used where neither the topic nor its namespace sets a policy."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.admin_types.offload import BOOKIES_FIRST, DRIVERS, READ_PRIORITIES
from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadConfig:
    """Configures when and where ledgers are offloaded, and when bookies delete them."""

    location: str = setting(
        "",
        "Location of offloaded ledgers, as a URI: file:///DIRECTORY (mounted at every broker and every "
        "job) or s3://BUCKET/PREFIX; a namespace or topic may name another location. Each cluster needs "
        "its own location. Credentials come from the environment (AWS_ACCESS_KEY_ID ...). Empty: "
        "managedLedgerOffloadDriver decides.",
        key="magnetarOffloadLocation",
    )
    driver: str = setting(
        "",
        "Offload driver when magnetarOffloadLocation is empty; needs a bucket, or fileSystemURI.",
        key="managedLedgerOffloadDriver",
        choices=("", *DRIVERS),
    )
    s3_bucket: str = setting(
        "",
        "Bucket of the drivers S3 and aws-s3; object paths begin with the name of the cluster.",
        key="s3ManagedLedgerOffloadBucket",
    )
    s3_service_endpoint: str = setting(
        "",
        "Endpoint of that bucket. Brokers and jobs use AWS_ENDPOINT_URL, which must have the same value.",
        key="s3ManagedLedgerOffloadServiceEndpoint",
    )
    gcs_bucket: str = setting(
        "", "Bucket of the driver google-cloud-storage.", key="gcsManagedLedgerOffloadBucket"
    )
    file_system_uri: str = setting("", "URI of the driver filesystem.", key="fileSystemURI")
    threshold_bytes: int = setting(
        -1,
        "Bytes of a topic beyond which its oldest closed ledgers are offloaded; 0: every closed ledger; "
        "-1: disabled.",
        key="managedLedgerOffloadAutoTriggerSizeThresholdBytes",
        minimum=-1,
    )
    threshold_s: int = setting(
        -1,
        "Seconds after its closing at which a ledger is offloaded; -1: disabled.",
        key="managedLedgerOffloadThresholdInSeconds",
        minimum=-1,
    )
    deletion_lag_ms: int = setting(
        4 * 60 * 60 * 1000,
        "Milliseconds that bookies keep a ledger after its objects were verified; -1: forever.",
        key="managedLedgerOffloadDeletionLagMs",
        minimum=-1,
    )
    read_priority: str = setting(
        BOOKIES_FIRST,
        "Preferred copy for reads while a ledger is both on bookies and in objects (Pulsar: "
        "tiered-storage-first; here the bookies' copy, which is closer; objects are read when bookies "
        "fail).",
        key="managedLedgerDataReadPriority",
        choices=READ_PRIORITIES,
    )
    exact: bool = setting(
        False,
        "Store the bytes of every entry verbatim beside its rows, at about twice the size; when false, "
        "clients get the same messages in re-encoded entries.",
        key="magnetarOffloadExact",
    )
    check_interval_s: int = setting(
        60,
        "Seconds between two checks of loaded topics for ledgers to offload.",
        key="magnetarOffloadCheckIntervalSeconds",
        minimum=1,
    )
    refresh_interval_s: int = setting(
        60,
        "Maximum seconds until the owner of a topic sees the progress of jobs on its ledgers.",
        key="magnetarOffloadRefreshIntervalSeconds",
        minimum=1,
    )
    stale_after_s: int = setting(
        3_600,
        "Seconds without a report after which another job may take over a ledger.",
        key="magnetarOffloadStaleAfterSeconds",
        minimum=1,
    )
    sweep_enabled: bool = setting(
        True,
        "Delete unreferenced objects periodically; when false, only `magnetar offload sweep` does.",
        key="magnetarOffloadSweepEnabled",
    )
    sweep_interval_s: int = setting(
        3_600,
        "Seconds between two sweeps by the leading broker.",
        key="magnetarOffloadSweepIntervalSeconds",
        minimum=1,
    )
    grace_s: int = setting(
        24 * 60 * 60,
        "Grace period in seconds before objects of an unreferenced attempt are deleted, counted from the "
        "newest object.",
        key="magnetarOffloadGraceSeconds",
        minimum=0,
    )
    cold_cache_megabytes: int = setting(
        64,
        "Megabytes of the cache for row groups of offloaded ledgers.",
        key="magnetarColdCacheMB",
        minimum=1,
    )
    cold_threads: int = setting(
        2,
        "Threads that read offloaded ledgers, started when the first one is read.",
        key="magnetarColdReadThreads",
        minimum=1,
    )
