"""Ends transactions in topics that this broker owns: requested by coordinators, here or on other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.errors import (
    InvalidName,
    InvalidTxnStatus,
    MagnetarError,
    OwnershipLost,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.common.naming.topic_name import TopicName

DONE: Final = EndResult(EndOutcome.DONE)
GONE: Final = EndResult(EndOutcome.GONE)


class TopicEnds:
    """Implements `Participants` for the topics of this broker."""

    def __init__(self, topics: TopicRegistry, ownership: Ownership) -> None:
        self._topics = topics
        self._ownership = ownership

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        """Ends each transaction in its topic, all at the same time; see `Participants`."""
        if len(ends) == 1:
            return [await self.end_one(ends[0])]
        return list(await asyncio.gather(*map(self.end_one, ends)))

    async def end_one(self, end: TransactionEnd) -> EndResult:
        """Loads the topic if it exists, and ends the transaction in it; the result is durable.

        Cancelling the caller does not undo anything: the end goes on, and the next request for it joins it.
        """
        try:
            name = TopicName.parse(end.topic)
            topic = await self._topics.get(name, create=False)
            if not isinstance(topic, PersistentTopic):
                return GONE
            await _end(topic, end)
        except (TopicNotFound, InvalidName):
            return GONE
        except InvalidTxnStatus as error:
            return EndResult(EndOutcome.REFUSED, reason=str(error))
        except (ServiceNotReady, OwnershipLost) as error:
            return EndResult(self._outcome_elsewhere(end.topic), reason=str(error))
        except MagnetarError as error:
            return EndResult(EndOutcome.RETRY, reason=f"{type(error).__name__}: {error}")
        return DONE

    def _outcome_elsewhere(self, topic: str) -> EndOutcome:
        try:
            self._ownership.check(TopicName.parse(topic))
        except ServiceNotReady:
            return EndOutcome.NOT_MINE
        return EndOutcome.RETRY


async def _end(topic: PersistentTopic, end: TransactionEnd) -> None:
    """Ends the transaction and waits until its outcome is durable. Raises InvalidTxnStatus, StorageError."""
    ended: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()

    def done(error: MagnetarError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    transactions = topic.ledger.use_transactions()
    transactions.end(end.txn, end.action, end.low_watermark, done)
    error = await ended
    if error is not None:
        raise error
