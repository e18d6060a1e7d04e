"""A durable subscription of a stream, acknowledged behind its checkpoint: it keeps what is unread.

Nothing is delivered through it. It is Exclusive: a second query that begins with the same subscription is
refused. That an acknowledgement is lost does no harm, the next one covers it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from magnetar.client.client import Client
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId
from magnetar.common.obs.logs import get_logger
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.source_options import SourceOptions
from magnetar.spark.stream.offsets import TopicOffset
from magnetar.spark.stream.open_chunks import first_needed_before

log = get_logger(__name__)

CONSUMER_NAME: Final = "magnetar-spark"

T = TypeVar("T")


class Acknowledger:
    """The subscriptions of a stream. Owns a thread with an event loop until `close`; used from one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="acknowledger", daemon=True)
        self._thread.start()
        self._client: Client | None = None
        self._held: dict[str, Consumer[bytes]] = {}
        self._acknowledged: dict[str, MessageAt] = {}

    def subscribe(self, topics: Iterable[str]) -> None:
        """Create and hold the subscriptions of topics. Raises ClientError where another consumer has one."""
        self._run(self._subscribe(list(topics)))

    def acknowledge(self, offsets: Mapping[str, TopicOffset], described: Mapping[str, TopicLedgers]) -> None:
        """Acknowledge everything before these offsets. Failures are logged: the next call covers them."""
        for topic, offset in offsets.items():
            ledgers = described.get(topic)
            if ledgers is None or ledgers.creation_id != offset.creation_id:
                continue
            if offset.at <= self._acknowledged.get(topic, BEGINNING):
                continue
            last = last_entry_before(ledgers, first_needed_before(ledgers, offset.at))
            if last is None:
                continue
            try:
                self._run(self._acknowledge(topic, last))
            except ClientError as error:
                log.warning("not acknowledged", topic=topic, at=str(last), error=str(error))
            else:
                self._acknowledged[topic] = offset.at

    def close(self) -> None:
        """Idempotent."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _subscribe(self, topics: list[str]) -> None:
        for topic in topics:
            await self._held_of(topic)

    async def _held_of(self, topic: str) -> Consumer[bytes]:
        held = self._held.get(topic)
        if held is not None:
            if held.is_usable:
                return held
            await held.close()
        if self._client is None:
            self._client = Client.with_options(self._options.client_options())
        held = await self._client.subscribe(
            topic,
            self._options.subscription,
            name=CONSUMER_NAME,
            initial_position="earliest",
            queue_size=0,  # It never asks for a message.
            ack_receipts=True,
        )
        self._held[topic] = held
        return held

    async def _acknowledge(self, topic: str, last: MessageAt) -> None:
        held = await self._held_of(topic)
        await held.acknowledge_cumulative(MessageId(last.ledger_id, last.entry_id))

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()  # Its consumers, too.

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def last_entry_before(topic: TopicLedgers, at: MessageAt) -> MessageAt | None:
    """The last entry before a place; None when there is none."""
    for ledger in reversed(topic.ledgers):
        if ledger.ledger_id > at.ledger_id:
            continue
        if ledger.ledger_id < at.ledger_id:
            return MessageAt(ledger.ledger_id, ledger.last_entry_id)
        if at.entry_id > 0:
            return MessageAt(ledger.ledger_id, min(at.entry_id - 1, ledger.last_entry_id))
    return None
