"""The two brokers that are measured side by side, as processes on empty directories and free ports."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from magnetar.testing.free_ports import free_ports

from bench.connection import Connection, Refused
from bench.frames import FIRST_SEQUENCE_ID, SendTemplate
from bench.jars import fetch_jars, jars_directory, version_in
from bench.target import Target, new_topic
from tests.integration.harness import Endpoint, StandaloneServer, temporary_directory

MAGNETAR: Final = "Magnetar"
APACHE_PULSAR: Final = "Apache Pulsar"

ANCHOR: Final = Path(__file__).parent / "anchor"
START_SECONDS_MAX: Final = 300.0
STOP_SECONDS_MAX: Final = 30.0

_JAVA_OPTIONS: Final = (
    "-XX:+UseZGC",
    "-XX:+PerfDisableSharedMem",
    "-Xms2g",
    "-Xmx2g",
    "-XX:MaxDirectMemorySize=4g",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
JAVA_OPENS: Final = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/java.util.zip",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)


class Broker(Protocol):
    """A broker process that can be started once."""

    @property
    def target(self) -> Target: ...

    def launch(self) -> None: ...

    def stop(self) -> None:
        """End the process and remove its directory; idempotent."""

    def died(self) -> str | None:
        """Return why the process ended; None while it runs."""


class Magnetar:
    """A standalone with default settings, so with `journalSyncData=true`."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._directory = temporary_directory()
        self.server = StandaloneServer(self._directory, settings)

    @property
    def target(self) -> Target:
        return Target(self.server.endpoint.service_url, self.server.endpoint.http_url, self.server.pid)

    def launch(self) -> None:
        self.server.launch()

    def stop(self) -> None:
        self.server.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def died(self) -> str | None:
        return None if self.server.running else self.server.log_tail()


class ApachePulsar:
    """Its standalone, from the jars in `jars`; settings are in anchor/standalone.conf, `more` goes behind."""

    def __init__(self, jars: Path, more: Mapping[str, str] | None = None) -> None:
        self._jars = jars
        self._more = dict(more or {})
        self._directory = temporary_directory()
        self._ports = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> Target:
        binary, web, _ = self._ports
        assert self._process is not None, "the broker was never started"
        return Target(f"pulsar://127.0.0.1:{binary}", f"http://127.0.0.1:{web}", self._process.pid)

    def launch(self) -> None:
        binary, web, bookie = self._ports
        configuration = self._directory / "standalone.conf"
        ports = f"\nbrokerServicePort={binary}\nwebServicePort={web}\n"
        more = "".join(f"{key}={value}\n" for key, value in self._more.items())
        configuration.write_text((ANCHOR / "standalone.conf").read_text() + ports + more)
        (self._directory / "data").mkdir(exist_ok=True)
        command = ["java", *_JAVA_OPTIONS]
        for package in JAVA_OPENS:
            command += ["--add-opens", f"{package}=ALL-UNNAMED"]
        command += [f"-Dlog4j.configurationFile={ANCHOR / 'log4j2.xml'}", "-cp", f"{self._jars}/*"]
        command += ["org.apache.pulsar.PulsarStandaloneStarter", "--config", str(configuration)]
        command += ["--no-functions-worker", "--no-stream-storage", "--bookkeeper-port", str(bookie)]
        command += ["--bookkeeper-dir", "data/bookie", "--metadata-dir", "data/metadata"]
        with (self._directory / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory
            )

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def endpoint(self) -> Endpoint:
        """Addresses of the broker, for tests."""
        binary, web, _ = self._ports
        return Endpoint(f"pulsar://127.0.0.1:{binary}", f"http://127.0.0.1:{web}")

    def kill(self) -> None:
        """SIGKILL; its data stay, and `launch` starts it again on them."""
        assert self._process is not None, "the broker was never started"
        self._process.kill()
        self._process.wait()

    def died(self) -> str | None:
        if self._process is not None and self._process.poll() is None:
            return None
        return (self._directory / "console.log").read_text(errors="replace")[-2_000:]


def first_acknowledgement(broker: Broker) -> float:
    """Start `broker`; returns the seconds until it has acknowledged a message."""
    frame = SendTemplate(100).burst(FIRST_SEQUENCE_ID, 1)
    topic = new_topic()
    started = time.perf_counter()
    broker.launch()
    while True:
        try:
            connection = Connection(broker.target.service_url)
            connection.open_producer(topic)
            connection.send_and_await_receipt(frame)
        except (ConnectionError, Refused, TimeoutError) as refused:
            if (why := broker.died()) is not None:
                raise RuntimeError(f"the broker ended while it started:\n{why}") from None
            if time.perf_counter() - started > START_SECONDS_MAX:
                raise TimeoutError(f"no message acknowledged within {START_SECONDS_MAX:g} s") from refused
            time.sleep(0.005)
            continue
        acknowledged = time.perf_counter()
        connection.close()
        return acknowledged - started


def apache_pulsar_jars(say: Callable[[str], None]) -> Path | str:
    """Where Apache Pulsar's jars are, fetched by Maven when they were not; or why there are none."""
    what = f"Apache Pulsar {anchor_version()} (235 MB)"
    return fetch_jars(_anchor_name(), ANCHOR / "pom.xml", what, say)


def anchor_jars_directory() -> Path:
    """Where its jars are once they were fetched."""
    return jars_directory(_anchor_name())


def _anchor_name() -> str:
    """Directory name, with a digest of the pom: other dependencies are other jars."""
    digest = hashlib.sha256((ANCHOR / "pom.xml").read_bytes()).hexdigest()[:8]
    return f"apache-pulsar-{anchor_version()}-{digest}"


def anchor_version() -> str:
    """The version of Apache Pulsar that is measured."""
    return version_in(ANCHOR / "pom.xml")
