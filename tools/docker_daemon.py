"""A Docker daemon for tests and `make images`: the one that answers, or one of our own.

Ours is started by hand, on a data directory in our cache (what was built stays for the next run) and a
socket of its own: overlay2, a bridge, ports published on loopback. Several processes may use it at once;
each keeps a lock while it does, the first one starts it and the last one ends it, by its process id. It needs
root, dockerd and iptables; where one of them is missing, `DockerUnavailable` says which.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tools.deploy_setup import cache_directory, docker_program, dockerd_program, program

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
_LOG_TAIL_BYTES: Final = 2_000
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")


class DockerUnavailable(Exception):
    """No daemon answers and none can be started here; the message says why."""


@dataclass(frozen=True, slots=True)
class DockerDaemon:
    """A daemon that answers."""

    host: str
    """As in DOCKER_HOST; empty for what Docker's programs find by themselves."""
    ours: bool

    @property
    def environment(self) -> dict[str, str]:
        """This process's, with the daemon in it: for Docker's programs and testcontainers."""
        found = dict(os.environ)
        if self.host:
            found["DOCKER_HOST"] = self.host
            found.pop("DOCKER_CONTEXT", None)
        return found


@contextlib.contextmanager
def docker_daemon() -> Iterator[DockerDaemon]:
    """A daemon for as long as the block runs. Raises DockerUnavailable."""
    docker = docker_program()
    if docker is None:
        raise DockerUnavailable("there is no docker program")
    if answers(docker, ""):
        yield DockerDaemon(os.environ.get("DOCKER_HOST", ""), ours=False)
        return
    why = why_none_of_our_own()
    if why is not None:
        raise DockerUnavailable(f"no Docker daemon answers, and none can be started: {why}")
    with _Own(docker) as host:
        yield DockerDaemon(host, ours=True)


def answers(docker: Path, host: str) -> bool:
    """Whether a daemon answers there."""
    command = [str(docker), *(("--host", host) if host else ()), "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def why_none_of_our_own() -> str | None:
    """What is missing for a daemon of our own; None when nothing is."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "this is not Linux"
    if os.geteuid() != 0:
        return "only root may start one"
    if dockerd_program() is None:
        return "there is no dockerd (make deploy-setup installs Debian's)"
    if program("iptables") is None:
        return "there is no iptables (make deploy-setup installs Debian's)"
    return None


def private_directory(path: Path) -> None:
    """Make it, or see that nobody else has: its name can be guessed, and everybody may write beside it.

    Whoever owned it could have root write elsewhere by links, and call the daemon. Raises DockerUnavailable.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DockerUnavailable(f"{path} is not a directory of this user's alone: remove it, or set TMPDIR")


class _Own:
    """Our daemon, shared by all processes that hold the lock `users`; a lock `turn` while it is started or
    ended, so that nobody finds one that is about to go."""

    def __init__(self, docker: Path) -> None:
        self._docker = docker
        self._data = cache_directory() / "docker"
        # A socket's path has 107 bytes: not below a cache directory that may lie anywhere.
        self._run = Path(tempfile.gettempdir()) / f"magnetar-docker-{os.getuid()}"
        self._host = f"unix://{self._run}/docker.sock"
        self._pid_file = self._run / "docker.pid"
        self._containerd_pid_file = self._run / "exec" / "containerd" / "containerd.pid"
        self._log = self._run / "dockerd.log"
        self._users: IO[str] | None = None

    def __enter__(self) -> str:
        self._data.mkdir(parents=True, exist_ok=True)
        private_directory(self._run)
        with self._turn():
            self._users = (self._run / "users.lock").open("w")
            fcntl.flock(self._users, fcntl.LOCK_SH)
            try:
                if not answers(self._docker, self._host):
                    self._start()
            except BaseException:
                self._users.close()
                raise
        return self._host

    def __exit__(self, *_: object) -> None:
        assert self._users is not None
        with self._turn(), self._users:
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # somebody else still uses it, and ends it
            self._end(self._pid)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with (self._run / "turn.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _start(self) -> None:
        self._end(self._pid)  # one that hangs
        self._pid_file.unlink(missing_ok=True)
        # A killed daemon's containerd is about to end too: whoever finds its number waits for it in vain.
        self._end(self._containerd_pid)
        self._containerd_pid_file.unlink(missing_ok=True)
        command = [
            str(dockerd_program()),
            *("--host", self._host, "--data-root", str(self._data), "--exec-root", str(self._run / "exec")),
            *("--pidfile", str(self._pid_file), "--config-file", str(self._run / "none.json")),
            *("--storage-driver", "overlay2", "--userland-proxy=true", "--log-level", "warn"),
            *("--log-driver", "json-file", "--log-opt", "max-size=10m", "--shutdown-timeout", "10"),
        ]
        forwards = _FORWARDING.read_text().strip() == "1"
        # What the machine's own daemon is told is not for this one.
        (self._run / "none.json").write_text("{}")
        # It calls programs that Debian keeps for the administrator.
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
        with self._log.open("wb") as log, open(os.devnull, "rb") as nothing:
            # No Popen, which complains when it is forgotten: the daemon may outlive who starts it.
            pid = os.posix_spawn(
                command[0], command, {**os.environ, "PATH": path}, setsid=True,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(self._docker, self._host):
            ended = os.waitpid(pid, os.WNOHANG) != (0, 0)
            if ended or time.monotonic() > deadline:
                if not ended:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                told = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
                raise DockerUnavailable(f"dockerd did not start:\n{told}")
            time.sleep(0.1)
        if not forwards:
            # It has turned forwarding on, and drops what is forwarded for anybody else from now on: bridges
            # between network namespaces, as other tests have them, would be dead for good.
            iptables = str(program("iptables"))
            subprocess.run([iptables, "--wait", "--policy", "FORWARD", "ACCEPT"], check=False)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove the containers and networks of whoever was killed: the daemon starts those again that want
        to be, and nobody uses it yet who could want them."""
        if left := self._told("ps", "--all", "--quiet").split():
            self._told("rm", "--force", "--volumes", *left)
        self._told("network", "prune", "--force")

    def _told(self, *arguments: str) -> str:
        command = [str(self._docker), "--host", self._host, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"docker {arguments[0]}: {done.stderr.strip()[-_LOG_TAIL_BYTES:]}", flush=True)
        return done.stdout

    def _pid(self) -> int | None:
        return _running(self._pid_file, str(self._data))

    def _containerd_pid(self) -> int | None:
        return _running(self._containerd_pid_file, str(self._containerd_pid_file.with_suffix(".toml")))

    def _end(self, running: Callable[[], int | None]) -> None:
        pid = running()
        if pid is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while running() is not None and time.monotonic() < deadline:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # a child of this process would stay as a zombie
                time.sleep(0.05)
            if running() is None:
                return


def _running(pid_file: Path, argument: str) -> int | None:
    """The process of a file, if it runs; one of that number that is something else is left alone."""
    try:
        pid = int(pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if argument.encode() in command else None
