"""The subscription `__compaction` that administrators see: a view of a topic's compaction, not a cursor.

Apache Pulsar compacts through a durable subscription of this name. Here its mark-delete position is the
horizon of the compacted view, and its backlog the entries after it.
"""

from __future__ import annotations

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


def compaction_subscription(
    ledger: ManagedLedger, config: DispatchConfig, budget: ByteBudget, stats: TopicStats, spawn: Spawn
) -> Subscription | None:
    """Returns the subscription to show; None for a topic without a compacted view and without a threshold.

    No consumer may be connected to it, and it is not kept.
    """
    compaction = ledger.compaction
    if compaction.horizon is None and not compaction.held:
        return None
    mark_delete = compaction.horizon or ledger.first_position()
    cursor = Cursor(COMPACTION_SUBSCRIPTION, ledger.spans, mark_delete, durable=True)
    return Subscription(ledger, cursor, config, budget, stats, spawn)
