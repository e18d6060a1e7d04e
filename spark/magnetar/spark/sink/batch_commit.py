"""Commits the transactions of a batch, all or none of them, also when the driver dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from magnetar.client.errors import ClientError, TransactionEnded
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.spark.sink.commit_log import Decision, TaskCommit
from magnetar.spark.sink.errors import SinkError

log = get_logger(__name__)

ENDS_AT_ONCE: Final = 32

_TOO_LATE: Final = (
    "a transaction ended before the batch was committed: raise the option transaction.timeout above the time "
    "that a batch takes, and run the query again from its checkpoint"
)


class Ends(Protocol):
    """Ends transactions; `magnetar.client.transactions.coordinators.Coordinators`."""

    async def end(self, txn: TxnId, action: Action) -> None: ...


class Log(Protocol):
    """Keeps decisions; `commit_log.CommitLog`."""

    last: Decision | None

    async def decide(self, decision: Decision) -> None: ...


async def commit_batch(log_: Log, ends: Ends, batch: int, tasks: Sequence[TaskCommit]) -> int:
    """Commits a batch once; returns how many of its rows an earlier run of it had published.

    Raises SinkError, ClientError; then the batch may be run again.
    """
    last = log_.last
    if last is not None and last.batch > batch:
        await _abort(ends, tasks)
        raise SinkError(
            f"batch {last.batch} was committed, and now batch {batch} is to be: another query uses the same "
            "query.id, or its checkpoint was set back; choose another one"
        )
    if last is None or last.batch < batch:
        decision = Decision(batch, tuple(tasks))
        await log_.decide(decision)
        if await _commit(ends, decision.tasks):
            raise SinkError(_TOO_LATE)
        found = 0
    else:
        decision, found = await _resume(log_, ends, last, tasks)
    if not decision.done:
        await log_.decide(Decision(batch, decision.tasks, done=True))
    return found


async def commit_once(ends: Ends, tasks: Sequence[TaskCommit]) -> None:
    """Commits a batch that is never run again. Raises SinkError if only a part of it could be committed."""
    late = await _commit(ends, tasks)
    if len(late) == len(tasks) and late:
        raise SinkError(_TOO_LATE)
    if late:
        raise SinkError(
            f"tasks {[task.partition for task in late]} of the write are not committed: {_TOO_LATE}"
        )


async def abort_batch(ends: Ends, tasks: Sequence[TaskCommit]) -> None:
    """Aborts what tasks of a failed batch have published; what cannot be aborted now times out."""
    await _abort(ends, tasks)


async def _resume(log_: Log, ends: Ends, last: Decision, tasks: Sequence[TaskCommit]) -> tuple[Decision, int]:
    """Goes on with a decision of an earlier run of the batch; its tasks have run again meanwhile."""
    late = [] if last.done else await _commit(ends, last.tasks, unknown_is_late=False)
    if not late:
        await _abort(ends, tasks)
        return last, sum(task.rows for task in last.tasks)
    # The earlier driver died after it had decided, for longer than transactions live.
    again = {task.partition: task for task in tasks}
    for task in late:
        other = again.get(task.partition)
        if other is None or not other.same_rows(task):
            await _abort(ends, tasks)
            raise SinkError(
                f"batch {last.batch} is committed in part, the transaction of its task {task.partition} has "
                "timed out, and the task now has other rows. Make the rows repeatable (sort them, keep the "
                "number of partitions), and raise the option transaction.timeout"
            )
    lost = {task.partition for task in late}
    decision = Decision(
        last.batch, tuple(again[task.partition] if task.partition in lost else task for task in last.tasks)
    )
    await log_.decide(decision)
    await _abort(ends, [task for task in tasks if task.partition not in lost])
    if await _commit(ends, [again[partition] for partition in lost]):
        raise SinkError(_TOO_LATE)
    return decision, sum(task.rows for task in last.tasks if task.partition not in lost)


async def _commit(
    ends: Ends, tasks: Sequence[TaskCommit], *, unknown_is_late: bool = True
) -> list[TaskCommit]:
    """Commits transactions; returns those that were aborted.

    Raises ClientError, and SinkError for one that is not known any more, unless `unknown_is_late`: then no
    earlier driver can have committed it.
    """
    late: list[TaskCommit] = []
    turns = asyncio.Semaphore(ENDS_AT_ONCE)

    async def commit(task: TaskCommit) -> None:
        async with turns:
            try:
                await ends.end(task.txn, Action.COMMIT)
            except TransactionEnded as ended:
                if not ended.known and not unknown_is_late:
                    raise SinkError(
                        f"the broker has forgotten whether transaction {task.txn} of this batch was "
                        "committed: too much time passed since its driver died. Compare the topic with the "
                        "rows, then publish what is missing and begin with another query.id"
                    ) from ended
                late.append(task)

    await asyncio.gather(*map(commit, tasks))
    return late


async def _abort(ends: Ends, tasks: Sequence[TaskCommit]) -> None:
    for task in tasks:
        try:
            await ends.end(task.txn, Action.ABORT)
        except ClientError as error:
            log.warning("transaction not aborted, it times out", txn=str(task.txn), error=str(error))
