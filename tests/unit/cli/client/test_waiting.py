"""Commands that publish and consume say what they wait for, and end: against a broker of prepared answers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from click.testing import CliRunner, Result
from magnetar.cli.client import options, produce, waiting
from magnetar.cli.main import main
from magnetar.client.options import ClientOptions
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.cli.client.broker_stub import broker_stub

REASON = "cannot write the topic: 1 of 3 bookies is up, 2 are needed"


@pytest.fixture(scope="module", autouse=True)
def signal_pipe() -> None:
    """The pipe that libuv keeps for signals as long as the process lives is open before the first test."""
    uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of commands, so that a test takes less than a second."""
    monkeypatch.setattr(waiting, "FIRST_S", 0.05)
    monkeypatch.setattr(produce, "CLOSE_S_MAX", 0.1)
    settings = options._settings

    def shorter(*args: Any, **given: Any) -> ClientOptions:
        found = settings(*args, **given)
        return ClientOptions(service_url=found.service_url, operation_timeout_s=0.6)

    monkeypatch.setattr(options, "_settings", shorter)


def run(*arguments: str, code: int) -> Result:
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refused(code: ServerError.ValueType) -> Callable[[Any], bytes]:
    return lambda command: commands.error(command.request_id, code, REASON)


def test_a_topic_that_cannot_be_opened_ends_with_the_brokers_reason() -> None:
    began = time.monotonic()
    with broker_stub(producer=refused(ServerError.ServiceNotReady)) as url:
        done = run("produce", "greetings", "-m", "hi", "--url", url, code=1)
    *waits, last = done.stderr.splitlines()
    assert waits[0].startswith("still opening a producer on greetings (")
    assert REASON in waits[-1]
    assert REASON in last
    assert time.monotonic() - began < 10


def test_a_message_without_a_receipt_ends_at_the_send_timeout() -> None:
    with broker_stub(send=lambda _: b"", close_producer=lambda _: b"") as url:
        done = run("produce", "greetings", "-m", "hi", "--send-timeout", "0.3", "--url", url, code=1)
    lines = done.stderr.splitlines()
    assert any(line.startswith("still waiting for receipts of 1 message (") for line in lines)
    assert "0 messages successfully produced" in lines
    assert "no receipt within 0.3 s" in lines[-1]
    assert "magnetar doctor --cluster-only" in lines[-1]


def test_a_producer_that_reconnects_says_why() -> None:
    refusals = iter(range(100))

    def opens_once(command: Any) -> bytes:
        if next(refusals) == 0:
            return commands.producer_success(command.request_id, "stub")
        return commands.error(command.request_id, ServerError.ServiceNotReady, REASON)

    def fails(command: Any) -> bytes:
        return commands.send_error(
            command.producer_id, command.sequence_id, ServerError.PersistenceError, "disk is full"
        )

    with broker_stub(producer=opens_once, send=fails) as url:
        done = run("produce", "greetings", "-m", "hi", "--send-timeout", "1", "--url", url, code=1)
    assert REASON in done.stderr.splitlines()[-1]
    assert any(
        line.startswith("still waiting for receipts") and REASON in line for line in done.stderr.splitlines()
    )


def test_a_consumer_without_messages_says_that_it_waits() -> None:
    def interrupts(_: Any) -> bytes:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return b""

    with broker_stub(flow=interrupts) as url:
        done = run("consume", "greetings", "-s", "mine", "--url", url, code=130)
    *waits, last = done.stderr.splitlines()
    assert waits[-1].startswith("waiting for messages on subscription mine; Ctrl-C stops (")
    assert last == "0 messages successfully consumed"


def test_a_command_that_is_answered_says_nothing_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_S", 60.0)
    with broker_stub() as url:
        done = run("produce", "greetings", "-m", "hi", "--url", url, code=0)
    assert done.stderr.splitlines() == ["1 message successfully produced"]
