"""An end in a topic of this broker: done when durable, gone without the topic, and else to be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.participants import EndOutcome, TransactionEnd
from magnetar.broker.transactions.topic_ends import TopicEnds
from magnetar.common.errors import (
    InvalidTxnStatus,
    LogFailed,
    MagnetarError,
    NamespaceNotFound,
    NotAllowed,
    OwnershipLost,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId

END = TransactionEnd(TxnId(0, 0), "persistent://a/b/t", Action.COMMIT, -1)


@dataclass
class World:
    """One topic with transactions; it is the registry and the ownership, too."""

    failure: MagnetarError | None = None
    ended_with: MagnetarError | None = None
    refused: MagnetarError | None = None
    owned: bool = True
    volatile: bool = False
    held: list[Callable[[MagnetarError | None], None]] = field(default_factory=list)
    holds: bool = False
    ended: list[tuple[Any, ...]] = field(default_factory=list)

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        assert not create
        if self.failure is not None:
            raise self.failure
        if self.volatile:
            return NonPersistentTopic.__new__(NonPersistentTopic)
        topic = PersistentTopic.__new__(PersistentTopic)
        topic.ledger = cast(Any, SimpleNamespace(use_transactions=lambda: self))
        return topic

    def check(self, name: TopicName) -> None:
        if not self.owned:
            raise ServiceNotReady("elsewhere")

    def end(
        self, txn: TxnId, action: Action, low_watermark: int, done: Callable[[MagnetarError | None], None]
    ) -> None:
        if self.refused is not None:
            raise self.refused
        self.ended.append((txn, action, low_watermark))
        if self.holds:
            self.held.append(done)
        else:
            done(self.ended_with)

    async def outcome(self) -> EndOutcome:
        ends = TopicEnds(cast(Any, self), cast(Any, self))
        (result,) = await ends.end((END,))
        return result.outcome


def outcome_of(world: World) -> EndOutcome:
    return asyncio.run(world.outcome())


def test_a_transaction_that_the_topic_recorded_is_done() -> None:
    world = World()
    assert outcome_of(world) is EndOutcome.DONE
    assert world.ended == [(TxnId(0, 0), Action.COMMIT, -1)]


def test_it_is_done_no_earlier_than_the_record_is_durable() -> None:
    async def body() -> None:
        world = World(holds=True)
        ending = asyncio.create_task(world.outcome())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not ending.done()
        world.held.pop()(None)
        assert await ending is EndOutcome.DONE

    asyncio.run(body())


def test_a_caller_that_gives_up_disturbs_nothing() -> None:
    async def body() -> None:
        world = World(holds=True)
        ending = asyncio.create_task(world.outcome())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait([ending])
        world.held.pop()(None)

    asyncio.run(body())


@pytest.mark.parametrize("error", [TopicNotFound("t"), NamespaceNotFound("a/b")])
def test_a_topic_that_does_not_exist_has_nothing_to_end(error: MagnetarError) -> None:
    assert outcome_of(World(failure=error)) is EndOutcome.GONE


def test_a_non_persistent_topic_has_nothing_to_end() -> None:
    assert outcome_of(World(volatile=True)) is EndOutcome.GONE


@pytest.mark.parametrize("error", [ServiceNotReady("x"), OwnershipLost("x")])
@pytest.mark.parametrize("owned", [True, False])
def test_a_topic_that_is_not_served_is_retried_or_sought_elsewhere(
    error: MagnetarError, *, owned: bool
) -> None:
    expected = EndOutcome.RETRY if owned else EndOutcome.NOT_MINE
    assert outcome_of(World(failure=error, owned=owned)) is expected


@pytest.mark.parametrize("error", [TooManyRequests("x"), LogFailed("x"), NotAllowed("x")])
def test_any_other_failure_is_retried_and_never_a_success(error: MagnetarError) -> None:
    assert outcome_of(World(failure=error)) is EndOutcome.RETRY
    assert outcome_of(World(ended_with=error)) is EndOutcome.RETRY


def test_the_other_action_is_refused() -> None:
    assert outcome_of(World(refused=InvalidTxnStatus("x"))) is EndOutcome.REFUSED
    assert outcome_of(World(ended_with=InvalidTxnStatus("x"))) is EndOutcome.REFUSED
