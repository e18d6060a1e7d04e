"""What goes by itself waits for the release of restored metadata."""

from __future__ import annotations

import asyncio

from magnetar.broker.restored_metadata import LOOK_AGAIN_S, RestoredMetadata
from magnetar.common.metadata.values import Restoration, encode

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.simulated_broker import SimBroker, simulated


def test_it_is_held_from_the_start_until_the_release() -> None:
    async def scenario(broker: SimBroker) -> None:
        ledgers, restored = broker.ledgers, RestoredMetadata(broker.ledgers)

        async def becomes(state: Restoration.State.ValueType) -> None:
            await ledgers.metadata.put(KEYS.restoration, encode(Restoration(state=state)))

        await restored.look()
        assert not ledgers.restored.holds
        await asyncio.wait_for(restored.follow(), 1)
        await becomes(Restoration.RECONCILED)
        await restored.look()
        assert ledgers.restored.holds
        following = asyncio.ensure_future(restored.follow())
        await asyncio.sleep(3 * LOOK_AGAIN_S)
        assert ledgers.restored.holds
        await ledgers.metadata.put(KEYS.restoration, b"damaged")
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert ledgers.restored.holds
        await becomes(Restoration.RELEASED)
        await asyncio.wait_for(following, 2 * LOOK_AGAIN_S)
        assert not ledgers.restored.holds

    simulated(scenario)
