"""`magnetar broker --workers 2`: two brokers on one machine that own different bundles."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pulsar
import pytest
from magnetar.testing.free_ports import free_run

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import CLUSTER_NAME
from tests.cluster.whole_cluster import SHORT_SESSION
from tests.integration.clients import publish, receive
from tests.integration.harness import Endpoint, MagnetarProcess, eventually, gone
from tests.integration.raw.transcript import numbered
from tests.integration.rest import Rest

ONE_COPY = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}
TOPICS = 16


@pytest.fixture
def workers(new_cluster: NewCluster) -> Iterator[MagnetarProcess]:
    """The process that runs both; its health is that of the first."""
    cluster = new_cluster(bookies=1)
    ports = {key: free_run(2) for key in ("brokerServicePort", "webServicePort", "magnetarControlPort")}
    process = MagnetarProcess(
        cluster.directory,
        "workers",
        ["broker", "--workers", "2"],
        f"http://127.0.0.1:{ports['webServicePort']}/admin/v2/brokers/ready",
        {
            "clusterName": CLUSTER_NAME,
            "metadataStoreUrl": cluster.etcd.url,
            **{key: str(port) for key, port in ports.items()},
            **SHORT_SESSION,
            **ONE_COPY,
        },
    )
    try:
        yield process
    finally:
        process.kill()


def endpoint(process: MagnetarProcess, worker: int) -> Endpoint:
    binary, web = (int(process.settings[key]) + worker for key in ("brokerServicePort", "webServicePort"))
    return Endpoint(f"pulsar://127.0.0.1:{binary}", f"http://127.0.0.1:{web}", CLUSTER_NAME)


def identities(process: MagnetarProcess) -> list[str]:
    return sorted(endpoint(process, worker).http_url.removeprefix("http://") for worker in (0, 1))


def start_both(process: MagnetarProcess) -> None:
    process.start()
    eventually(lambda: "magnetar ready in" in printed(process), "both are ready")
    for worker in (0, 1):
        eventually(
            lambda: Rest(endpoint(process, worker)).get("/brokers") == identities(process),  # noqa: B023
            "both know both",
        )


def printed(process: MagnetarProcess) -> str:
    return process.log_path.read_text()


def pid_of(process: MagnetarProcess, worker: int) -> int:
    """As the log has it, of its last start."""
    found = re.findall(rf'"worker": {worker}, "pid": (\d+)', printed(process))
    return int(found[-1])


def where(broker: Endpoint, topic: str) -> str:
    """The service URL of the worker that serves a topic."""
    url = f"{broker.http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(json.load(response)["brokerUrl"])


@pytest.mark.full
def test_two_workers_share_the_topics_and_stop_together(workers: MagnetarProcess) -> None:
    # Nothing is killed here: a busy machine is no reason to lose what is looked at.
    workers.settings["metadataStoreSessionTimeoutMillis"] = "30000"
    start_both(workers)
    topics = [f"persistent://public/default/worker-{number}" for number in range(TOPICS)]
    serving = {where(endpoint(workers, 0), topic) for topic in topics}
    assert serving == {endpoint(workers, worker).service_url for worker in (0, 1)}
    with closing(pulsar.Client(endpoint(workers, 1).service_url, operation_timeout_seconds=60)) as client:
        for topic in topics:
            consumer = client.subscribe(topic, "s")
            publish(client, topic, numbered(3))
            assert [receive(consumer).data() for _ in range(3)] == numbered(3)
    pids = [pid_of(workers, worker) for worker in (0, 1)]
    workers.stop()
    assert all(map(gone, pids))
    lines = [json.loads(line) for line in printed(workers).splitlines() if line.startswith("{")]
    assert {line.get("worker") for line in lines if line["event"] == "stopped"} == {None, 0, 1}


@pytest.mark.full
def test_a_worker_that_was_killed_is_started_again_at_its_address(workers: MagnetarProcess) -> None:
    start_both(workers)
    pid = pid_of(workers, 1)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "worker is ready again" in printed(workers), "it is back", 60.0)
    assert pid_of(workers, 1) != pid
    eventually(lambda: Rest(endpoint(workers, 0)).get("/brokers") == identities(workers), "both are known")
    workers.stop()


@pytest.mark.full
def test_workers_go_when_the_process_that_started_them_is_killed(workers: MagnetarProcess) -> None:
    start_both(workers)
    pids = [pid_of(workers, worker) for worker in (0, 1)]
    workers.kill()
    eventually(lambda: all(map(gone, pids)), "they stopped in good order")
    assert printed(workers).count("the parent process of this worker ended") == 2


@pytest.mark.full
def test_a_port_of_any_worker_that_is_taken_stops_the_start(workers: MagnetarProcess) -> None:
    taken = int(workers.settings["webServicePort"]) + 1
    with closing(socket.create_server(("127.0.0.1", taken))):
        workers.launch()
        assert workers._process is not None
        assert workers._process.wait(60) == 1
    assert f"worker 1: 127.0.0.1:{taken} (webServicePort): Address already in use" in printed(workers)
    assert "worker started" not in printed(workers)
