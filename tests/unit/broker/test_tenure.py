"""A topic whose broker may have lost its session is certain again once metadata or its ledger says so."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.broker.tenure import LOOKS_MAX, PROVEN_S, STILL_S, Lease, Tenure
from magnetar.common.errors import LedgerFenced, OwnershipLost, StorageError
from magnetar.sim.loop import SimClock, SimLoop, run

TTL_S = 10.0


@dataclass
class FakeSession:
    """Lives until then, as far as its owner knows."""

    alive_until_s: float = TTL_S


@dataclass
class FakeLedger:
    """A cursor ledger that answers when it is told to."""

    open: bool = True
    asked: list[Callable[[StorageError | None], None]] = field(default_factory=list)

    def prove_ownership(self, done: Callable[[StorageError | None], None]) -> bool:
        if self.open:
            self.asked.append(done)
        return self.open


@dataclass
class World:
    loop: SimLoop
    session: FakeSession
    lease: Lease
    tenure: Tenure
    ledger: FakeLedger
    woken: list[float] = field(default_factory=list)
    given_up: list[OwnershipLost] = field(default_factory=list)

    def wake(self) -> None:
        self.woken.append(self.loop.time())

    @property
    def certain(self) -> bool:
        return self.tenure.certain(self.wake)

    def stand_still(self, seconds: float) -> None:
        """Nothing runs meanwhile."""
        self.loop._now += seconds

    def prove(self) -> None:
        """As once a second."""
        self.lease.look()
        self.tenure.prove(cast(Any, self.ledger), self.given_up.append)


def in_a_term(body: Callable[[World], Awaitable[None]]) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        session, lease = FakeSession(), Lease(SimClock(loop))
        lease.begin(cast(Any, session))
        await body(World(loop, session, lease, Tenure(lease), FakeLedger()))

    run(loop, main())


def test_before_there_is_a_session_nothing_is_certain() -> None:
    async def main() -> None:
        lease = Lease(SimClock(loop))
        assert lease.until_s == -math.inf
        assert not Tenure(lease).certain(lambda: None)

    loop = SimLoop(1)
    run(loop, main())


def test_a_process_that_stood_still_past_its_session_is_certain_of_nothing_in_its_first_turn() -> None:
    async def body(world: World) -> None:
        assert world.certain
        world.stand_still(TTL_S - 0.001)
        assert world.certain
        world.stand_still(0.001)
        assert not world.certain
        world.lease.release()
        assert world.woken == [TTL_S]
        world.lease.release()
        assert world.woken == [TTL_S], "whoever still waits has asked again"

    in_a_term(body)


def test_a_session_that_is_heard_again_makes_it_certain() -> None:
    async def body(world: World) -> None:
        world.stand_still(2 * TTL_S)
        assert not world.certain
        world.session.alive_until_s = world.loop.time() + 1
        world.lease.release()
        assert world.woken
        assert world.certain

    in_a_term(body)


def test_who_asks_twice_is_woken_once() -> None:
    async def body(world: World) -> None:
        world.stand_still(TTL_S)
        assert not world.certain
        assert not world.certain
        world.lease.release()
        assert len(world.woken) == 1

    in_a_term(body)


def test_a_proof_counts_from_when_it_was_asked_for() -> None:
    async def body(world: World) -> None:
        world.stand_still(TTL_S)
        world.prove()
        assert not world.certain
        world.stand_still(1.0)
        world.lease.look()
        world.ledger.asked.pop()(None)
        assert len(world.woken) == 1
        assert world.certain
        world.stand_still(1.0)
        world.lease.look()
        world.stand_still(PROVEN_S - 2.001)
        assert world.certain
        world.stand_still(0.001)
        assert not world.certain

    in_a_term(body)


def test_an_answer_from_before_the_process_stood_still_proves_nothing() -> None:
    async def body(world: World) -> None:
        world.prove()
        world.stand_still(TTL_S)
        world.ledger.asked.pop()(None)
        assert not world.certain
        world.prove()
        world.ledger.asked.pop()(None)
        assert world.certain

    in_a_term(body)


def test_a_proof_counts_no_more_after_the_process_stood_still() -> None:
    async def body(world: World) -> None:
        world.session.alive_until_s = 1.0
        world.prove()
        world.ledger.asked.pop()(None)
        world.stand_still(1.2)
        assert world.certain
        world.stand_still(STILL_S - 1.2)
        assert not world.certain, "before it has looked"
        world.lease.look()
        assert not world.certain, "and after"
        world.prove()
        world.ledger.asked.pop()(None)
        assert world.certain

    in_a_term(body)


def test_a_ledger_that_refuses_is_given_up_at_once() -> None:
    async def body(world: World) -> None:
        world.stand_still(TTL_S)
        assert not world.certain
        world.prove()
        world.ledger.asked.pop()(LedgerFenced("another owner's"))
        assert not world.certain
        assert not world.woken
        (lost,) = world.given_up
        assert "another owner's" in str(lost)

    in_a_term(body)


def test_a_ledger_that_does_not_answer_is_asked_once_and_given_up_after_many_looks() -> None:
    async def body(world: World) -> None:
        for _ in range(LOOKS_MAX):
            world.prove()
            world.stand_still(1.0)
        assert len(world.ledger.asked) == 1
        assert not world.given_up
        world.prove()
        world.prove()
        assert len(world.given_up) == 1

    in_a_term(body)


def test_however_late_a_look_is_it_is_one_look() -> None:
    async def body(world: World) -> None:
        world.prove()
        world.stand_still(10 * LOOKS_MAX)
        world.prove()
        assert not world.given_up, "the answer may lie unread"
        world.ledger.asked.pop()(None)
        world.prove()
        assert len(world.ledger.asked) == 1

    in_a_term(body)


@pytest.mark.parametrize("stood_still", [False, True])
def test_without_a_ledger_to_ask_it_goes_on_when_metadata_stays_silent(stood_still: bool) -> None:
    async def body(world: World) -> None:
        world.ledger.open = False
        if stood_still:
            world.prove()
        world.stand_still(TTL_S)
        assert not world.certain
        world.prove()
        assert not world.certain, "had it stood still, metadata says so within a moment"
        for _ in range(5):
            world.stand_still(1.0)
            world.prove()
            assert world.certain
        assert not world.given_up

    in_a_term(body)


def test_storage_that_does_not_confirm_ends_a_topic_only_when_the_session_may_have_ended() -> None:
    async def body(world: World) -> None:
        world.prove()
        world.ledger.asked.pop()(StorageError("no quorum"))
        assert not world.given_up
        world.prove()
        world.stand_still(TTL_S)
        world.ledger.asked.pop()(StorageError("no quorum"))
        assert len(world.given_up) == 1

    in_a_term(body)
