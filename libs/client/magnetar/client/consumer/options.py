"""Options of consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from magnetar.client.consumer.dead_letters import DeadLetterPolicy
from magnetar.client.consumer.redelivery import RedeliveryDelay
from magnetar.client.encryption import CryptoFailure, KeyReader
from magnetar.client.messages import MessageId
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

SubscriptionType = Literal["exclusive", "shared", "failover", "key_shared"]
InitialPosition = Literal["latest", "earliest"]

SUBSCRIPTION_TYPES: Final[Mapping[SubscriptionType, CommandSubscribe.SubType.ValueType]] = {
    "exclusive": CommandSubscribe.Exclusive,
    "shared": CommandSubscribe.Shared,
    "failover": CommandSubscribe.Failover,
    "key_shared": CommandSubscribe.Key_Shared,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySharedPolicy:
    """How keys are shared between the consumers of a Key_Shared subscription."""

    sticky_ranges: Sequence[tuple[int, int]] = ()
    """Hash ranges (first, last, of 0 to 65535) that this consumer takes; empty: the broker splits them."""
    allow_out_of_order: bool = False
    """Deliver a key's messages to another consumer while some are unacknowledged at the former one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """Limits of chunked messages that are not complete yet."""

    messages_max: int = 10
    """Messages reassembled at a time; a further one drops the oldest."""
    expire_s: float = 60.0
    """Seconds after which an incomplete message is dropped; 0: never."""
    ack_dropped: bool = False
    """Acknowledge the chunks of dropped messages. Otherwise the broker delivers them again, which loses
    nothing, and keeps those whose other chunks never come in the backlog.
    """

    def __post_init__(self) -> None:
        """Checks the values. Raises ValueError."""
        if self.messages_max < 1:
            raise ValueError(f"invalid messages_max {self.messages_max}: give at least 1")
        if not self.expire_s >= 0:
            raise ValueError(f"invalid expire_s {self.expire_s:g}: give 0 for never, or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of `Client.subscribe`, which has their meanings. Times are in seconds."""

    subscription: str
    type: SubscriptionType = "exclusive"
    name: str = ""
    initial_position: InitialPosition = "latest"
    durable: bool = True
    start: MessageId | None = None
    start_inclusive: bool = False
    start_rollback_s: int = 0
    queue_size: int = 1_000
    queue_size_total: int = 50_000
    ack_group_s: float = 0.1
    ack_group_max: int = 1_000
    ack_receipts: bool = False
    batch_index_ack: bool = False
    negative_ack_delay: RedeliveryDelay = field(default_factory=RedeliveryDelay)
    ack_timeout_s: float = 0.0
    dead_letter: DeadLetterPolicy | None = None
    retry_letters: bool = False
    priority_level: int = 0
    key_shared: KeySharedPolicy = KeySharedPolicy()
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    read_compacted: bool = False
    replicate_subscription: bool = False
    read_key: KeyReader | None = None
    crypto_failure: CryptoFailure = "fail"
    chunking: Chunking = Chunking()
    pattern_update_s: float = 60.0
    on_active_change: Callable[[str, bool], None] | None = None
    on_end_of_topic: Callable[[str], None] | None = None
