"""Which delivery serves which type of subscription."""

from __future__ import annotations

from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.delivery import Delivery
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.membership import Membership
from magnetar.broker.subscriptions.ordered_delivery import OrderedDelivery
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.broker.subscriptions.shared_delivery import SharedDelivery
from magnetar.ledger.managed_ledger.cursor import Cursor


def make_delivery(
    members: Membership, source: EntrySource, cursor: Cursor, outlet: Outlet, stats: SubscriptionStats
) -> Delivery:
    """The delivery for the type that the first consumer has given its subscription."""
    dispatcher = members.dispatcher
    if isinstance(dispatcher, ExclusiveDispatcher):
        return OrderedDelivery(dispatcher, source, cursor, outlet)
    assert isinstance(dispatcher, SharedDispatcher), "a subscription with a consumer has a dispatcher"
    return SharedDelivery(dispatcher, source, cursor, outlet, stats)
