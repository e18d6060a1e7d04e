"""One transaction: what is sent and acknowledged in it takes effect together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, TypeVar

from magnetar.client.errors import ClientError
from magnetar.client.messages import Message, MessageId, OnSent, Receiver
from magnetar.client.transactions.coordinators import Coordinators
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId

T = TypeVar("T")


class TransactionState(Enum):
    """Where a transaction is."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Its end was asked for and not answered: it is committed or aborted."""


class Transaction:
    """Made by `Client.transaction`: `async with` commits it at the end of the block, or aborts it when the
    block raises. Pass it to `send` and `acknowledge`.
    """

    def __init__(self, coordinators: Coordinators, txn: TxnId) -> None:
        self.id = txn
        self.state = TransactionState.OPEN
        self._coordinators = coordinators
        self._topics: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._unfinished = 0
        self._finished = asyncio.Event()
        self._finished.set()
        self._error: ClientError | None = None

    async def add_topic(self, topic: str) -> None:
        """Names a topic or partition to which `send_nowait` will publish in it. Raises TransactionEnded,
        Refused, ConnectionLost.
        """
        await self.take_part(TopicName.parse(topic).full)

    async def commit(self) -> None:
        """Waits for what was sent and acknowledged in it, and makes it take effect. When something of it
        failed the transaction is aborted, and the error raised. Raises TransactionEnded, Refused,
        ConnectionLost.
        """
        self._check_open()
        await self._finished.wait()
        if self._error is not None:
            await self.abort()
            raise self._error
        await self._end(Action.COMMIT, TransactionState.COMMITTING, TransactionState.COMMITTED)

    async def abort(self) -> None:
        """Undoes everything of it: its messages are never delivered, its acknowledgements void. Raises
        TransactionEnded, Refused, ConnectionLost.
        """
        self._check_open()
        await self._finished.wait()
        await self._end(Action.ABORT, TransactionState.ABORTING, TransactionState.ABORTED)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is not TransactionState.OPEN:
            return
        if error is None:
            await self.commit()
        else:
            await self.abort()

    # For producers and consumers

    async def take_part(self, topic: str) -> TxnId:
        """Names a topic that takes part, once, and returns the id."""
        self._check_open()
        task = self._topics.get(topic)
        if task is None or _has_failed(task):
            task = self._topics[topic] = _started(self._coordinators.add_topics(self.id, [topic]))
        await asyncio.shield(task)
        return self.id

    def part_of(self, topic: str) -> TxnId:
        """Returns the id for a topic that takes part. Raises ClientError for another one."""
        self._check_open()
        task = self._topics.get(topic)
        if task is None or not task.done() or _has_failed(task):
            raise ClientError(
                f"{topic} takes no part in transaction {self.id} yet: await transaction.add_topic({topic!r}) "
                "before send_nowait, or use send"
            )
        return self.id

    def tracked(self, callback: OnSent | None) -> OnSent:
        """Counts an operation of it, until the returned callback is called."""
        self._begin_operation()

        def done(error: ClientError | None, message_id: MessageId | None) -> None:
            self.end_operation(error)
            if callback is not None:
                callback(error, message_id)

        return done

    async def acknowledge(
        self, receiver: Receiver, subscription: str, message: Message | MessageId, *, cumulative: bool
    ) -> None:
        """Acknowledges a message in it. Raises TransactionConflict, Refused, ConnectionLost."""
        self._check_open()
        self._begin_operation()
        try:
            at = receiver.topic, subscription
            task = self._subscriptions.get(at)
            if task is None or _has_failed(task):
                task = _started(self._coordinators.add_subscription(self.id, *at))
                self._subscriptions[at] = task
            await asyncio.shield(task)
            await receiver.acknowledge_in(self.id, message, cumulative=cumulative)
        except ClientError as error:
            self.end_operation(error)
            raise
        except BaseException:
            self.end_operation(
                ClientError(f"transaction {self.id}: an acknowledgement was canceled before its answer")
            )
            raise
        self.end_operation(None)

    def end_operation(self, error: ClientError | None) -> None:
        """Counts an operation as finished; after an error the transaction can only be aborted."""
        self._unfinished -= 1
        if error is not None and self._error is None:
            self._error = error
        if not self._unfinished:
            self._finished.set()

    def _begin_operation(self) -> None:
        self._unfinished += 1
        self._finished.clear()

    def _check_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise ClientError(f"transaction {self.id} is {self.state.value}: begin another one")

    async def _end(self, action: Action, during: TransactionState, after: TransactionState) -> None:
        self.state = during
        try:
            await self._coordinators.end(self.id, action)
        except BaseException:
            self.state = TransactionState.UNKNOWN
            raise
        self.state = after


def _started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
