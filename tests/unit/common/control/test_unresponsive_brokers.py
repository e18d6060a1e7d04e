"""Brokers that did not answer a moment ago."""

from __future__ import annotations

import asyncio

from magnetar.common.control.unresponsive_brokers import SILENT_S, SilentBrokers
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.sim.loop import SimLoop, run


def test_a_run_that_gave_no_answer_is_silent_for_a_while_and_the_next_run_is_another() -> None:
    async def body() -> None:
        silent = SilentBrokers()
        one, other = BrokerRegistration(broker_id="a", run=1), BrokerRegistration(broker_id="b", run=1)
        assert one not in silent
        silent.note(one)
        assert one in silent
        assert other not in silent
        assert BrokerRegistration(broker_id="a", run=2) not in silent
        await asyncio.sleep(SILENT_S / 2)
        silent.note(other)
        await asyncio.sleep(SILENT_S / 2)
        assert one not in silent
        assert other in silent

    run(SimLoop(1), body())
