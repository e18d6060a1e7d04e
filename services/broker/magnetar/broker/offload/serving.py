"""The offload service of a broker, composed; imported only where gRPC is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.offload.ledger_messages import BookieAddress
from magnetar.broker.offload.owners import Owners
from magnetar.broker.offload.service import OffloadService
from magnetar.broker.offload.work import OffloadWork

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker


def offload_service(
    broker: Broker, owners: Owners, bookie_address: BookieAddress | None = None
) -> OffloadService:
    """What jobs call this broker for. `bookie_address` says where bookies are; None where there are none."""
    config = broker.config.offload
    work = OffloadWork(
        broker.ledgers,
        broker.registry,
        broker.policies,
        broker.schemas,
        owners,
        bookie_address=bookie_address,
        stale_after_ms=lambda: config.stale_after_s * 1000,
    )
    return OffloadService(work)
