"""What is served while metadata is silent, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.broker.tenure import Lease
from magnetar.broker.topics.registry.ownership_proof import AHEAD_S, INTERVAL_S, OwnershipProof
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import ServiceNotReady
from magnetar.sim.loop import SimClock, SimLoop, run

TTL_S = 10.0


@dataclass
class FakeSession:
    alive_until_s: float = TTL_S


@dataclass
class FakeRegistry:
    proofs: list[float] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)
    refusing: ServiceNotReady | None = None
    pauses: int = 0
    """Turns of 0.1 s that others have before the last topic is asked."""

    async def prove_ownership(self, *, silent: bool, look: Callable[[], object]) -> None:
        now = asyncio.get_running_loop().time()
        self.proofs.append(now)
        if silent:
            self.silent.append(now)
        for _ in range(self.pauses):
            await asyncio.sleep(0.1)
            look()

    def refuse_loads(self, error: ServiceNotReady | None) -> None:
        self.refusing = error


def proving(body: Callable[[FakeSession, FakeRegistry, Lease], Awaitable[None]]) -> None:
    """`body` beside an ownership proof."""
    loop = SimLoop(1)

    async def main() -> None:
        session, registry, lease = FakeSession(), FakeRegistry(), Lease(SimClock(loop))
        lease.begin(cast(Any, session))
        running = asyncio.create_task(OwnershipProof(cast(TopicRegistry, cast(Any, registry)), lease).run())
        await body(session, registry, lease)
        running.cancel()

    run(loop, main())


def test_topics_prove_themselves_once_a_second_while_metadata_is_silent_and_not_after() -> None:
    async def body(session: FakeSession, registry: FakeRegistry, lease: Lease) -> None:
        await asyncio.sleep(TTL_S - AHEAD_S - INTERVAL_S)
        assert not registry.proofs
        await asyncio.sleep(AHEAD_S + 0.9)
        assert registry.proofs, "what they deliver does not wait for the first proof"
        assert not registry.silent
        assert registry.refusing is None
        await asyncio.sleep(6.5)
        assert 5 <= len(registry.silent) <= 7
        assert min(b - a for a, b in zip(registry.proofs, registry.proofs[1:], strict=False)) >= 0.99
        assert registry.refusing is not None
        session.alive_until_s = asyncio.get_running_loop().time() + TTL_S
        await asyncio.sleep(1.5)
        proofs = len(registry.proofs)
        await asyncio.sleep(TTL_S / 2)
        assert len(registry.proofs) == proofs
        assert registry.refusing is None

    proving(body)


def test_that_many_topics_take_long_to_ask_is_no_standing_still() -> None:
    async def body(session: FakeSession, registry: FakeRegistry, lease: Lease) -> None:
        session.alive_until_s = 0.0
        registry.pauses = 20
        await asyncio.sleep(5 * INTERVAL_S)
        now = asyncio.get_running_loop().time()
        assert registry.proofs[1] - registry.proofs[0] == pytest.approx(2.0 + INTERVAL_S)
        assert lease.counts(now - 2.0, now), "those who were asked first still deliver"

    proving(body)


def test_who_waits_to_be_certain_is_woken_once_a_second() -> None:
    async def body(session: FakeSession, registry: FakeRegistry, lease: Lease) -> None:
        woken: list[None] = []
        held: Any = type("Held", (), {"release": lambda self: woken.append(None)})()
        lease.hold(held)
        await asyncio.sleep(INTERVAL_S + 0.1)
        assert len(woken) == 1
        await asyncio.sleep(INTERVAL_S)
        assert len(woken) == 1

    proving(body)
