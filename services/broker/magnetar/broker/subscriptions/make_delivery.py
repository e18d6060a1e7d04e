"""Which delivery serves which type of subscription."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.delivery import Delivery
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.failover_delivery import FailoverDelivery
from magnetar.broker.subscriptions.key_shared_delivery import KeySharedDelivery
from magnetar.broker.subscriptions.membership import Dispatcher
from magnetar.broker.subscriptions.ordered_delivery import OrderedDelivery
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.broker.subscriptions.shared_delivery import SharedDelivery
from magnetar.ledger.managed_ledger.cursor import Cursor


def make_delivery(
    dispatcher: Dispatcher,
    source: EntrySource,
    cursor: Cursor,
    outlet: Outlet,
    stats: SubscriptionStats,
    config: DispatchConfig,
    budget: ByteBudget,
    wake: Callable[[], None],
) -> Delivery:
    """The delivery for the type that the first consumer has given its subscription."""
    if isinstance(dispatcher, ExclusiveDispatcher):
        return OrderedDelivery(dispatcher, source, cursor, outlet)
    if isinstance(dispatcher, FailoverDispatcher):
        delay_s = config.failover_delay_ms / 1000
        return FailoverDelivery(dispatcher, source, cursor, outlet, delay_s=delay_s, wake=wake)
    if isinstance(dispatcher, KeySharedDispatcher):
        return KeySharedDelivery(dispatcher, source, cursor, outlet, stats, config, budget, wake)
    return SharedDelivery(dispatcher, source, cursor, outlet, stats)
