"""Lookup of a ledger at a broker, for tasks and commands."""

from __future__ import annotations

from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.ledgers.service_channel import open_channel


def find_ledger(service: ServiceAddress, topic: str, ledger_id: int) -> Ledger | None:
    """Return the current state of a ledger of a topic; None when the topic no longer has it.

    Raises TopicNotFound, and what else a call may.
    """
    with open_channel(service) as channel:
        ledgers = channel.describe(topic).ledgers
    return next((each for each in ledgers if each.ledger_id == ledger_id), None)
