"""A Docker daemon for tests and `make images`: the one that answers, or one of our own.

Ours is started by hand, on a data directory in our cache (what was built stays for the next run) and a
socket of its own: overlay2, a bridge, ports published on loopback. Several processes may use it at once;
each keeps a lock while it does, the first one starts it and the last one ends it. A keeper
(tools/docker_keeper.py) ends it where users were killed, and leaves the machine as it was. It needs root,
dockerd and iptables; where one of them is missing, `DockerUnavailable` says which.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tools.deploy_setup import cache_directory, docker_program, dockerd_program, program
from tools.docker_keeper import READY, Place, answers, end, running

ROOT: Final = Path(__file__).resolve().parents[1]


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
    """Our daemon, shared by all processes that hold the lock `users`; a lock `turn` while one of them comes
    or goes, so that nobody finds a daemon that is about to end."""

    def __init__(self, docker: Path) -> None:
        self._docker = docker
        run = Path(tempfile.gettempdir()) / f"magnetar-docker-{os.getuid()}"
        self._place = Place(run, cache_directory() / "docker")
        self._users: IO[str] | None = None

    def __enter__(self) -> str:
        self._place.data.mkdir(parents=True, exist_ok=True)
        private_directory(self._place.run)
        users = self._place.users.open("w")
        try:
            with self._turn():
                # What those who were killed have left is about to end, and not to be shared.
                if _locked_alone(users):
                    end(self._keeper)
                fcntl.flock(users, fcntl.LOCK_SH)
                if self._keeper() is None or not answers(self._docker, self._place.host):
                    self._start()
        except BaseException:
            users.close()
            raise
        self._users = users
        return self._place.host

    def __exit__(self, *_: object) -> None:
        assert self._users is not None
        with self._turn(), self._users as users:
            if _locked_alone(users):
                end(self._keeper)
            else:
                # At once, or when a keeper that was faster has ended all of it.
                fcntl.flock(users, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with (self._place.run / "turn.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _keeper(self) -> int | None:
        return running(self._place.keeper_pid, str(self._place.run))

    def _start(self) -> None:
        end(self._keeper)  # one whose users were killed, or whose daemon hangs
        command = [sys.executable, "-m", "tools.docker_keeper", str(self._place.run), str(self._place.data)]
        reading, writing = os.pipe()
        with open(reading, encoding="utf-8", errors="replace") as says:
            try:
                with (self._place.run / "keeper.log").open("w") as log, open(os.devnull) as nothing:
                    # No Popen, which complains when it is forgotten: it outlives who starts it.
                    os.posix_spawn(
                        command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)}, setsid=True,
                        file_actions=[
                            (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                            (os.POSIX_SPAWN_DUP2, writing, 1),
                            (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                        ],
                    )  # fmt: skip
            finally:
                os.close(writing)
            said = says.read()
        if said != READY:
            raise DockerUnavailable(f"dockerd did not start:\n{said or self._keeper_log()}")

    def _keeper_log(self) -> str:
        return (self._place.run / "keeper.log").read_text(errors="replace").strip()


def _locked_alone(users: IO[str]) -> bool:
    """Whether nobody else holds the lock; if somebody does, this file does not any more."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
