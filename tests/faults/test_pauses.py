"""A server that stands still for seconds under load (SIGSTOP, SIGCONT): it goes on as if nothing had been.

A jump of the clock is left to tests/simulation, where the clock is a parameter.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.faults.bystanders import Bystanders
from tests.faults.conftest import NewServer
from tests.faults.traffic import Publisher, assert_promises_kept, keep, read_topic
from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import line

pytestmark = [pytest.mark.alone, pytest.mark.full]

KEEP_ALIVE_S = 2
LIVENESS_S = 1


@pytest.fixture
def server(new_server: NewServer) -> StandaloneServer:
    server = new_server(
        {
            "keepAliveIntervalSeconds": str(KEEP_ALIVE_S),
            "connectionLivenessCheckTimeoutMillis": str(1000 * LIVENESS_S),
        }
    )
    server.start()
    return server


def stand_still(server: StandaloneServer, seconds: float) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_pause_under_load_loses_no_message_and_closes_no_connection(
    server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    publishers = [Publisher(server.endpoint, topic, f"p{n}", size=200) for n in range(3)]
    for one in publishers:
        one.start()
    pair = Bystanders(server.endpoint, topic + "-bystanders")
    for seconds in (0.5, 2.5 * KEEP_ALIVE_S):
        for one in publishers:
            one.more_receipts(200)
        stand_still(server, seconds)
        for one in publishers:
            one.more_receipts(200)
    for one in publishers:
        one.finish()
        assert not one.disconnected
        assert not one.refused
    pair.finish(pauses=2)
    server.kill_and_start()
    got = read_topic(server.endpoint, topic)
    for one in publishers:
        assert_promises_kept(one, got)


def test_an_answer_to_a_ping_that_came_during_a_pause_counts(server: StandaloneServer) -> None:
    """The pause, not the client, let the interval pass: the Pong waits in the server's socket."""
    with line(server.endpoint) as c:
        c.answer_pings = False
        c.expect("ping")
        os.kill(server.pid, signal.SIGSTOP)
        c.send("pong")
        time.sleep(1.5 * KEEP_ALIVE_S)
        os.kill(server.pid, signal.SIGCONT)
        c.answer_pings = True
        c.expect_quiet()


def test_a_pause_does_not_cost_the_holder_of_a_subscription_its_place(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as holder, line(server.endpoint) as newcomer:
        holder.subscribe(topic)
        holder.answer_pings = False
        request_id = newcomer.ask_subscribe(topic)
        holder.expect("ping")
        os.kill(server.pid, signal.SIGSTOP)
        holder.send("pong")
        time.sleep(1.5 * LIVENESS_S)
        os.kill(server.pid, signal.SIGCONT)
        newcomer.expect_error(request_id, "ConsumerBusy")
        holder.answer_pings = True
        holder.expect_quiet()
