"""Runs Magnetar as real processes for black-box tests, or points them at a running service.

Nothing here imports the broker: what these tests know of it is what a client knows. With
MAGNETAR_TEST_SERVICE_URL (`pulsar://host:port`) and MAGNETAR_TEST_HTTP_URL (`http://host:port`) the same
tests run against any other service that speaks the protocol; those that have to restart or configure their
server then skip, saying so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from magnetar.testing.free_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
SERVICE_URL_VARIABLE = "MAGNETAR_TEST_SERVICE_URL"
HTTP_URL_VARIABLE = "MAGNETAR_TEST_HTTP_URL"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 40.0
LOG_TAIL_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running service listens."""

    service_url: str
    http_url: str
    cluster: str = "standalone"

    @property
    def host(self) -> str:
        return urlsplit(self.service_url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.service_url).port or 6650


def page_at(url: str) -> tuple[int, str]:
    """Status and text of an HTTP page; status 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return 0, ""


def external_endpoint() -> Endpoint | None:
    """The service that the environment names, or None when tests start their own."""
    service_url = os.environ.get(SERVICE_URL_VARIABLE)
    if not service_url:
        return None
    return Endpoint(service_url, os.environ.get(HTTP_URL_VARIABLE, "http://127.0.0.1:8080"))


class Logged(Protocol):
    """A process that was started here, and what it printed."""

    @property
    def log_path(self) -> Path: ...

    def log_tail(self) -> str: ...


launched: dict[Path, Logged] = {}
"""Processes by their logs, since the test that runs began: what a failure shows."""


def spawn(
    command: Sequence[str], log: IO[bytes], directory: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that prints to `log` and is killed, where `setpriv` is there, when this one ends.

    The system counts from the end of the thread that starts it: that has to be one that stays.
    """
    setpriv = shutil.which("setpriv")
    whole = [*((setpriv, "--pdeathsig", "KILL") if setpriv else ()), *command]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=environment
        )

    return _spawner.submit(start).result()


_spawner = ThreadPoolExecutor(1, "spawner")


def eventually(condition: Callable[[], bool], what: str, seconds_max: float = 40.0) -> None:
    """Poll until `condition` holds; fails with `what` after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds_max:g} s: {what}")
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended; whoever inherited it may not have looked at it yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def magnetar_command() -> list[str]:
    """The installed `magnetar` command beside the interpreter that runs the tests."""
    command = shutil.which("magnetar", path=str(Path(sys.executable).parent))
    if command is None:
        raise AssertionError(f"no 'magnetar' command beside {sys.executable}; run 'make setup'")
    return [command]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs: the address that it listens on, and the command that puts it there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


HERE = Place()
"""Beside the tests, on loopback."""


class MagnetarProcess:
    """One process of the `magnetar` command, with data that outlives it so that it can start again.

    `arguments` are those of its start, `health_url` answers 200 once it serves. `program`, `settings` and
    `environment` may be changed between starts.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        arguments: Sequence[str],
        health_url: str,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        place: Place = HERE,
    ) -> None:
        self.directory = directory
        self.name = name
        self.place = place
        self.program = magnetar_command()
        self.arguments = [*arguments]
        self.health_url = health_url
        self.settings = dict(settings)
        self.environment = dict(environment or {})
        self.log_path = directory / f"{name}.log"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until its health endpoint answers."""
        self.launch()
        self.wait_until_healthy()

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        assert not self.running, f"{self.name} is running already"
        command = [*self.place.prefix, *self.program, *self.arguments]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {
            key: value for key, value in os.environ.items() if not key.upper().startswith("MAGNETAR_")
        } | self.environment
        self.starts += 1
        launched[self.log_path] = self
        with self.log_path.open("ab") as log:
            log.write(f"--- start {self.starts}: {' '.join(command)}\n".encode())
            log.flush()
            self._process = spawn(command, log, self.directory, environment)

    def wait_until_healthy(self) -> None:
        """Until the health endpoint of the process that was started answers."""
        assert self._process is not None, "the server was never started"
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._healthy():
            if self._process.poll() is not None:
                raise AssertionError(
                    f"{self.name} ended with status {self._process.returncode}\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(
                    f"no answer from {self.health_url} within {START_SECONDS_MAX:g} s\n{self.log_tail()}"
                )
            time.sleep(0.02)

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """SIGTERM, the clean way; fails when the server does not end with status 0 in time."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"still running {seconds_max:g} s after SIGTERM\n{self.log_tail()}"
            ) from None
        assert status == 0, f"{self.name} ended with status {status} after SIGTERM\n{self.log_tail()}"

    def kill(self) -> None:
        """SIGKILL: nothing of the process gets to run any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """A clean stop and a start on the same data and ports."""
        self.stop()
        self.start()

    def kill_and_start(self) -> None:
        """A crash and a start on the same data and ports."""
        self.kill()
        self.start()

    def log_tail(self) -> str:
        """The end of what the process printed, for failure reports."""
        if not self.log_path.exists():
            return "(no log)"
        text = self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"--- end of {self.log_path}\n{text}"

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} was never started"
        self._process.send_signal(number)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self.health_url, timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class StandaloneServer(MagnetarProcess):
    """One `magnetar standalone` process, and a data directory that outlives it so that it can start again.

    Ports stay the same over restarts: clients find the server again at the address they know.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.endpoint, ports = free_endpoint()
        (jobs_port,) = free_ports(1)
        self.jobs_address = f"{HERE.address}:{jobs_port}"
        """Where offload jobs call it."""
        ports["magnetarControlPort"] = str(jobs_port)
        super().__init__(
            directory,
            "server",
            [],
            f"{self.endpoint.http_url}/admin/v2/brokers/ready",
            {**ports, **(settings or {})},
            environment,
        )
        self.data_dir = directory / "data"

    @property
    def data_dir(self) -> Path:
        """Where messages and metadata are kept; may be changed between starts."""
        return self._data_dir

    @data_dir.setter
    def data_dir(self, path: Path) -> None:
        self._data_dir = path
        self.arguments = ["standalone", "--data-dir", str(path)]


def free_endpoint(cluster: str = "standalone", host: str = HERE.address) -> tuple[Endpoint, dict[str, str]]:
    """An endpoint on free ports, and the settings that make a broker listen there."""
    binary_port, web_port = free_ports(2)
    endpoint = Endpoint(f"pulsar://{host}:{binary_port}", f"http://{host}:{web_port}", cluster)
    return endpoint, {"brokerServicePort": str(binary_port), "webServicePort": str(web_port)}


def temporary_directory() -> Path:
    """A directory for one server, named so that a leftover tells where it came from."""
    return Path(tempfile.mkdtemp(prefix="magnetar-test-"))
