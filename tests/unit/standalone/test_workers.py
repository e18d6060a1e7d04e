"""Brokers side by side: their ports, how they are started, watched and stopped, and what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.common.errors import ConfigError
from magnetar.standalone import worker_processes as module
from magnetar.standalone.cluster_config import ClusterBrokerConfig, MetadataConfig
from magnetar.standalone.start_error import CannotStart
from magnetar.standalone.worker_config import worker_config
from magnetar.standalone.workers import Workers, problems_of

WAIT_S = 30.0

PRETENDED = """
import pathlib, signal, sys, time
directory, number = pathlib.Path(sys.argv[1]), sys.argv[3]
assert sys.argv[2] == "--worker", sys.argv
started = directory / f"started-{number}"
with started.open("a") as out:
    out.write("x")
if (directory / f"refuse-{number}").exists():
    sys.exit(1)
def stop(*_):
    (directory / f"stopped-{number}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print(f"magnetar ready in 0.1 s: pulsar://h:{number} http://h:8{number} metadata=etcd:h:1", flush=True)
sys.stdin.read()
"""
"""A worker that notes how often it was started, serves, and stops when it is asked to."""


def config(*, broker: int = 0, web: int = 0, control: int = 0, listeners: str = "") -> ClusterBrokerConfig:
    made = ClusterBrokerConfig(metadata=MetadataConfig(url="etcd:127.0.0.1:1"))
    listener = replace(
        made.broker.listener,
        broker_service_port=broker,
        web_service_port=web,
        advertised_listeners=listeners,
    )
    return replace(
        made,
        broker=replace(made.broker, cluster_name="c", listener=listener),
        control=replace(made.control, port=control),
    )


def pretended(directory: Path, count: int = 2) -> Workers:
    return Workers(config(), count, [sys.executable, "-c", PRETENDED, str(directory)])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def starts(directory: Path, worker: int) -> int:
    return len((directory / f"started-{worker}").read_text())


def pid_of(workers: Workers, worker: int) -> int:
    process = workers.processes.workers[worker].process
    assert process is not None
    return process.pid


def test_worker_i_has_every_port_that_is_given_and_i_more() -> None:
    listeners = "in:pulsar://h:6650,in:http://h:8080,out:pulsar://o:7000"
    third = worker_config(config(broker=6650, web=8080, control=6750, listeners=listeners), 2)
    listener = third.broker.listener
    assert (listener.broker_service_port, listener.web_service_port, third.control.port) == (6652, 8082, 6752)
    assert listener.advertised_listeners == "in:pulsar://h:6652,in:http://h:8082,out:pulsar://o:7002"


def test_ports_that_the_system_picks_are_picked_for_each() -> None:
    third = worker_config(config(), 2)
    assert (third.broker.listener.broker_service_port, third.control.port) == (0, 0)


def test_ports_too_near_to_each_other_are_refused_before_anything_starts() -> None:
    assert problems_of(config(broker=6650, web=8080, control=6750), 2) == []
    (problem,) = problems_of(config(broker=6650, web=6651, control=6750), 2)
    assert "port 6651 would be given to several workers" in problem
    (problem,) = problems_of(config(broker=65_535), 2)
    assert "invalid port 65536" in problem
    with pytest.raises(ConfigError, match="several workers"):
        asyncio.run(Workers(config(broker=6650, web=6651), 2, ["no-such-program"]).start())


def test_every_port_that_is_taken_is_named_with_its_worker() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"worker 1: 127\.0\.0\.1:{port} \(webServicePort\)"):
            asyncio.run(Workers(config(web=port - 1), 2, ["no-such-program"]).start())


def test_workers_serve_at_their_addresses_and_stop_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers = pretended(tmp_path)
        await workers.start()
        try:
            assert [each.text for each in workers.addresses] == [
                "pulsar://h:0 http://h:80",
                "pulsar://h:1 http://h:81",
                "etcd:127.0.0.1:1",
            ]
        finally:
            await workers.close()
        assert all((tmp_path / f"stopped-{worker}").exists() for worker in range(2))

    asyncio.run(scenario())


@pytest.mark.full
def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = config()
        workers = Workers(
            replace(made, broker=replace(made.broker, shutdown_timeout_ms=100)),
            2,
            [sys.executable, "-c", PRETENDED, str(tmp_path)],
        )
        await workers.start()
        stopped = pid_of(workers, 1)
        os.kill(stopped, signal.SIGSTOP)
        await asyncio.wait_for(workers.close(), WAIT_S)
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)

    asyncio.run(scenario())


def test_one_that_cannot_start_stops_the_others_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "refuse-1").touch()
    with pytest.raises(CannotStart, match="worker 1 ended with exit code 1"):
        asyncio.run(pretended(tmp_path).start())
    assert (tmp_path / "stopped-0").exists()


def test_one_that_dies_is_started_again_and_the_others_do_not_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)

    async def scenario() -> None:
        workers = pretended(tmp_path)
        await workers.start()
        try:
            before = pid_of(workers, 1)
            for times in (2, 3):
                os.kill(pid_of(workers, 0), signal.SIGKILL)
                await until(lambda: starts(tmp_path, 0) == times)  # noqa: B023
                await until(lambda: workers.addresses[0].text != "")
            assert (pid_of(workers, 1), starts(tmp_path, 1)) == (before, 1)
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_one_that_was_stopped_stays_so_and_the_last_one_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(module, "ask_to_stop", lambda: asked.append(True))

    async def scenario() -> None:
        workers = pretended(tmp_path)
        await workers.start()
        try:
            os.kill(pid_of(workers, 0), signal.SIGTERM)
            await until((tmp_path / "stopped-0").exists)
            assert not asked
            os.kill(pid_of(workers, 1), signal.SIGTERM)
            await until(lambda: bool(asked))
            assert [starts(tmp_path, worker) for worker in range(2)] == [1, 1]
        finally:
            await workers.close()

    asyncio.run(scenario())
