"""NATS and Kafka as processes on empty directories and free loopback ports, started once each."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar.testing.free_ports import free_ports

from bench.target import Target
from tests.integration.harness import spawn, temporary_directory

HERE: Final = Path(__file__).parent
FORMAT_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 30.0
KAFKA_CLUSTER_ID: Final = "bWFnbmV0YXItYmVuY2gtaw"
"""Sixteen bytes in base64, as Kafka wants them."""
KAFKA_JVM: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""Options that Kafka's own start script gives the JVM."""


class Server:
    """A server process that is started once; its directory goes with it."""

    def __init__(self, url: str, directory: Path, command: Sequence[str]) -> None:
        self._url = url
        self._directory = directory
        self._command = command
        self._log = directory / "console.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> Target:
        assert self._process is not None, "the server was never started"
        return Target(self._url, pid=self._process.pid)

    def launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = spawn(self._command, log, self._directory)

    def stop(self) -> None:
        """End the process and remove its directory; idempotent."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def died(self) -> str | None:
        """Return why the process ended; None while it runs."""
        if self._process is not None and self._process.poll() is None:
            return None
        return self._log.read_text(errors="replace")[-2_000:]


def nats(program: Path, *, synced: bool) -> Server:
    """`nats-server` with JetStream in files, synced before each acknowledgement or every two minutes."""
    directory, (port,) = temporary_directory(), free_ports(1)
    configuration = directory / "nats.conf"
    configuration.write_text(nats_configuration(directory, port, synced=synced))
    return Server(f"nats://127.0.0.1:{port}", directory, [str(program), "-c", str(configuration)])


def kafka(jars: Path) -> Server:
    """Kafka in one JVM, broker and controller; its topics decide whether a sync comes before an
    acknowledgement."""
    directory, (port, controller) = temporary_directory(), free_ports(2)
    configuration = directory / "server.properties"
    configuration.write_text(kafka_configuration(directory, port, controller))
    java = ["java", *KAFKA_JVM, f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}", "-cp", f"{jars}/*"]
    storage = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", KAFKA_CLUSTER_ID]
    subprocess.run(
        [*storage, "--config", str(configuration)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=FORMAT_SECONDS_MAX,
    )
    return Server(f"kafka://127.0.0.1:{port}", directory, [*java, "kafka.Kafka", str(configuration)])


def nats_configuration(directory: Path, port: int, *, synced: bool) -> str:
    """The whole configuration file of nats-server."""
    sync = "  sync_interval: always\n" if synced else ""
    return (
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{\n  store_dir: "{directory}"\n  max_file_store: 40GB\n{sync}}}\n'
    )


def kafka_configuration(directory: Path, port: int, controller: int) -> str:
    """`server.properties` with data and ports."""
    return (HERE / "server.properties").read_text() + (
        f"log.dirs={directory / 'logs'}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
    )
