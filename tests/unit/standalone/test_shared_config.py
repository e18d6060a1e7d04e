"""Configuration of a standalone with workers, what each worker is told, and its ports."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path

import pytest
from magnetar.broker.listener_config import ListenerConfig
from magnetar.common.config.loader import load
from magnetar.standalone.reserved_ports import ReservedPorts
from magnetar.standalone.shared_config import SharedStandaloneConfig
from magnetar.standalone.standalone_workers import StandaloneWorkers
from magnetar.standalone.worker_plan import WorkerPlan, plan_of


def configured(*overrides: str) -> SharedStandaloneConfig:
    return load(SharedStandaloneConfig, overrides=overrides).value


def test_settings_of_a_standalone_and_of_load_balancing_are_read() -> None:
    config = configured("loadBalancerEnabled=false", "brokerServicePort=7000", "magnetarWorkerPort=7100")
    assert not config.load.enabled
    assert config.standalone.broker.listener.broker_service_port == 7000
    assert config.problems(4) == []


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["advertisedListeners=a:pulsar://h:6650"], "advertisedListeners cannot be used with --workers"),
        (["magnetarWorkerPort=65530"], "4 workers need the ports up to 65537"),
        (
            ["magnetarWorkerPort=6646"],
            "brokerServicePort=6650 is one of the workers' own ports, 6646 to 6653",
        ),
        (["metadataStoreUrl=etcd:h:1"], "a standalone needs sqlite:PATH"),
    ],
)
def test_contradictions_are_named(overrides: list[str], said: str) -> None:
    assert said in "\n".join(configured(*overrides).problems(4))


def test_a_plan_is_read_back_and_sets_the_ports() -> None:
    plan = WorkerPlan(1, 2, "/s", {"brokerServicePort": 1, "webServicePort": 2}, {"webServicePort": 4})
    assert plan_of(plan.text()) == plan
    assert plan.shared_ports(ListenerConfig()).ports == {"brokerServicePort": 1, "webServicePort": 2}
    assert plan.own_ports(ListenerConfig()).ports == {"webServicePort": 4}
    assert plan.log_socket("ledgers-1") == Path("/s/ledgers-1.sock")


def test_a_reserved_port_is_not_free_for_others_and_shared_by_those_that_say_so() -> None:
    reserved = ReservedPorts("127.0.0.1")
    port = reserved.reserve(0)
    try:
        with closing(socket.create_server(("127.0.0.1", port), reuse_port=True)) as one:
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port), reuse_port=True).close()
            with closing(socket.create_connection(("127.0.0.1", port))):
                one.settimeout(20)
                one.accept()[0].close()  # the reserved socket takes no connection
    finally:
        reserved.close()


def test_workers_have_consecutive_ports_from_the_first(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        first = taken.getsockname()[1]
    if first > 65_000:
        first -= 1_000
    config = configured("brokerServicePort=0", "webServicePort=0", f"magnetarWorkerPort={first}")
    workers = StandaloneWorkers(config, tmp_path, 2)
    plans = workers._plans("/s")
    assert [dict(plan.own) for plan in plans] == [
        {"brokerServicePort": first, "webServicePort": first + 1},
        {"brokerServicePort": first + 2, "webServicePort": first + 3},
    ]
    assert plans[0].shared == plans[1].shared
    assert all(plans[0].shared.values())
    asyncio.run(workers.close())
