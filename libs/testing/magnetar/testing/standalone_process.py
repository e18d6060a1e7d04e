"""A real `magnetar standalone` process for tests, on free loopback ports, with data that go when the test
ends.

The process ends with the context, and also when this process dies: `watched_command` waits for the end of
its standard input, of which this process holds the other end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from magnetar.testing import free_ports

START_TIMEOUT_S: Final = 60.0
"""Default limit of a start, in seconds. A start takes about a second; a loaded machine takes longer."""

STOP_TIMEOUT_S: Final = 20.0
"""Default limit of a graceful stop, in seconds, after which the process is killed."""

POLL_INTERVAL_S: Final = 0.005
LOG_TAIL_BYTES: Final = 20_000
"""How much of the log an error shows, in bytes."""

READY: Final = "magnetar ready in "
"""The beginning of the line that a server prints once clients can connect; its addresses follow."""

DEFAULTS: Final[Mapping[str, str]] = {
    "bindAddress": free_ports.HOST,
    "magnetarControlPort": "-1",
    "forceDeleteNamespaceAllowed": "true",
    "journalSyncData": "false",
}
"""Settings that differ from those of `magnetar standalone`: no port for offload jobs, namespaces can be
deleted with their topics, and writes are not synced. Data survive a kill of the process without syncs, but
no power failure.
"""

Setting = str | int | float | bool
"""The value of a setting; True and False are written as `true` and `false`."""


class StartFailed(RuntimeError):
    """The process ended or did not become ready in time; the message has the end of its log."""


class StandaloneProcess:
    """One `magnetar standalone` process, which can be stopped, killed and started again on its data and
    ports.

    `directory` holds the log and, unless `data_dir` names another place, the data; its owner removes it.
    The caller of `start` has to call `close`. `settings` are those of Magnetar by their names in
    Pulsar and have precedence over DEFAULTS. Not for use by several threads at once.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Setting] | None = None,
        *,
        data_dir: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        remove_if_orphaned: bool = False,
    ) -> None:
        """`remove_if_orphaned` has the process remove `directory` when this process dies without `close`.

        Raises OSError when no port is free.
        """
        self.directory = directory
        self.data_dir = data_dir or directory / "data"
        self.log_path = directory / "magnetar.log"
        self.start_timeout_s = start_timeout_s
        self.stop_timeout_s = stop_timeout_s
        self._remove_if_orphaned = remove_if_orphaned
        self._ports = free_ports.free_ports(2)
        binary, web = map(str, self._ports)
        self.settings: dict[str, str] = {
            **DEFAULTS,
            "brokerServicePort": binary,
            "webServicePort": web,
            **{key: setting_text(value) for key, value in (settings or {}).items()},
        }
        """Settings of the next start, as texts; may be changed between starts."""
        self._addresses: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def service_url(self) -> str:
        """URL for clients, `pulsar://127.0.0.1:PORT`, or `pulsar+ssl://` if only a TLS port is configured."""
        return self._address("pulsar://", "pulsar+ssl://")

    @property
    def admin_url(self) -> str:
        """URL of the admin API and of the metrics, `http://127.0.0.1:PORT`, or `https://` if there is no
        other.
        """
        return self._address("http://", "https://")

    @property
    def broker_port(self) -> int:
        """Port of `service_url`."""
        return urlsplit(self.service_url).port or 0

    @property
    def http_port(self) -> int:
        """Port of `admin_url`."""
        return urlsplit(self.admin_url).port or 0

    @property
    def pid(self) -> int:
        """Process id of the last start. Raises RuntimeError before the first."""
        if self._process is None:
            raise RuntimeError("the standalone was never started; call start()")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until clients can connect; does nothing if it runs.

        Raises StartFailed, with the end of the log, if it ends or needs more than `start_timeout_s` seconds.
        """
        if self.running:
            return
        self._release_process()
        # -P: a module in the current directory must not take the place of one that the server imports.
        command = [sys.executable, "-P", "-m", "magnetar.testing.watched_command"]
        if self._remove_if_orphaned:
            command += ["--remove", str(self.directory)]
        command += ["standalone", "--data-dir", str(self.data_dir)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        # Settings in the environment differ between machines; PYTHONWARNINGS is about the tests' own process.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("MAGNETAR_") and key != "PYTHONWARNINGS"
        }
        with self.log_path.open("ab") as log:
            begin = log.tell()
            # In a process group of its own: Ctrl-C reaches the tests alone, and these end the process.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
            )
        try:
            self._addresses = self._wait_until_ready(begin)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int | None:
        """Stop the process in order: clients are told, cursors are written. Killed after `stop_timeout_s`
        seconds.

        Returns the exit status, 0 after a clean stop, a negative signal number after a kill; None before the
        first start. Does nothing if the process does not run.
        """
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(self.stop_timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._release_process()
        return None if self._process is None else self._process.returncode

    def kill(self) -> None:
        """End the process at once, as a crash does. What was confirmed to clients is there after the next
        start.
        """
        if self._process is not None and self.running:
            self._process.kill()
        self._release_process()

    def restart(self) -> None:
        """Stop the process in order and start it again on the same data and ports. Raises StartFailed."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the process and give up its ports. Idempotent."""
        self.stop()
        free_ports.release(self._ports)

    def log(self, from_byte: int = 0) -> str:
        """Return what all starts of the process printed, from a byte of the log on: JSON lines."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(from_byte)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_bytes(self) -> int:
        """Return the length of the log in bytes, for `log` to begin at."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def _address(self, *schemes: str) -> str:
        for scheme in schemes:
            for address in self._addresses:
                if address.startswith(scheme):
                    return address
        raise RuntimeError(f"the standalone has no {schemes[0]} address; call start() first")

    def _wait_until_ready(self, begin: int) -> list[str]:
        assert self._process is not None, "called after the start"
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            ended = self._process.poll()
            for line in self.log(begin).splitlines(keepends=True):
                if line.startswith(READY) and line.endswith("\n"):
                    return line.split()
            if ended is not None:
                raise StartFailed(
                    f"magnetar standalone ended with status {ended} before it was ready"
                    f"{self._log_tail(begin)}"
                )
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"magnetar standalone was not ready within start_timeout_s = {self.start_timeout_s:g}"
                    f"{self._log_tail(begin)}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _log_tail(self, begin: int) -> str:
        text = self.log(max(begin, self.log_bytes() - LOG_TAIL_BYTES)).rstrip()
        return f"\n--- end of its log\n{text}" if text else "; it printed nothing"

    def _release_process(self) -> None:
        if self._process is not None:
            self._process.wait()
            assert self._process.stdin is not None, "started with a pipe"
            self._process.stdin.close()


def setting_text(value: Setting) -> str:
    """Return the value as a configuration file has it. Raises TypeError for other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"invalid value {value!r} of a setting: use str, int, float or bool")


@contextmanager
def standalone(
    settings: Mapping[str, Setting] | None = None,
    /,
    *,
    data_dir: Path | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
    stop_timeout_s: float = STOP_TIMEOUT_S,
    **more: Setting,
) -> Iterator[StandaloneProcess]:
    """Run a real standalone for the time of a `with` block, then stop it and remove its data.

    `settings` and `more` are settings by their names in Pulsar:
    `standalone(brokerDeduplicationEnabled=True)`. `data_dir` is kept, and may hold data of an earlier run;
    without it they are temporary. Raises StartFailed with the end of the log, and OSError.
    """
    directory = Path(tempfile.mkdtemp(prefix="magnetar-testing-"))
    try:
        process = StandaloneProcess(
            directory,
            {**(settings or {}), **more},
            data_dir=data_dir.absolute() if data_dir else None,
            start_timeout_s=start_timeout_s,
            stop_timeout_s=stop_timeout_s,
            remove_if_orphaned=True,
        )
        try:
            process.start()
            yield process
        finally:
            process.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
