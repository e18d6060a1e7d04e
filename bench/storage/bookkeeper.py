"""Apache BookKeeper as processes on free loopback ports: one ZooKeeper, bookies and a client that appends.

    bookkeeper = BookKeeper(directory, jars, bookies=3, seconds_max=900)
    try:
        bookkeeper.start()
        figures = bookkeeper.append(load)
    finally:
        bookkeeper.kill()

What bookies are told stands in bench/bookkeeper/bookie.conf; the client is bench/bookkeeper/LedgerLoad.java.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from magnetar.testing.free_ports import free_ports

from bench.jars import fetch_jars, version_in
from bench.storage.appends import SETTLE_S, WARM_S, AppendLoad
from bench.storage.procfs import cpu_seconds
from tests.integration.harness import spawn

SOURCES: Final = Path(__file__).parents[1] / "bookkeeper"
START_SECONDS_MAX: Final = 240.0
ANSWER_SECONDS_MAX: Final = 60.0
"""Seconds that a command may take beyond its load."""
LOG_TAIL_CHARACTERS: Final = 2_000

ZOOKEEPER_JVM: Final = ("-Xms128m", "-Xmx128m", "-Dzookeeper.forceSync=no")
"""Like the etcd on our side it does not sync; it hears of a ledger's creation and end only."""
BOOKIE_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g")
CLIENT_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_NETTY: Final = (
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    *("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
)


def bookkeeper_version() -> str:
    """The version of Apache BookKeeper that is measured."""
    return version_in(SOURCES / "pom.xml")


def bookkeeper_jars(say: Callable[[str], None]) -> Path | str:
    """Where its jars are, fetched by Maven when they were not; or why there are none."""
    version = bookkeeper_version()
    what = f"Apache BookKeeper {version} with ZooKeeper (95 MB)"
    return fetch_jars(f"bookkeeper-{version}", SOURCES / "pom.xml", what, say)


class BookKeeper:
    """Its processes, started once, with all data under `directory`. None of them outlives this process, and
    the client ends after `seconds_max` in any case."""

    def __init__(self, directory: Path, jars: Path, *, bookies: int, seconds_max: float) -> None:
        self.directory = directory
        self._jars = jars
        self._seconds_max = seconds_max
        self._zookeeper_port, *self._ports = free_ports(1 + bookies)
        self._servers: list[subprocess.Popen[bytes]] = []
        self._client: subprocess.Popen[str] | None = None

    @property
    def bookie_pids(self) -> list[int]:
        return [server.pid for server in self._servers[1:]]

    @property
    def pids(self) -> list[int]:
        """Every process of it, the client included."""
        assert self._client is not None, "the client was never started"
        return [*(server.pid for server in self._servers), self._client.pid]

    def start(self) -> None:
        """Return when every bookie is known to the client. Raises RuntimeError with the end of a log."""
        self.directory.mkdir(parents=True)
        self._start_zookeeper()
        self._start_client()
        self._expect("formatted", START_SECONDS_MAX)
        for number, port in enumerate(self._ports, 1):
            self._start_bookie(number, port)
        self._expect("ready", START_SECONDS_MAX)

    def append(self, load: AppendLoad) -> dict[str, float]:
        """A load on a new ledger, measured as `bench.storage.appends.measure` does, each entry by itself."""
        assert self._client is not None, "the client was never started"
        self._ask("open", "opened")
        self._load(load, WARM_S)
        time.sleep(SETTLE_S)
        client, bookies = self._client.pid, self.bookie_pids
        before, client_before = _cpu(bookies), cpu_seconds(client)
        entries, took, p50, p95, p99 = self._load(load, load.seconds)
        time.sleep(SETTLE_S)
        cpu, client_cpu = _cpu(bookies) - before, cpu_seconds(client) - client_before
        self._ask("close", "closed")
        return {
            "entries": entries,
            "entries/s": entries / took,
            "p50 ms": p50 / 1e3,
            "p95 ms": p95 / 1e3,
            "p99 ms": p99 / 1e3,
            "bookie us/entry": 1e6 * cpu / len(bookies) / entries,
            "process us/entry": 1e6 * client_cpu / entries,
        }

    def kill(self) -> None:
        """End what runs and remove the directory; idempotent."""
        if self._client is not None:
            self._client.kill()
            self._client.communicate()
        for server in self._servers:
            server.kill()
            server.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_zookeeper(self) -> None:
        lines = {
            "dataDir": self.directory / "zookeeper",
            "clientPort": self._zookeeper_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": 2_000,
        }
        path = self.directory / "zookeeper.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._start_server("zookeeper", ZOOKEEPER_JVM, [main, str(path)])
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _listens(self._zookeeper_port):
            if time.monotonic() > deadline or self._servers[0].poll() is not None:
                raise RuntimeError(f"ZooKeeper did not start\n{self._log_tails()}")
            time.sleep(0.1)

    def _start_bookie(self, number: int, port: int) -> None:
        name = f"bookie-{number}"
        lines = {
            "bookiePort": port,
            "metadataServiceUri": self._metadata_uri,
            "journalDirectories": self.directory / name / "journal",
            "ledgerDirectories": self.directory / name / "ledgers",
        }
        path = self.directory / f"{name}.conf"
        ours = "".join(f"{key}={value}\n" for key, value in lines.items())
        path.write_text((SOURCES / "bookie.conf").read_text() + ours)
        main = "org.apache.bookkeeper.server.Main"
        self._start_server(name, (*BOOKIE_JVM, *_NETTY), [main, "--conf", str(path)])

    def _start_server(self, name: str, options: Sequence[str], arguments: Sequence[str]) -> None:
        with self._log(name).open("ab") as log:
            self._servers.append(spawn([*self._java(options), *arguments], log, self.directory))

    def _start_client(self) -> None:
        program = str(SOURCES / "LedgerLoad.java")
        arguments = [self._metadata_uri, str(len(self._ports)), str(int(self._seconds_max))]
        with self._log("client").open("ab") as log:
            self._client = subprocess.Popen(
                [*self._java((*CLIENT_JVM, *_NETTY)), program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                text=True,
                bufsize=1,
            )

    def _java(self, options: Sequence[str]) -> list[str]:
        logging = f"-Dlog4j.configurationFile={SOURCES / 'log4j2.xml'}"
        return ["java", *options, logging, "-cp", f"{self._jars}/*"]

    @property
    def _metadata_uri(self) -> str:
        return f"zk+hierarchical://127.0.0.1:{self._zookeeper_port}/ledgers"

    def _load(self, load: AppendLoad, seconds: float) -> tuple[float, ...]:
        command = f"load {load.size} {load.window * load.batch} {seconds}"
        return tuple(map(float, self._ask(command, "done", seconds)))

    def _ask(self, command: str, answer: str, seconds: float = 0.0) -> list[str]:
        assert self._client is not None, "the client was never started"
        assert self._client.stdin is not None
        try:
            self._client.stdin.write(f"{command}\n")
        except BrokenPipeError:
            raise RuntimeError(f"BookKeeper's client is gone\n{self._log_tails()}") from None
        return self._expect(answer, seconds + ANSWER_SECONDS_MAX)

    def _expect(self, answer: str, seconds_max: float) -> list[str]:
        assert self._client is not None
        assert self._client.stdout is not None
        watch = threading.Timer(seconds_max, self._client.kill)
        watch.start()
        try:
            words = self._client.stdout.readline().split()
        finally:
            watch.cancel()
        if words[:1] != [answer]:
            raise RuntimeError(
                f"BookKeeper's client answered {words} instead of '{answer}' within {seconds_max:g} s\n"
                f"{self._log_tails()}"
            )
        return words[1:]

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _log_tails(self) -> str:
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(
            f"--- end of {log.name}\n{log.read_text(errors='replace')[-LOG_TAIL_CHARACTERS:]}" for log in logs
        )


def _cpu(pids: Sequence[int]) -> float:
    return sum(map(cpu_seconds, pids))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
