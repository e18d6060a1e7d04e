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
        "Where offloaded ledgers go, as a URI: file:///DIRECTORY (which every broker and every job sees), "
        "s3://BUCKET/PREFIX; a namespace or topic may name another place. One location for each cluster. "
        "Credentials come from the environment (AWS_ACCESS_KEY_ID ...). Empty: as the driver below says.",
        key="magnetarOffloadLocation",
    )
    driver: str = setting(
        "",
        "What kind of place it is where magnetarOffloadLocation is empty; with a bucket, or fileSystemURI.",
        key="managedLedgerOffloadDriver",
        choices=("", *DRIVERS),
    )
    s3_bucket: str = setting(
        "",
        "Bucket of the drivers S3 and aws-s3; objects lie below the name of the cluster.",
        key="s3ManagedLedgerOffloadBucket",
    )
    s3_service_endpoint: str = setting(
        "",
        "Endpoint of that bucket. AWS_ENDPOINT_URL of brokers and jobs has to be the same: that is what they "
        "go by.",
        key="s3ManagedLedgerOffloadServiceEndpoint",
    )
    gcs_bucket: str = setting(
        "", "Bucket of the driver google-cloud-storage.", key="gcsManagedLedgerOffloadBucket"
    )
    file_system_uri: str = setting("", "URI of the driver filesystem.", key="fileSystemURI")
    threshold_bytes: int = setting(
        -1,
        "Bytes of a topic beyond which its oldest closed ledgers are offloaded; 0 means each ledger once it "
        "is closed, -1 none for its size.",
        key="managedLedgerOffloadAutoTriggerSizeThresholdBytes",
        minimum=-1,
    )
    threshold_s: int = setting(
        -1,
        "Seconds after its closing at which a ledger is offloaded; -1: none for its age.",
        key="managedLedgerOffloadThresholdInSeconds",
        minimum=-1,
    )
    deletion_lag_ms: int = setting(
        4 * 60 * 60 * 1000,
        "Milliseconds for which bookies keep a ledger after its objects were found whole; -1: always.",
        key="managedLedgerOffloadDeletionLagMs",
        minimum=-1,
    )
    read_priority: str = setting(
        BOOKIES_FIRST,
        "What is read while a ledger is in both places (Pulsar: tiered-storage-first; the bookies' copy is "
        "nearer, and the other one is read when they fail).",
        key="managedLedgerDataReadPriority",
        choices=READ_PRIORITIES,
    )
    exact: bool = setting(
        False,
        "Keep the bytes of every entry verbatim beside its rows, at about twice the size; else clients get "
        "the same messages in entries that are put together anew.",
        key="magnetarOffloadExact",
    )
    check_interval_s: int = setting(
        60,
        "Seconds between two looks at loaded topics for ledgers to offload.",
        key="magnetarOffloadCheckIntervalSeconds",
        minimum=1,
    )
    refresh_interval_s: int = setting(
        60,
        "Seconds within which the owner of a topic learns what jobs have done with its ledgers.",
        key="magnetarOffloadRefreshIntervalSeconds",
        minimum=1,
    )
    stale_after_s: int = setting(
        3_600,
        "Seconds after which another job may take a ledger from one that began and was not heard of since.",
        key="magnetarOffloadStaleAfterSeconds",
        minimum=1,
    )
    sweep_enabled: bool = setting(
        True,
        "Sweep objects that nothing names any more; else only `magnetar offload sweep` does.",
        key="magnetarOffloadSweepEnabled",
    )
    sweep_interval_s: int = setting(
        3_600,
        "Seconds between two sweeps, by the broker that leads.",
        key="magnetarOffloadSweepIntervalSeconds",
        minimum=1,
    )
    grace_s: int = setting(
        24 * 60 * 60,
        "Seconds for which objects of an attempt that no ledger names are left alone, counted from the "
        "newest of them.",
        key="magnetarOffloadGraceSeconds",
        minimum=0,
    )
    cold_cache_megabytes: int = setting(
        64,
        "Megabytes of row groups of offloaded ledgers that are kept for their readers.",
        key="magnetarColdCacheMB",
        minimum=1,
    )
    cold_threads: int = setting(
        2,
        "Threads that read offloaded ledgers, started when the first one is read.",
        key="magnetarColdReadThreads",
        minimum=1,
    )
