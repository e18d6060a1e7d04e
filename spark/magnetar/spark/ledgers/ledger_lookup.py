"""Lookup of a ledger at a broker, for tasks and commands."""

from __future__ import annotations

from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.ledgers.ledger_source import ServiceAddress


def find_ledger(service: ServiceAddress, topic: str, ledger_id: int) -> Ledger | None:
    """Return the current state of a ledger of a topic; None when the topic no longer has it.

    Raises TopicNotFound, and what else a call may.
    """
    with OffloadChannel(service.address) as channel:
        ledgers = channel.describe(topic).ledgers
    return next((each for each in ledgers if each.ledger_id == ledger_id), None)
