"""How subscriptions deliver messages, as configured."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """How messages go out."""

    read_entries_max: int = setting(
        1_000,
        "Entries read from storage for one subscription at a time.",
        key="dispatcherMaxReadBatchSize",
        minimum=1,
    )
    read_bytes_max: int = setting(
        5 * 1024 * 1024,
        "Bytes read from storage for one subscription at a time.",
        key="dispatcherMaxReadSizeBytes",
        minimum=1,
    )
    round_robin_entries_max: int = setting(
        20,
        "Entries a consumer of a Shared subscription gets before the next one's turn.",
        key="dispatcherMaxRoundRobinBatchSize",
        minimum=1,
    )
    consumer_unacked_max: int = setting(
        50_000,
        "Unacknowledged messages of one Shared or Key_Shared consumer at which it gets no more, until half. "
        "0: no limit.",
        key="maxUnackedMessagesPerConsumer",
        minimum=0,
    )
    subscription_unacked_max: int = setting(
        200_000,
        "Unacknowledged messages of one Shared or Key_Shared subscription at which it pauses, until half. "
        "0: no limit.",
        key="maxUnackedMessagesPerSubscription",
        minimum=0,
    )
    broker_unacked_max: int = setting(
        0,
        "Unacknowledged messages of all Shared and Key_Shared subscriptions of this broker at which those "
        "with many of them pause, until half. 0: no limit.",
        key="maxUnackedMessagesPerBroker",
        minimum=0,
    )
    subscription_share_of_broker_unacked: float = setting(
        0.16,
        "Part of that limit which one subscription may hold while the broker is at it; one with more pauses "
        "until half. 0: the broker has no limit.",
        key="maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        minimum=0,
        maximum=1,
    )
    failover_delay_ms: int = setting(
        1_000,
        "Milliseconds between a change of the active consumer of a Failover subscription and the first "
        "message to it, in which acknowledgements of the former one still arrive.",
        key="activeConsumerFailoverDelayTimeMillis",
        minimum=0,
    )
    failover_consistent_hashing: bool = setting(
        False,
        "Choose the active consumer of a partition by hashing, as for topics without partitions, and not by "
        "the partition's number.",
        key="activeConsumerFailoverConsistentHashing",
    )
    key_shared_consistent_hashing: bool = setting(
        True,
        "Divide the slots of Key_Shared subscriptions by consistent hashing; else each consumer has one "
        "range and a newcomer halves the largest.",
        key="subscriptionKeySharedUseConsistentHashing",
    )
    key_shared_points: int = setting(
        100,
        "Points of each Key_Shared consumer on the ring of consistent hashing.",
        key="subscriptionKeySharedConsistentHashingReplicaPoints",
        minimum=1,
    )
    look_ahead_per_consumer: int = setting(
        2_000,
        "Entries that may wait on a Key_Shared subscription for consumers that cannot take them or for slots "
        "that drain, for each consumer, while others are looked for. 0: no such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerConsumer",
        minimum=0,
    )
    look_ahead_per_subscription: int = setting(
        20_000,
        "The same for the whole subscription. 0: no such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerSubscription",
        minimum=0,
    )
    write_buffer_bytes_max: int = setting(
        1024 * 1024,
        "Bytes waiting in a connection's socket buffer at which dispatch to it pauses; resumes at half.",
        key="magnetarWriteBufferBytesMax",
        minimum=1,
    )
    batch_index_ack_enabled: bool = setting(
        True,
        "Remember which messages of a batch are acknowledged (Pulsar: false; on here because half a batch "
        "coming back surprises everyone).",
        key="acknowledgmentAtBatchIndexLevelEnabled",
    )
    expose_broker_entry_metadata: bool = setting(
        False,
        "Send broker publish time and message index to clients that announced that they understand them.",
        key="exposingBrokerEntryMetadataToClientEnabled",
    )
