"""Keeps the Docker daemon of tests for as long as somebody uses it, and leaves the machine as it was.

    python -m tools.docker_keeper RUN DATA

is started by tools/docker_daemon.py, in a session of its own. It outlives whoever started it: those who use
the daemon share a lock, which the kernel takes from the dead too, and when nobody has it any more, the daemon
is ended and what it has made on this machine is removed. SIGTERM has it do so at once.

On standard output it says READY when the daemon answers, or why it does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tools.deploy_setup import docker_program, dockerd_program
from tools.docker_traces import (
    Machine,
    end_processes,
    put_network_back,
    put_policy_back,
    remove_files,
    unmount_below,
)

READY: Final = "ready"
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
COMMAND_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 0.5
_LOG_TAIL_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a daemon of our own has its files."""

    run: Path
    """Of this user alone. A socket's path has 107 bytes, so it is short."""
    data: Path

    @property
    def host(self) -> str:
        """As in DOCKER_HOST."""
        return f"unix://{self.run}/docker.sock"

    @property
    def users(self) -> Path:
        """Locked, shared, by all that use the daemon."""
        return self.run / "users.lock"

    @property
    def keeper_pid(self) -> Path:
        return self.run / "keeper.pid"

    @property
    def dockerd_pid(self) -> Path:
        return self.run / "docker.pid"

    @property
    def execution(self) -> Path:
        """What the daemon has for as long as it runs."""
        return self.run / "exec"

    @property
    def log(self) -> Path:
        return self.run / "dockerd.log"

    @property
    def before(self) -> Path:
        """What the machine was like before the daemon was started; gone once it is so again."""
        return self.run / "before.json"


def answers(docker: Path, host: str) -> bool:
    """Whether a daemon answers there; `host` as in DOCKER_HOST, or empty."""
    command = [str(docker), *(("--host", host) if host else ()), "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def running(pid_file: Path, argument: str) -> int | None:
    """The process of a file, if it runs; one of that number that is something else is left alone."""
    try:
        pid = int(pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if argument.encode() in command else None


def end(found: Callable[[], int | None]) -> None:
    """SIGTERM to a process, and SIGKILL if it takes too long."""
    pid = found()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while found() is not None and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # a child of this process would stay as a zombie
            time.sleep(0.05)
        pid = found()


class NotStarted(Exception):
    """The daemon does not answer; the message has the end of its log."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    place = Place(*map(Path, sys.argv[1:]))
    place.keeper_pid.write_text(str(os.getpid()))
    try:
        with place.users.open() as users, daemon(place) as process:
            _say(READY)
            while process.poll() is None and not _unused(users):
                time.sleep(_LOOK_SECONDS)
    except NotStarted as error:
        _say(str(error))


def _say(what: str) -> None:
    """To whoever started this, who may be gone by now."""
    with contextlib.suppress(OSError):
        os.write(1, what.encode())
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def _unused(users: IO[str]) -> bool:
    """Whether nobody uses the daemon; then whoever wants to waits until it has ended."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def daemon(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that answers, without the containers of another time. Raises NotStarted."""
    clear(place)
    before = Machine.now()
    before.write(place.before)
    process = _start(place)
    try:
        _wait_until_it_answers(process, place)
        put_policy_back(before)
        _remove_what_was_left(place)
        yield process
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        clear(place)


def clear(place: Place) -> None:
    """End a daemon that still runs, and put back all that it has changed on this machine but its data."""
    end(lambda: running(place.dockerd_pid, str(place.data)))
    place.dockerd_pid.unlink(missing_ok=True)
    end_processes(place.execution)
    before = Machine.read(place.before)
    unmount_below(place.data, place.execution, keep=before.mounts if before else [str(place.data)])
    remove_files(place.execution)
    if before:
        put_network_back(before)
    place.before.unlink(missing_ok=True)


def _start(place: Place) -> subprocess.Popen[bytes]:
    configuration = place.run / "none.json"
    configuration.write_text("{}")  # what the machine's own daemon is told is not for this one
    command = [
        str(dockerd_program()),
        *("--host", place.host, "--data-root", str(place.data), "--exec-root", str(place.execution)),
        *("--pidfile", str(place.dockerd_pid), "--config-file", str(configuration)),
        *("--storage-driver", "overlay2", "--userland-proxy=true", "--log-level", "warn"),
        *("--log-driver", "json-file", "--log-opt", "max-size=10m", "--shutdown-timeout", "10"),
    ]
    # It calls programs that Debian keeps for the administrator.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    with place.log.open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": path}
        )


def _wait_until_it_answers(process: subprocess.Popen[bytes], place: Place) -> None:
    docker = docker_program()
    assert docker is not None
    deadline = time.monotonic() + START_SECONDS_MAX
    while not answers(docker, place.host):
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotStarted(place.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip())
        time.sleep(0.1)


def _remove_what_was_left(place: Place) -> None:
    """Containers, networks and volumes of whoever was killed: nobody uses this daemon yet who could want
    them."""
    if containers := _told(place, "ps", "--all", "--quiet").split():
        _told(place, "rm", "--force", "--volumes", *containers)
    _told(place, "network", "prune", "--force")
    if volumes := _told(place, "volume", "ls", "--quiet").split():
        _told(place, "volume", "rm", "--force", *volumes)


def _told(place: Place, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [str(docker_program()), "--host", place.host, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=COMMAND_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


if __name__ == "__main__":
    main()
