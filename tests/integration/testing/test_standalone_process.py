"""The context manager that runs a standalone for tests of applications: what it starts, keeps and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from magnetar.testing import StandaloneProcess, StartFailed, standalone
from magnetar.testing.namespaces import create_namespace

from tests.integration.harness import eventually, gone

TOPIC = "persistent://public/default/kept"
SUBSCRIPTION = "reads"
TIMEOUT_MS = 20_000

KILLED = """
import os, time
from magnetar.testing import standalone

with standalone() as broker:
    print(broker.pid, broker.directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[StandaloneProcess]:
    with standalone() as process:
        yield process


def new_client(broker: StandaloneProcess) -> pulsar.Client:
    return pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def send(broker: StandaloneProcess, text: str) -> None:
    client = new_client(broker)
    client.create_producer(TOPIC).send(text.encode())
    client.close()


def receive(broker: StandaloneProcess) -> str:
    """Receive and acknowledge the next message."""
    client = new_client(broker)
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
    message = consumer.receive(TIMEOUT_MS)
    consumer.acknowledge(message)
    text = message.data().decode()
    client.close()
    return str(text)


def test_confirmed_messages_outlive_a_kill_and_a_restart_at_the_same_address(
    broker: StandaloneProcess,
) -> None:
    addresses, first = (broker.service_url, broker.admin_url), broker.pid
    send(broker, "one")
    send(broker, "two")
    broker.kill()
    assert gone(first)
    assert not broker.running
    broker.start()
    assert broker.pid != first
    assert receive(broker) == "one"
    assert broker.stop() == 0
    broker.restart()
    assert receive(broker) == "two"
    assert (broker.service_url, broker.admin_url) == addresses
    assert broker.log().count("magnetar ready in ") == 3


def test_its_admin_api_answers_and_its_log_is_there(broker: StandaloneProcess) -> None:
    begin = broker.log_bytes()
    assert broker.admin_url == f"http://127.0.0.1:{broker.http_port}"
    assert broker.service_url == f"pulsar://127.0.0.1:{broker.broker_port}"
    namespace = create_namespace(broker.admin_url)
    assert f'"namespace": "{namespace}"' in broker.log(begin)


def test_a_start_of_what_runs_does_nothing(broker: StandaloneProcess) -> None:
    before = broker.pid
    broker.start()
    assert broker.pid == before


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    process = StandaloneProcess(tmp_path, {"brokerDeduplicationEnable": True})
    with pytest.raises(StartFailed) as failure:
        process.start()
    process.close()
    assert "ended with status 1 before it was ready" in str(failure.value)
    assert "unknown key brokerDeduplicationEnable" in str(failure.value)
    assert gone(process.pid)


def test_a_start_is_bounded_and_ends_the_process(tmp_path: Path) -> None:
    process = StandaloneProcess(tmp_path, start_timeout_s=0.01)
    with pytest.raises(StartFailed, match=r"not ready within start_timeout_s = 0\.01"):
        process.start()
    process.close()
    assert gone(process.pid)


@pytest.mark.full
def test_a_stop_is_bounded_and_the_context_leaves_only_the_data_that_it_was_given(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with standalone(data_dir=data, stop_timeout_s=0.2) as process:
        directory = process.directory
        assert directory.exists()
        os.kill(process.pid, signal.SIGSTOP)  # it cannot react to SIGTERM
        assert process.stop() == -signal.SIGKILL
    assert gone(process.pid)
    assert not directory.exists()
    assert (data / "metadata.sqlite").exists()


def test_a_standalone_and_its_data_go_with_a_killed_test_process() -> None:
    tests = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    with tests.stdout:
        pid, directory = tests.stdout.readline().split()
    assert not gone(int(pid))
    assert Path(directory).exists()
    tests.kill()
    tests.wait()
    eventually(lambda: gone(int(pid)), "the standalone ends with the process that started it")
    assert not Path(directory).exists()
