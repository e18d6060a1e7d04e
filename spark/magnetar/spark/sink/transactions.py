"""Transactions of a write, as its driver handles them: whether there are any, their commits and aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.client.client import Client
from magnetar.spark.sink.batch_commit import abort_batch, commit_batch, commit_once
from magnetar.spark.sink.commit_log import CommitLog, TaskCommit
from magnetar.spark.sink.options import SinkOptions


def use_transactions(options: SinkOptions) -> bool:
    """Returns whether tasks publish in transactions. Raises ClientError if that depends on a broker that
    cannot be reached.
    """
    if options.transactions != "auto":
        return options.transactions == "on"
    return asyncio.run(_available(options))


def commit_tasks(options: SinkOptions, query_id: str, batch: int | None, tasks: Sequence[TaskCommit]) -> None:
    """Commits what the tasks of a batch have published; None: it is never run again.

    Raises SinkError, ClientError.
    """
    asyncio.run(_commit(options, query_id, batch, tasks))


def abort_tasks(options: SinkOptions, tasks: Sequence[TaskCommit]) -> None:
    """Aborts what the tasks of a failed batch have published."""
    if tasks:
        asyncio.run(_abort(options, tasks))


async def _available(options: SinkOptions) -> bool:
    async with Client.with_options(options.client_options()) as client:
        return await client.coordinators.available()


async def _commit(
    options: SinkOptions, query_id: str, batch: int | None, tasks: Sequence[TaskCommit]
) -> None:
    async with Client.with_options(options.client_options()) as client:
        if batch is None:
            await commit_once(client.coordinators, tasks)
            return
        log = await CommitLog.open(client, options.commits_of(query_id), options.busy_timeout)
        try:
            await commit_batch(log, client.coordinators, batch, tasks)
        finally:
            await log.close()


async def _abort(options: SinkOptions, tasks: Sequence[TaskCommit]) -> None:
    async with Client.with_options(options.client_options()) as client:
        await abort_batch(client.coordinators, tasks)
