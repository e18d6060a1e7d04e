"""Transactions of topics and subscriptions in the form of Pulsar's admin API."""

from __future__ import annotations

from typing import Any

from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId


def buffer_stats(topic: PersistentTopic, *, low_watermarks: bool) -> dict[str, Any]:
    raise NotImplementedError


def in_buffer(topic: PersistentTopic, txn: TxnId) -> dict[str, Any]:
    raise NotImplementedError


def records_stats(topic: PersistentTopic) -> dict[str, Any]:
    raise NotImplementedError


def pending_ack_stats(topic: PersistentTopic, name: str, *, low_watermarks: bool) -> dict[str, Any]:
    raise NotImplementedError


def in_pending_acks(topic: PersistentTopic, name: str, txn: TxnId) -> dict[str, Any]:
    raise NotImplementedError


def position_state(topic: PersistentTopic, name: str, position: Position, batch_index: int) -> str:
    raise NotImplementedError
