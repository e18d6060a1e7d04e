"""The whole admin API, in the order in which its routes are tried."""

from __future__ import annotations

from magnetar.broker.admin import (
    backlogs,
    cluster,
    lookup,
    messages,
    metrics_route,
    namespace_policies,
    namespaces,
    partitioned,
    stats,
    subscriptions,
    tenants,
    topic_policies,
    topics,
)
from magnetar.broker.admin.routing import Route
from magnetar.broker.admin.view import BrokerView


def routes(broker: BrokerView) -> list[Route]:
    """Every route of one broker."""
    return [
        *cluster.ROUTES,
        *tenants.ROUTES,
        *namespaces.ROUTES,
        *namespace_policies.ROUTES,
        *topics.ROUTES,
        *partitioned.ROUTES,
        *stats.ROUTES,
        *subscriptions.ROUTES,
        *backlogs.ROUTES,
        *messages.ROUTES,
        *topic_policies.ROUTES,
        *lookup.ROUTES,
        *metrics_route.routes(broker),
    ]
