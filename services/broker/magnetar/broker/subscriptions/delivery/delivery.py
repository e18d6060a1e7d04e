"""The interface of a delivery, which sends entries to the consumers of one subscription.

There is one class for each subscription type (package `types`). Exclusive and Failover are ordered: one
consumer gets every entry. Shared and Key_Shared are individual: each consumer holds its own entries until it
acknowledges them. The loop is in `subscription`: it bounds a turn, checks the limits, and schedules a turn at
every event that may allow a delivery, so a delivery has no waiting state of its own that could be lost.

A delivery exists while a consumer is connected. The rate gate is None until a rate is configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.reason import Reason
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.naming.position import Position


class Delivery(Protocol):
    """Gives entries to the consumers of one subscription, as its type promises."""

    @property
    def paused_by(self) -> Reason | None:
        """The reason why delivery is paused although consumers have permits; None when it is not paused."""
        ...

    @property
    def keeps_ready(self) -> bool:
        """True when some of the entries that were examined and kept can be sent now."""
        ...

    def kept_back(self) -> list[Reason]:
        """Returns why entries that were examined are kept, for an operator; takes as long as there are
        many.
        """
        ...

    def idle(self) -> list[Reason]:
        """Returns why connected consumers get nothing while another one can; none of these `stops`."""
        ...

    @property
    def waiting(self) -> int:
        """Entries that were examined and wait for a consumer without permits."""
        ...

    @property
    def candidates(self) -> Sequence[Consumer]:
        """The consumers that can be sent entries now."""
        ...

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        """Delivers a bounded number of entries; returns (entries, bytes) of work done, None when nothing can
        be sent now.

        Sends at most `entries_max` messages, or the batch that exceeds it, and about `bytes_max` bytes.
        Skipped entries (already acknowledged, markers) count as entries without bytes. After None the next
        step follows the next `Subscription.wake`.
        """
        ...

    def consumer_added(self, consumer: Consumer) -> None:
        """Handles a new consumer of the dispatcher, before the first step that may deliver to it."""
        ...

    def consumer_removed(self, consumer: Consumer) -> None:
        """Reassigns the entries of a disconnected consumer to the others, of which at least one is
        connected.
        """
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redelivers entries at a consumer's request; `positions` None: all that it holds."""
        ...

    def rewind(self) -> None:
        """Restarts after the mark-delete position, because the cursor was moved."""
        ...

    def close(self) -> None:
        """Releases timers and memory after the last consumer left."""
        ...


class DispatchRateGate(Protocol):
    """Limits the rate of delivery: it delays entries and never drops them. Set as
    `Subscription.dispatch_rate`.
    """

    @property
    def reason(self) -> Reason | None:
        """The exhausted rate, and when it allows more; None while it does."""
        ...

    def room(self) -> tuple[int, int] | None:
        """Returns how many (messages, bytes) may be sent now, both positive; None for nothing.

        After None the gate itself calls `Subscription.wake` as soon as it allows more.
        """
        ...

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        """Charges sent entries; a batch, or a run of entries, may exceed what the rate allowed."""
        ...


def limited_step(
    delivery: Delivery, rate: DispatchRateGate, stats: SubscriptionStats, entries_max: int, bytes_max: int
) -> tuple[int, int] | None:
    """Executes a `Delivery.step` within a rate, and charges what the subscription's `stats` counted as
    sent.
    """
    room = rate.room()
    if room is None:
        return None
    messages, byte_count = stats.messages_out, stats.bytes_out
    done = delivery.step(min(entries_max, room[0]), min(bytes_max, room[1]))
    if stats.messages_out > messages:
        rate.spent(
            0 if done is None else done[0], stats.messages_out - messages, stats.bytes_out - byte_count
        )
    return done
