"""A request to connect a consumer to a subscription of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.peer import Peer
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.naming.position import Position


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A Subscribe command whose names and values were checked."""

    subscription: str
    type: SubType.ValueType
    durable: bool
    from_earliest: bool
    """Whether a new subscription starts at the earliest position; at the latest otherwise."""
    start: Position | None
    """Where a non-durable subscription starts: the entry it names is the first one delivered."""
    rollback_s: int
    """Start this many seconds of publish time before now; 0 means no rollback."""
    properties: dict[str, str]
    options: ConsumerOptions
    peer: Peer
    sends_entry_metadata: bool

    @property
    def read_compacted(self) -> bool:
        """Whether the consumer reads the compacted view of the topic."""
        return self.options.read_compacted
