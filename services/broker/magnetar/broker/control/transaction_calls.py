"""Answers the calls of other brokers about transactions."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.broker.control.transaction_messages import (
    read_end,
    read_ids,
    write_result,
    write_statuses,
)
from magnetar.broker.transactions.participants import EndResult, Participants, TransactionEnd
from magnetar.broker.transactions.status import Statuses
from magnetar.common.control.control_pb2 import (
    EndTransactionsRequest,
    EndTransactionsResponse,
    TransactionEndResult,
    TransactionStatusRequest,
    TransactionStatusResponse,
)
from magnetar.common.errors import NotAllowed, TooManyRequests

ENDS_MAX: Final = 1_000
"""Maximum ends in one call."""

STATUSES_MAX: Final = 1_000
"""Maximum transactions in one question."""

ANSWER_WITHIN_MS_MAX: Final = 2_000
"""Maximum milliseconds until a call is answered with what is done by then."""


class TransactionCalls:
    """Ends transactions in topics of this broker, and tells what its coordinators know."""

    def __init__(self, topics: Participants, statuses: Statuses) -> None:
        self._topics = topics
        self._statuses = statuses

    async def end(self, request: EndTransactionsRequest) -> EndTransactionsResponse:
        """Ends each transaction by itself. Raises TooManyRequests, NotAllowed for an unknown action."""
        if len(request.ends) > ENDS_MAX:
            raise TooManyRequests(f"{len(request.ends)} transactions in one call, at most {ENDS_MAX} fit")
        ends = [read_end(each) for each in request.ends]
        if not ends:
            return EndTransactionsResponse()
        within_ms = min(request.answer_within_ms or ANSWER_WITHIN_MS_MAX, ANSWER_WITHIN_MS_MAX)
        tasks = [asyncio.create_task(self._one(each), name=f"end {each.txn}") for each in ends]
        try:
            await asyncio.wait(tasks, timeout=within_ms / 1000)
            results = [
                write_result(task.result())
                if task.done()
                else TransactionEndResult(outcome=TransactionEndResult.UNDER_WAY)
                for task in tasks
            ]
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()  # what it began goes on; the next request joins it
            if late:
                await asyncio.wait(late)
        return EndTransactionsResponse(results=results)

    async def status(self, request: TransactionStatusRequest) -> TransactionStatusResponse:
        """Raises NotAllowed for transactions of several coordinators, ServiceNotReady when this broker does
        not have the coordinator.
        """
        transactions = read_ids(request)
        coordinators = {each.most for each in transactions}
        if len(coordinators) != 1:
            raise NotAllowed(f"{len(coordinators)} coordinators in one question: ask about one at a time")
        if len(transactions) > STATUSES_MAX:
            raise TooManyRequests(
                f"{len(transactions)} transactions in one question, at most {STATUSES_MAX} fit"
            )
        statuses = await self._statuses.status(coordinators.pop(), transactions)
        return write_statuses(transactions, statuses)

    async def _one(self, end: TransactionEnd) -> EndResult:
        return (await self._topics.end((end,)))[0]
