"""Configuration of message delivery by subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """Settings of dispatch, unacknowledged-message limits and Key_Shared."""

    read_entries_max: int = setting(
        1_000,
        "Maximum entries of one read from storage for a subscription.",
        key="dispatcherMaxReadBatchSize",
        minimum=1,
    )
    read_bytes_max: int = setting(
        5 * 1024 * 1024,
        "Maximum bytes of one read from storage for a subscription.",
        key="dispatcherMaxReadSizeBytes",
        minimum=1,
    )
    round_robin_entries_max: int = setting(
        20,
        "Entries that a consumer of a Shared subscription gets before the next consumer's turn.",
        key="dispatcherMaxRoundRobinBatchSize",
        minimum=1,
    )
    consumer_unacked_max: int = setting(
        50_000,
        "Maximum unacknowledged messages of one Shared or Key_Shared consumer; at the limit, delivery to "
        "it pauses until half of them are acknowledged. 0: no limit.",
        key="maxUnackedMessagesPerConsumer",
        minimum=0,
    )
    subscription_unacked_max: int = setting(
        200_000,
        "Maximum unacknowledged messages of one Shared or Key_Shared subscription; at the limit, it "
        "pauses until half of them are acknowledged. 0: no limit.",
        key="maxUnackedMessagesPerSubscription",
        minimum=0,
    )
    broker_unacked_max: int = setting(
        0,
        "Maximum unacknowledged messages of all Shared and Key_Shared subscriptions of this broker; at "
        "the limit, subscriptions with many of them pause until half are acknowledged. 0: no limit.",
        key="maxUnackedMessagesPerBroker",
        minimum=0,
    )
    subscription_share_of_broker_unacked: float = setting(
        0.16,
        "Share of maxUnackedMessagesPerBroker that one subscription may hold while the broker is at that "
        "limit; a subscription with more pauses until half of its share. 0: no broker limit.",
        key="maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        minimum=0,
        maximum=1,
    )
    failover_delay_ms: int = setting(
        1_000,
        "Milliseconds between a change of the active consumer of a Failover subscription and the first "
        "message to the new one; the previous consumer's acknowledgements may still arrive in this time.",
        key="activeConsumerFailoverDelayTimeMillis",
        minimum=0,
    )
    failover_consistent_hashing: bool = setting(
        False,
        "Choose the active consumer of a partition by consistent hashing, as for unpartitioned topics, "
        "instead of by partition number.",
        key="activeConsumerFailoverConsistentHashing",
    )
    key_shared_consistent_hashing: bool = setting(
        True,
        "Assign the slots of Key_Shared subscriptions by consistent hashing; when false, each consumer "
        "has one range, and a new consumer takes half of the largest.",
        key="subscriptionKeySharedUseConsistentHashing",
    )
    key_shared_points: int = setting(
        100,
        "Points of each Key_Shared consumer on the consistent-hashing ring.",
        key="subscriptionKeySharedConsistentHashingReplicaPoints",
        minimum=1,
    )
    look_ahead_per_consumer: int = setting(
        2_000,
        "Maximum entries, per consumer of a Key_Shared subscription, that wait for consumers without "
        "permits or for draining slots while dispatch looks ahead. 0: no such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerConsumer",
        minimum=0,
    )
    look_ahead_per_subscription: int = setting(
        20_000,
        "Maximum waiting entries of a whole Key_Shared subscription while dispatch looks ahead. 0: no "
        "such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerSubscription",
        minimum=0,
    )
    write_buffer_bytes_max: int = setting(
        1024 * 1024,
        "Bytes in a connection's write buffer at which dispatch to it pauses; it resumes at half.",
        key="magnetarWriteBufferBytesMax",
        minimum=1,
    )
    batch_index_ack_enabled: bool = setting(
        True,
        "Store which messages of a batch are acknowledged (Pulsar: false; true here, so that "
        "acknowledged messages of a batch are not redelivered).",
        key="acknowledgmentAtBatchIndexLevelEnabled",
    )
    expose_broker_entry_metadata: bool = setting(
        False,
        "Send broker publish time and message index to clients that support them.",
        key="exposingBrokerEntryMetadataToClientEnabled",
    )
