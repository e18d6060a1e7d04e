"""The client from PyPI with a message that is refused: nothing is stored twice, its caller hears of it soon.

What it does is measured by `refused_messages`; bounds of time are many times what that took.
"""

from __future__ import annotations

import pytest
from magnetar.broker.topics.publish.refused_producers import FAILS_AT

from tests.faults.conftest import NewServer
from tests.faults.refused_messages import BYTES_MAX, DELAY_CAP_MS, Case, Seen, fill, full_disk, new_topic
from tests.integration.admin_calls import set_policy
from tests.integration.counters import counter
from tests.integration.harness import eventually

TOLD_S_MAX = 20.0


def assert_one_message_failed(case: Case) -> Seen:
    """`refused` failed and nothing else; everything else is there once."""
    assert case.wait_for("before", "refused", "small", "smaller", seconds_max=TOLD_S_MAX)
    case.send("later", b"later")
    assert case.wait_for("later", seconds_max=TOLD_S_MAX)
    seen = case.end()
    results = {name: outcome.result for name, outcome in seen.outcomes.items()}
    assert results == {
        "before": "Ok",
        "refused": "ChecksumError",
        "small": "Ok",
        "smaller": "Ok",
        "later": "Ok",
    }, "that is the one code at which this client fails one message"
    assert dict(seen.copies) == dict.fromkeys([b"first", b"before", b"small", b"smaller", b"later"], 1)
    assert seen.neighbors, "the producer beside it published"
    assert seen.neighbors_twice == 0
    return seen


def test_a_message_over_its_topics_size_fails_alone_and_nothing_is_stored_twice(
    new_server: NewServer,
) -> None:
    server = new_server()
    server.start()
    case = Case(server.endpoint.service_url, new_topic())
    set_policy(server.endpoint, case.topic, "maxMessageSize", BYTES_MAX)
    case.send("before", b"before")
    case.send("refused", bytes(2 * BYTES_MAX))
    case.send("small", b"small")
    case.send("smaller", b"smaller")
    assert_one_message_failed(case)


def test_a_message_delayed_beyond_the_cap_fails_alone_and_nothing_is_stored_twice(
    new_server: NewServer,
) -> None:
    server = new_server()
    server.start()
    case = Case(server.endpoint.service_url, new_topic())
    cap = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": DELAY_CAP_MS}
    set_policy(server.endpoint, case.topic, "delayedDelivery", cap)
    case.send("before", b"before")
    case.send("refused", b"late", delay_s=3_600.0)
    case.send("small", b"small")
    case.send("smaller", b"smaller")
    assert_one_message_failed(case)


@pytest.mark.full
def test_on_a_full_disk_callers_hear_of_it_clients_do_not_spin_and_publishing_resumes() -> None:
    with full_disk() as (server, disk):
        case = Case(server.endpoint.service_url, new_topic())
        fill(disk)
        stored = 0

        def refused() -> bool:
            nonlocal stored
            case.send("refused", b"no space")
            if not case.wait_for("refused", seconds_max=60.0):
                return False
            fits = case.seen.outcomes["refused"].result == "Ok"  # the broker has not looked at its disk yet
            stored += fits
            return not fits

        eventually(refused, "a message fails because the disk is full", 60)
        outcome = case.seen.outcomes["refused"]
        assert outcome.result == "ProducerBlockedQuotaExceededException"
        assert outcome.seconds is not None
        assert outcome.seconds < TOLD_S_MAX, "long before the timeout of 30 s"
        times = counter(server.endpoint, "magnetar_refused_producers_total", cause="storage")
        assert FAILS_AT <= times <= 10 * FAILS_AT, "two producers that came back ever later"
        disk.free_up()
        assert case.send_until_stored("later", seconds_max=60.0) is not None
        seen = case.end()
        assert seen.copies[b"no space"] == stored
        assert seen.copies[b"later"] == 1
        assert seen.neighbors_twice == 0
