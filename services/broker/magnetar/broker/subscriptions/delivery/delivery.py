"""The interface of a delivery, which gives entries to the consumers of one subscription.

There is one class for each subscription type (room `types`). Exclusive and Failover are ordered: one consumer
gets every entry. Shared and Key_Shared are individual: each consumer holds entries of its own until it
acknowledges them. The loop around all of them is in `subscription`: it limits a turn, asks the limits, and
schedules a turn at every event that may let something go out, so a delivery has no waiting state of its own
that could be lost.

A delivery exists while a consumer is connected. The rate gate is None until a rate is configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.naming.position import Position


class Delivery(Protocol):
    """Gives entries to the consumers of one subscription, as its type promises."""

    @property
    def paused_by(self) -> str | None:
        """Why nothing goes out although consumers could take it, in words; None when nothing is paused."""
        ...

    @property
    def waiting(self) -> int:
        """Entries that were looked at and wait for a consumer that cannot take them now."""
        ...

    @property
    def candidates(self) -> Sequence[Consumer]:
        """The consumers that entries may go to now."""
        ...

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        """Deliver a little more; returns (entries, bytes) of work done, None when nothing can go out now.

        Sends at most `entries_max` messages, or the batch that exceeds it, and about `bytes_max` bytes.
        Entries that were skipped (acknowledged meanwhile, markers) count as entries without bytes. After
        None the next step comes with the next `Subscription.wake`.
        """
        ...

    def consumer_added(self, consumer: Consumer) -> None:
        """Take note of a new consumer of the dispatcher, before the first step that may deliver to it."""
        ...

    def consumer_removed(self, consumer: Consumer) -> None:
        """Give the entries of a consumer that left to the others, of which at least one is connected."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver what a consumer asks for; `positions` None: everything that it holds."""
        ...

    def rewind(self) -> None:
        """Start again behind the mark-delete position, after the cursor was moved."""
        ...

    def close(self) -> None:
        """Release timers and memory after the last consumer left."""
        ...


class DispatchRateGate(Protocol):
    """Limits how fast entries go out: delays, never drops. Set as `Subscription.dispatch_rate`."""

    @property
    def throttled_by(self) -> str | None:
        """The scope of the rate that is used up, in words; None while there is room."""
        ...

    def room(self) -> tuple[int, int] | None:
        """Return how many (messages, bytes) may go out now, both positive; None for nothing.

        After None the gate calls `Subscription.wake` itself as soon as there is room again.
        """
        ...

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        """Charge what went out; a batch, or a run of entries, may be more than there was room for."""
        ...


def limited_step(
    delivery: Delivery, rate: DispatchRateGate, stats: SubscriptionStats, entries_max: int, bytes_max: int
) -> tuple[int, int] | None:
    """Do a `Delivery.step` within a rate, and charge what `stats` of the subscription counted as sent."""
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
