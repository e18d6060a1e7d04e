"""The table of all routes of the admin API, in the order in which they are tried."""

from __future__ import annotations

from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.routes import (
    bookie_explain,
    bookie_report,
    bookies,
    connections,
    entry_filters,
    ledger_explain,
    lookup,
    metrics,
    offload_states,
    orphans,
    permissions,
    publishing,
    reference,
    tenants,
    unsupported,
)
from magnetar.broker.admin.routes.brokers import brokers, bundle_map, health, tasks, top
from magnetar.broker.admin.routes.brokers import configuration as broker_configuration
from magnetar.broker.admin.routes.brokers import stats as broker_stats
from magnetar.broker.admin.routes.clusters import clusters, failure_domains, isolation_policies
from magnetar.broker.admin.routes.namespaces import backlogs as namespace_backlogs
from magnetar.broker.admin.routes.namespaces import (
    bundle_explain,
    bundles,
    namespaces,
    offload_scan,
    offload_thresholds,
    resource_quotas,
)
from magnetar.broker.admin.routes.namespaces import placement as namespace_placement
from magnetar.broker.admin.routes.namespaces import policies as namespace_policies
from magnetar.broker.admin.routes.schemas import schemas
from magnetar.broker.admin.routes.subscriptions import backlog_analysis, explain, messages, subscriptions
from magnetar.broker.admin.routes.subscriptions import backlogs as subscription_backlogs
from magnetar.broker.admin.routes.topics import (
    client_explain,
    partition_owners,
    partitioned,
    publish_explain,
    stats_pages,
    storage_explain,
    topics,
)
from magnetar.broker.admin.routes.topics import compaction as topic_compaction
from magnetar.broker.admin.routes.topics import explain as topic_explain
from magnetar.broker.admin.routes.topics import internals as topic_internals
from magnetar.broker.admin.routes.topics import offload as topic_offload
from magnetar.broker.admin.routes.topics import policies as topic_policies
from magnetar.broker.admin.routes.topics import replication as topic_replication
from magnetar.broker.admin.routes.topics import stats as topic_stats
from magnetar.broker.admin.routes.topics import storage as topic_storage
from magnetar.broker.admin.routes.transactions import coordinators as transaction_coordinators
from magnetar.broker.admin.routes.transactions import topics as topic_transactions


def routes(broker: BrokerView) -> list[Route]:
    """Returns every route of one broker."""
    return [
        *clusters.ROUTES,
        *failure_domains.ROUTES,
        *isolation_policies.ROUTES,
        *brokers.ROUTES,
        *health.ROUTES,
        *broker_configuration.ROUTES,
        *brokers.LAST,
        *broker_stats.ROUTES,
        *top.ROUTES,
        *connections.ROUTES,
        *bundle_map.ROUTES,
        *bookies.ROUTES,
        *bookie_report.ROUTES,
        *bookie_explain.ROUTES,
        *ledger_explain.ROUTES,
        *resource_quotas.ROUTES,
        *tenants.ROUTES,
        *namespace_placement.ROUTES,
        *namespaces.ROUTES,
        *namespace_policies.ROUTES,
        *permissions.ROUTES,
        *offload_thresholds.ROUTES,
        *offload_scan.ROUTES,
        *entry_filters.ROUTES,
        *namespace_backlogs.ROUTES,
        *bundles.ROUTES,
        *bundle_explain.ROUTES,
        *topics.ROUTES,
        *partitioned.ROUTES,
        *partition_owners.ROUTES,
        *topic_stats.ROUTES,
        *stats_pages.ROUTES,
        *subscriptions.ROUTES,
        *subscription_backlogs.ROUTES,
        *backlog_analysis.ROUTES,
        *explain.ROUTES,
        *messages.ROUTES,
        *topic_internals.ROUTES,
        *topic_storage.ROUTES,
        *storage_explain.ROUTES,
        *publish_explain.ROUTES,
        *client_explain.ROUTES,
        *topic_explain.ROUTES,
        *topic_compaction.ROUTES,
        *topic_offload.ROUTES,
        *offload_states.ROUTES,
        *topic_policies.ROUTES,
        *topic_replication.ROUTES,
        *topics.LAST,
        *schemas.ROUTES,
        *transaction_coordinators.ROUTES,
        *topic_transactions.ROUTES,
        *publishing.ROUTES,
        *lookup.ROUTES,
        *orphans.ROUTES,
        *tasks.ROUTES,
        *unsupported.ROUTES,
        *bundles.LAST,
        *reference.routes(),
        *metrics.routes(broker),
    ]
