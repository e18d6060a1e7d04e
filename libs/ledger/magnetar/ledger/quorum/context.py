"""Shared state of the quorum client: created once per process, passed to each writer."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.quorum.bookie_probe import Revival
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.pending_adds import AppendBudget
from magnetar.ledger.quorum.placement import Placement
from magnetar.ledger.quorum.write_health import Storing


@dataclass(frozen=True, slots=True)
class QuorumContext:
    """A ledger writer's dependencies outside the ledger."""

    clients: BookieClients
    metadata: MetadataStore
    keys: Keys
    catalog: LedgerCatalog
    placement: Placement
    clock: Clock
    config: QuorumConfig
    budget: AppendBudget
    tasks: TaskOwner
    revival: Revival
    storing: Storing
