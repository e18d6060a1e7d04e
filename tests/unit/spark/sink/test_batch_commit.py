"""Batches that are committed once, whenever their driver dies."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from magnetar.client.errors import TransactionEnded
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.spark.sink.batch_commit import abort_batch, commit_batch, commit_once
from magnetar.spark.sink.commit_log import Decision, TaskCommit
from magnetar.spark.sink.errors import SinkError

PARTITIONS = 3


class DriverDied(Exception):
    """The driver ends at some step."""


class Cluster:
    """Coordinators and the log of a query: they outlive drivers."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.outcomes: dict[TxnId, Action] = {}
        self.forgotten: set[TxnId] = set()
        self.decisions: list[Decision] = []
        self.steps_left = 1_000
        """Steps until the driver dies."""

    def step(self) -> None:
        if not self.steps_left:
            raise DriverDied
        self.steps_left -= 1

    def published(self, batch: int, checksum: int = 0) -> list[TaskCommit]:
        """Returns the transactions of the tasks of one run of a batch; each task has ten rows."""
        return [
            TaskCommit(partition, TxnId(0, next(self.numbers)), 10, checksum or batch * 10 + partition)
            for partition in range(PARTITIONS)
        ]

    def time_out(self, *tasks: TaskCommit) -> None:
        for task in tasks:
            self.outcomes.setdefault(task.txn, Action.ABORT)

    def committed(self, *runs: list[TaskCommit]) -> Counter[int]:
        """Partitions of a batch whose rows are committed, by how often."""
        tasks = [task for run in runs for task in run]
        return Counter(task.partition for task in tasks if self.outcomes.get(task.txn) is Action.COMMIT)

    async def end(self, txn: TxnId, action: Action) -> None:
        self.step()
        await asyncio.sleep(0)
        if txn in self.forgotten:
            raise TransactionEnded(f"{txn} is not known", known=False)
        if self.outcomes.setdefault(txn, action) is not action:
            raise TransactionEnded(f"{txn} ended otherwise", known=True)
        self.step()


class Log:
    """A driver's view of the log."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.last = cluster.decisions[-1] if cluster.decisions else None

    async def decide(self, decision: Decision) -> None:
        self._cluster.step()
        self._cluster.decisions.append(decision)
        self.last = decision
        self._cluster.step()


def commit(cluster: Cluster, batch: int, tasks: list[TaskCommit]) -> int:
    return asyncio.run(commit_batch(Log(cluster), cluster, batch, tasks))


ONCE = Counter(range(PARTITIONS))


def test_a_batch_is_committed_and_the_next_one() -> None:
    cluster = Cluster()
    for batch in (4, 5):
        run = cluster.published(batch)
        assert commit(cluster, batch, run) == 0
        assert cluster.committed(run) == ONCE
    assert [decision.done for decision in cluster.decisions] == [False, True, False, True]


@pytest.mark.parametrize("steps", range(13))
@pytest.mark.parametrize("second_steps", range(0, 13, 2))
def test_a_driver_that_dies_at_any_step_commits_nothing_twice_and_loses_nothing(
    steps: int, second_steps: int
) -> None:
    cluster = Cluster()
    runs = []
    for allowed in (steps, second_steps):
        runs.append(cluster.published(7))
        cluster.steps_left = allowed
        with suppress(DriverDied):  # or Spark dies before it writes down that the commit returned
            commit(cluster, 7, runs[-1])
        assert set(cluster.committed(*runs).values()) <= {1}
    cluster.steps_left = 1_000
    runs.append(cluster.published(7))
    commit(cluster, 7, runs[-1])
    assert cluster.committed(*runs) == ONCE
    assert all(task.txn in cluster.outcomes for task in runs[-1]), "no transaction is left open"
    assert cluster.decisions[-1].done


@pytest.mark.parametrize("steps", range(1, 9))
def test_transactions_that_time_out_after_the_decision_are_replaced_by_the_same_rows(steps: int) -> None:
    cluster = Cluster()
    first = cluster.published(7)
    cluster.steps_left = steps
    with pytest.raises(DriverDied):
        commit(cluster, 7, first)
    cluster.time_out(*first)
    cluster.steps_left = 1_000
    second = cluster.published(7)
    commit(cluster, 7, second)
    assert cluster.committed(first, second) == ONCE


def test_other_rows_in_place_of_a_transaction_that_timed_out_are_refused() -> None:
    cluster = Cluster()
    first = cluster.published(7)
    cluster.steps_left = 4
    with pytest.raises(DriverDied):
        commit(cluster, 7, first)
    assert cluster.committed(first), "it is committed in part"
    cluster.time_out(*first)
    cluster.steps_left = 1_000
    with pytest.raises(SinkError, match="has other rows"):
        commit(cluster, 7, cluster.published(7, checksum=99))


def test_a_batch_that_took_longer_than_its_transactions_is_run_again() -> None:
    cluster = Cluster()
    late, again = cluster.published(7), cluster.published(7)
    cluster.time_out(*late)
    with pytest.raises(SinkError, match=r"transaction\.timeout"):
        commit(cluster, 7, late)
    commit(cluster, 7, again)
    assert cluster.committed(late, again) == ONCE


def test_a_decision_whose_outcome_is_forgotten_is_refused() -> None:
    cluster = Cluster()
    first = cluster.published(7)
    cluster.steps_left = 2
    with pytest.raises(DriverDied):
        commit(cluster, 7, first)
    cluster.forgotten.update(task.txn for task in first)
    cluster.steps_left = 1_000
    with pytest.raises(SinkError, match="has forgotten"):
        commit(cluster, 7, cluster.published(7))


def test_an_earlier_batch_is_refused_and_its_transactions_are_aborted() -> None:
    cluster = Cluster()
    commit(cluster, 7, cluster.published(7))
    earlier = cluster.published(6)
    with pytest.raises(SinkError, match="another query"):
        commit(cluster, 6, earlier)
    assert {cluster.outcomes[task.txn] for task in earlier} == {Action.ABORT}


def test_a_write_that_is_never_run_again_needs_no_log() -> None:
    cluster = Cluster()
    run = cluster.published(0)
    asyncio.run(commit_once(cluster, run))
    assert cluster.committed(run) == ONCE
    assert not cluster.decisions
    late = cluster.published(0)
    cluster.time_out(late[0])
    with pytest.raises(SinkError, match=r"tasks \[0\]"):
        asyncio.run(commit_once(cluster, late))


def test_what_a_failed_batch_published_is_aborted() -> None:
    cluster = Cluster()
    run = cluster.published(0)
    asyncio.run(abort_batch(cluster, run))
    assert {cluster.outcomes[task.txn] for task in run} == {Action.ABORT}


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"{}", lambda data: b"[1]", lambda data: b"\xff"],
    ids=["cut", "empty", "a list", "no text"],
)
def test_decisions_are_read_as_they_were_written(damage: Callable[[bytes], bytes]) -> None:
    decision = Decision(3, (TaskCommit(0, TxnId(1, 2**63), 5, 2**32 - 1),), done=True)
    assert Decision.decode(decision.encode()) == decision
    with pytest.raises(SinkError, match=r"commit\.topic"):
        Decision.decode(damage(decision.encode()))
