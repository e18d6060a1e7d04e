"""What is served while metadata is silent, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from magnetar.broker.topics.ownership_proof import OwnershipProof
from magnetar.broker.topics.topic_registry import TopicRegistry
from magnetar.common.errors import ServiceNotReady
from magnetar.sim.loop import SimClock, SimLoop, run

PATIENCE_S = 10.0


@dataclass
class FakeRegistry:
    proofs: list[float] = field(default_factory=list)
    refusing: ServiceNotReady | None = None

    def prove_ownership(self) -> None:
        self.proofs.append(asyncio.get_running_loop().time())

    def refuse_loads(self, error: ServiceNotReady | None) -> None:
        self.refusing = error


def test_topics_prove_themselves_once_a_second_while_metadata_is_silent_and_not_before_or_after() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        registry, clock = FakeRegistry(), SimClock(loop)
        heard_s = clock.monotonic()
        proof = OwnershipProof(cast(TopicRegistry, cast(Any, registry)), clock, lambda: heard_s, PATIENCE_S)
        running = asyncio.create_task(proof.run())
        await asyncio.sleep(PATIENCE_S - 1)
        assert not registry.proofs
        assert registry.refusing is None
        await asyncio.sleep(6.5)
        assert 4 <= len(registry.proofs) <= 6
        assert min(b - a for a, b in zip(registry.proofs, registry.proofs[1:], strict=False)) >= 0.99
        assert registry.refusing is not None
        heard_s = clock.monotonic()
        await asyncio.sleep(1.5)
        proofs = len(registry.proofs)
        await asyncio.sleep(PATIENCE_S / 2)
        assert len(registry.proofs) == proofs
        assert registry.refusing is None
        running.cancel()

    run(loop, main())
