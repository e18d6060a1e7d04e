"""Failover: delivery to the active consumer, and what happens when another one becomes active.

Everything unacknowledged is sent to the new active consumer, in order, from the mark-delete position on. The
switch (start anew, tell all consumers, go on) happens a delay after it was decided, and nobody gets anything
meanwhile: acknowledgements on their way still arrive, and consumers that start together cause one switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.ordered_delivery import OrderedDelivery
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor


class FailoverDelivery(OrderedDelivery):
    """Delivery to the active consumer of a Failover subscription. Implements delivery.Delivery."""

    __slots__ = ("_chosen", "_delay_s", "_failover", "_served", "_switch", "_wake")

    def __init__(
        self,
        dispatcher: FailoverDispatcher[Consumer],
        source: EntrySource,
        cursor: Cursor,
        outlet: Outlet,
        *,
        delay_s: float,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(dispatcher, source, cursor, outlet)
        self._failover = dispatcher
        self._delay_s = delay_s
        self._wake = wake
        self._chosen: Consumer | None = None
        """The active consumer, by the last look at the dispatcher."""
        self._served: Consumer | None = None
        """The one that entries went to last, in order; None when it has to start anew as well."""
        self._switch: asyncio.TimerHandle | None = None

    @property
    def paused_by(self) -> str | None:
        return None if self._switch is None else "another consumer is about to become the active one"

    @property
    def candidates(self) -> Sequence[Consumer]:
        return [] if self._chosen is None else [self._chosen]

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        return super().step(entries_max, bytes_max) if self._switch is None else None

    def consumer_added(self, consumer: Consumer) -> None:
        if not self._changed():
            # Behind the answer to its Subscribe, which is written in this turn of the event loop.
            asyncio.get_running_loop().call_soon(consumer.tell_active, False)

    def consumer_removed(self, consumer: Consumer) -> None:
        self._changed()

    def _changed(self) -> bool:
        """Whether the last join or leave made another consumer the active one; a switch is due if so."""
        if self._failover.active is self._chosen:
            return False
        self._chosen = self._failover.active
        if self._switch is None:
            self._switch = asyncio.get_running_loop().call_later(self._delay_s, self._go_on)
        return True

    def _go_on(self) -> None:
        self._switch = None
        if self._served is not self._chosen:
            self._served = self._chosen
            self.rewind()
        tell_active(self._failover.consumers, self._chosen)
        self._wake()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Only the active consumer may ask; while a switch is due, it is what starts anew."""
        if self._switch is not None:
            self._served = None
        if consumer is self._served:
            super().redeliver(consumer, positions, epoch)
        elif epoch is not None:
            consumer.epoch = epoch

    def close(self) -> None:
        if self._switch is not None:
            self._switch.cancel()


def tell_active(consumers: Iterable[Consumer], active: Consumer | None) -> None:
    """Tell each consumer whether it is the active one."""
    for consumer in consumers:
        consumer.tell_active(consumer is active)
