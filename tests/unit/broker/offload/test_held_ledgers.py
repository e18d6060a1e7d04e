"""Ledgers and transactions: none is offloaded before they ended, and the owner says how they did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar.broker.offload.policy_trigger import PolicyTrigger
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.offload.offload_pb2 import DescribeRequest, Ledger, WantRequest
from magnetar.common.offload.offload_refusals import HeldByTransaction
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from pyroaring import BitMap

from tests.simulation.power_loss import KEYS
from tests.unit.broker.offload.world import LOCATION, Elsewhere, Jobs, with_jobs
from tests.unit.broker.topics.simulated_broker import counted
from tests.unit.ledger.managed_ledger.harness import until

KEPT, GONE, OPEN = TxnId(0, 1), TxnId(0, 2), TxnId(0, 3)
HELD = f"waits for transaction {OPEN}, open for 0 s"


async def end(topic: PersistentTopic, txn: TxnId, action: Action) -> None:
    ended: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
    assert topic.ledger.transactions is not None
    topic.ledger.transactions.end(txn, action, -1, ended.set_result)
    assert await ended is None


async def ledger_of(topic: PersistentTopic, *txns: TxnId | None) -> int:
    """A closed ledger with an entry in each of these transactions."""
    for txn in txns:
        topic.ledger.append(Run([b"0"], txn=txn), None)
    spans = topic.ledger.spans
    await until(lambda: bool(spans.spans) and spans.spans[-1].entries == len(txns))
    topic.ledger.roll()
    await until(lambda: spans.spans[-1].closed)
    return spans.spans[-1].ref.id


def with_ledgers(
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Jobs, PersistentTopic, list[int]], Awaitable[None]],
    **configured: Any,
) -> None:
    """Three closed ledgers: settled; cut by an open transaction; behind it."""
    monkeypatch.setattr(PersistentTopic, "on_confirmed", lambda *_: None)

    async def run(jobs: Jobs) -> None:
        topic = await jobs.load("orders")
        await topic.subscriptions.create("keeps")
        topic.ledger.use_transactions()
        ids = [await ledger_of(topic, None, KEPT, GONE, GONE, None)]
        await end(topic, KEPT, Action.COMMIT)
        await end(topic, GONE, Action.ABORT)
        ids.append(await ledger_of(topic, None, None, OPEN, None))
        ids.append(await ledger_of(topic, None, None))
        await scenario(jobs, topic, ids)

    with_jobs(run, **configured)


async def described(jobs: Jobs, only: int = 0) -> list[Ledger]:
    return list((await jobs.work.describe(DescribeRequest(topic="orders", ledger_id=only))).ledgers)


def test_the_owner_says_what_is_aborted_and_how_far_ledgers_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(jobs: Jobs, topic: PersistentTopic, ids: list[int]) -> None:
        found = await described(jobs)
        assert [each.ledger_id for each in found] == ids
        assert [each.last_entry_id for each in found] == [4, 1, -1]
        assert [each.entries for each in found] == [5, 4, 2]
        assert [each.held for each in found] == ["", HELD, HELD]
        assert all(each.transactions_told for each in found)
        assert BitMap.deserialize(found[0].aborted) == BitMap([2, 3])
        assert [each.aborted for each in found[1:]] == [b"", b""]
        assert [each.ledger_id for each in await described(jobs, ids[1])] == [ids[1]]
        await end(topic, OPEN, Action.ABORT)
        found = await described(jobs)
        assert [(each.last_entry_id, each.held) for each in found] == [(4, ""), (3, ""), (1, "")]
        assert BitMap.deserialize(found[1].aborted) == BitMap([2])

    with_ledgers(monkeypatch, scenario)


def test_another_broker_does_not_say_what_it_cannot_know(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(jobs: Jobs, topic: PersistentTopic, ids: list[int]) -> None:
        found = await jobs.working_for(Elsewhere()).describe(DescribeRequest(topic="orders"))
        assert found.owner
        assert [each.transactions_told for each in found.ledgers] == [False] * 3

    with_ledgers(monkeypatch, scenario)


def test_no_attempt_begins_at_a_ledger_that_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(jobs: Jobs, topic: PersistentTopic, ids: list[int]) -> None:
        wanted = (await jobs.work.want(WantRequest(topic="orders", location=LOCATION))).ledgers
        assert [each.ledger_id for each in wanted] == ids
        await jobs.begin(wanted[0])
        for held in wanted[1:]:
            with pytest.raises(HeldByTransaction, match=r"waits for transaction \(0,3\)"):
                await jobs.begin(held)
        await end(topic, OPEN, Action.COMMIT)
        for each in wanted[1:]:
            assert (await jobs.begin(each)).offload.failures == 0

    with_ledgers(monkeypatch, scenario)


def test_policies_select_ledgers_once_their_transactions_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(jobs: Jobs, topic: PersistentTopic, ids: list[int]) -> None:
        context = jobs.made.ledgers
        ledgers = OffloadLedgers(context.metadata, KEYS, context.clock)
        trigger = PolicyTrigger(lambda: jobs.made.registry.loaded, ledgers, OffloadConfig(), context.clock)
        await trigger.look()
        assert await jobs.wanted() == ids[:1]
        assert counted("magnetar_offload_held_ledgers") == 2
        await end(topic, OPEN, Action.COMMIT)
        await trigger.look()
        assert await jobs.wanted() == ids
        assert counted("magnetar_offload_held_ledgers") == 0

    with_ledgers(monkeypatch, scenario, location="/cold", threshold_bytes=0)
