"""Composes the offload service of a broker. Imported only by gRPC servers."""

from __future__ import annotations

from magnetar.broker.broker import Broker
from magnetar.broker.offload.job_calls import JobCalls
from magnetar.broker.offload.ledger_messages import BookieAddress
from magnetar.broker.offload.service import OffloadService
from magnetar.broker.offload.topic_owners import TopicOwners


def offload_service(
    broker: Broker, owners: TopicOwners, bookie_address: BookieAddress | None = None
) -> OffloadService:
    """Return the offload service of this broker, which offload jobs call.

    `bookie_address` returns the address of a bookie by its id; None in a standalone, which has no bookies.
    """
    config = broker.config.offload
    calls = JobCalls(
        broker.ledgers,
        broker.registry,
        broker.policies,
        broker.schemas,
        owners,
        bookie_address=bookie_address,
        stale_after_ms=lambda: config.stale_after_s * 1000,
    )
    return OffloadService(calls)
