"""The bound on what one connection has in process, within one turn of the event loop."""

from __future__ import annotations

import asyncio

from magnetar.broker.topics.publish.in_process_limit import InProcess

from tests.unit.broker.topics.world import ListeningPeer


def test_a_connection_has_its_own_bound_in_each_turn_of_the_loop() -> None:
    async def run() -> None:
        in_process = InProcess(10)
        one, other = ListeningPeer(), ListeningPeer()
        assert [in_process.take(one, 7), in_process.take(one, 7), in_process.take(one, 1)] == [7, 3, 0]
        assert in_process.take(other, 11) == 10
        await asyncio.sleep(0)
        assert in_process.take(one, 7) == 7
        assert in_process.take(other, 0) == 0

    asyncio.run(run())
