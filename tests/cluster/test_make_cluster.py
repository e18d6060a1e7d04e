"""`make cluster` starts all of it, clients use it through the discoveries, and nothing is left at its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pulsar
import pytest

from tests.integration.clients import publish, receive
from tests.integration.harness import ROOT, eventually, gone, magnetar_command
from tests.integration.raw.transcript import numbered

START_SECONDS_MAX = 150.0
STOP_SECONDS_MAX = 120.0
TOPICS = 24


class MakeCluster:
    """The processes of `make cluster`, and their output."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.printed_path = directory / "printed.txt"
        self.data_dir = directory / "data"
        command = [sys.executable, "-m", "tools.local_cluster", "--free-ports"]
        with self.printed_path.open("wb") as printed:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.data_dir), *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "XDG_CONFIG_HOME": str(directory / "config")},
                stdout=printed,
                stderr=printed,
            )

    @property
    def printed(self) -> str:
        return self.printed_path.read_text()

    @property
    def pids(self) -> dict[str, int]:
        """Rows of the table that it prints."""
        rows = re.findall(r"^  (\S+) +\S+ +\S+/metrics +(\d+)$", self.printed, re.MULTILINE)
        return {name: int(pid) for name, pid in rows}

    def told(self, label: str) -> str:
        """The rest of the line that begins with a word."""
        found = re.search(rf"^  {label} +(\S+)", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return found[1]

    def log(self, name: str) -> str:
        return (self.data_dir / "logs" / f"{name}.log").read_text()

    def wait_until_ready(self) -> None:
        eventually(
            lambda: "Ctrl-C stops all of it" in self.printed or self.process.poll() is not None,
            "the cluster is ready",
            START_SECONDS_MAX,
        )
        assert self.process.poll() is None, self.printed

    def stop(self) -> int:
        """Interrupt it, like Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_SECONDS_MAX)


@contextmanager
def make_cluster(directory: Path, *arguments: str) -> Iterator[MakeCluster]:
    """Killed at the end, and with it all that it started."""
    cluster = MakeCluster(directory, *arguments)
    try:
        yield cluster
    finally:
        cluster.process.kill()
        cluster.process.wait()


def admin(cluster: MakeCluster, *arguments: str) -> str:
    """The output of `magnetar admin`."""
    done = subprocess.run(
        [*magnetar_command(), "admin", "--admin-url", cluster.told("admin"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def top(cluster: MakeCluster, *arguments: str) -> Any:
    """The output of `magnetar top`, with the context that `make cluster` wrote."""
    done = subprocess.run(
        [*magnetar_command(), "top", *arguments, "--profile", "local-cluster", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_CONFIG_HOME": str(cluster.data_dir.parent / "config")},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
def test_one_command_starts_a_cluster_that_clients_reach_through_its_discoveries_and_ctrl_c_stops_it(
    tmp_path: Path,
) -> None:
    with make_cluster(tmp_path) as cluster:
        cluster.wait_until_ready()
        pids = cluster.pids
        assert len(pids) == 10
        topics = [f"persistent://public/default/everywhere-{number}" for number in range(TOPICS)]
        options = {"operation_timeout_seconds": 60, "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}
        with closing(pulsar.Client(cluster.told("clients"), **options)) as client:
            for topic in topics:
                consumer = client.subscribe(topic, "s")
                publish(client, topic, numbered(5))
                assert [receive(consumer).data() for _ in range(5)] == numbered(5)
        assert len(json.loads(admin(cluster, "brokers", "list", "local"))) == 3
        serving = {admin(cluster, "topics", "lookup", topic) for topic in topics}
        assert len(serving) == 3, "each broker serves some"
        assert "everywhere-0" in admin(cluster, "topics", "list", "public/default")
        with urlopen(f"{cluster.told('console')}/topics?namespace=public/default", timeout=60) as page:
            assert b"everywhere-0" in page.read()

        assert "magnetar context use local-cluster" in cluster.printed
        brokers = top(cluster, "brokers")
        assert (len(brokers["rows"]), brokers["unreachable"]) == (3, {})
        assert {row["state"] for row in top(cluster, "bookies")["rows"]} == {"up"}
        shown = top(cluster, "topics", "--filter", "everywhere")["rows"]
        assert {row["topic"] for row in shown} == set(topics)
        assert {row["broker"] for row in shown} == {row["broker"] for row in brokers["rows"]}

        assert cluster.stop() == 0, cluster.printed
        stopped = re.findall(r"^stopped (.*) \(", cluster.printed, re.MULTILINE)
        assert [names.split(",")[0] for names in stopped] == [
            "console",
            "discovery-1",
            "broker-1",
            "bookie-1",
            "etcd",
        ]
        assert all(map(gone, pids.values()))


@pytest.mark.full
def test_dead_process_is_reported_with_its_last_log_lines_and_restarted(tmp_path: Path) -> None:
    with make_cluster(tmp_path, "--bookies", "1", "--brokers", "1", "--discoveries", "0") as cluster:
        cluster.wait_until_ready()
        pid = cluster.pids["broker-1"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: f"broker-1 (pid {pid}) was ended by SIGKILL" in cluster.printed, "it is said")
        assert "    magnetar ready in" in cluster.printed, "the end of its log"
        eventually(lambda: "broker-1 serves again as pid" in cluster.printed, "it is back", START_SECONDS_MAX)
        publish_one(cluster)
        assert cluster.stop() == 0, cluster.printed


def publish_one(cluster: MakeCluster) -> None:
    with closing(pulsar.Client(cluster.told("clients"), operation_timeout_seconds=60)) as client:
        publish(client, "persistent://public/default/again", numbered(1))


@pytest.mark.full
@pytest.mark.skipif(
    not Path("/usr/bin/setpriv").exists(), reason="there is no setpriv to bind processes with"
)
def test_nothing_outlives_a_cluster_that_was_killed(tmp_path: Path) -> None:
    with make_cluster(tmp_path, "--bookies", "1", "--brokers", "1", "--discoveries", "1") as cluster:
        cluster.wait_until_ready()
        pids = cluster.pids
        cluster.process.kill()
        cluster.process.wait()
        eventually(lambda: all(map(gone, pids.values())), "all have ended")


@pytest.mark.full
def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with make_cluster(tmp_path, "--set", "broker:brokerServicePort=x") as cluster:
        assert cluster.process.wait(START_SECONDS_MAX) == 1
        assert re.search(r"broker-\d ended with exit code 1; the end of", cluster.printed)
        assert "brokerServicePort = 'x'" in cluster.printed
        assert "the cluster cannot start" in cluster.printed
        assert "stopped etcd" in cluster.printed
