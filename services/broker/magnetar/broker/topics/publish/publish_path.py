"""The interface of a topic's publish path."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.events import SendRun


class PublishPath(Protocol):
    """Publishes the messages of a topic's producers."""

    def publish(self, producer: Producer, sends: SendRun) -> None:
        """Publishes a run of entries; receipts or errors go to the producer's client, now or later."""

    def publish_in(self, txn: TxnId, producer: Producer, sends: SendRun) -> None:
        """Publishes a run of entries in a transaction. The client is refused where transactions are off, and
        for a transaction that has ended.
        """

    @property
    def deduplicates(self) -> bool:
        """Whether a sequence id that a producer name has published is not stored again."""

    @property
    def times_rate_limited(self) -> int:
        """Number of times that reading a connection paused because of a publish rate, since the rate was
        set.
        """

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id of a producer name; -1 when it is not kept or none is known."""
        ...
