"""How the entries of a subscription reach its consumers: one class for each kind of subscription type.

Exclusive and Failover are ordered (`ordered_delivery`): one consumer is given everything. Shared
(`shared_delivery`) and Key_Shared are individual (`individual_delivery` is what they have in common): each
consumer holds entries of its own until it acknowledges them. The loop around all of them is in
`subscription`: it limits a turn, asks the gates, and starts a turn at every event that may let something go
out, so a delivery has no state of "waiting" of its own that could be lost.

A delivery lives while a consumer is connected. The two gates here are None until a feature is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap


class Delivery(Protocol):
    """Gives entries to the consumers of one subscription, as its type promises."""

    @property
    def individual(self) -> bool:
        """True when consumers hold entries of their own (`Consumer.pending`): Shared and Key_Shared."""
        ...

    @property
    def paused_by(self) -> str | None:
        """In words, why nothing goes out whoever could take it; None when that is not so."""
        ...

    @property
    def waiting(self) -> int:
        """Entries that were looked at and wait for a consumer that cannot take them now."""
        ...

    @property
    def candidates(self) -> Sequence[Consumer]:
        """Those of the consumers that entries may go to now."""
        ...

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        """Deliver a little more; returns (entries, bytes) of work done, None when nothing can go out now.

        At most `entries_max` messages, or the batch that passes it; about `bytes_max` bytes. Entries that
        were passed by (acknowledged meanwhile, markers) count as entries without bytes. After None the next
        step comes with the next `Subscription.wake`.
        """
        ...

    def consumer_added(self, consumer: Consumer) -> None:
        """The dispatcher has a new consumer, before the first step that may deliver to it."""
        ...

    def consumer_removed(self, consumer: Consumer) -> None:
        """The dispatcher has this consumer no more, others are left; what it held goes to them."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """A consumer asks for entries to be delivered again; `positions` None: everything it holds."""
        ...

    def rewind(self) -> None:
        """The cursor was moved: start again behind its mark-delete position."""
        ...

    def close(self) -> None:
        """The last consumer left."""
        ...


class EntryGate(Protocol):
    """Keeps entries from going out; `EntrySource.gate`.

    It is asked about each run of entries before anybody gets them; about the same entries again when they are
    to be delivered again, or when memory was short and they were read anew.
    """

    def hold(self, run: Run) -> Sequence[Run]:
        """Keep some entries of a run; returns the parts that may go out now, in order."""
        ...

    def kept(self, ledger_id: int) -> BitMap | None:
        """Entries of a ledger that need not be read, because `hold` would keep them; None: not known."""
        ...

    def clear(self) -> None:
        """Everything is read anew, from the mark-delete position or a seek: forget what is kept."""
        ...


class DispatchRateGate(Protocol):
    """Limits how fast entries go out: delays, never drops. Set as `Subscription.dispatch_rate`."""

    @property
    def throttled_by(self) -> str | None:
        """Whose rate is used up, in words; None while there is room."""
        ...

    def room(self) -> tuple[int, int] | None:
        """(messages, bytes) that may go out now, both positive; None for nothing.

        After None the gate calls `Subscription.wake` itself as soon as there is room again.
        """
        ...

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        """So much went out; a batch, or a run of entries, may be more than there was room for."""
        ...


def limited_step(
    delivery: Delivery, rate: DispatchRateGate, stats: SubscriptionStats, entries_max: int, bytes_max: int
) -> tuple[int, int] | None:
    """`Delivery.step` within a rate, which is told what went out, as `stats` of the subscription count it."""
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
