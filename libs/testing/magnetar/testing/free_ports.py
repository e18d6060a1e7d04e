"""Ports of the loopback interface for servers that are started here, each given to one process only.

A server gets its port before it listens, and a killed server listens again later, so a free port may be
reserved. A process that takes a port holds, until it ends or releases the port, a record lock on the byte
of that number in a file that all processes of a user share.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORT_MIN: Final = 16_384
PORT_TRIES_MAX: Final = 10_000

_rng: Final = random.SystemRandom()
_taken: Final[set[int]] = set()
"""By this process, to which its own locks are no obstacle."""


@cache
def _locks() -> int:
    """Descriptor of the shared file. Never closed: closing any descriptor of the file would give up every
    lock (POSIX).
    """
    path = Path(tempfile.gettempdir()) / f"magnetar-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def free_ports(count: int) -> list[int]:
    """Ports that `take` grants, below those that the system gives to outgoing connections.

    Otherwise an outgoing connection could get the port of a server that is down between a kill and its next
    start. Raises OSError when there are none.
    """
    return [free_run(1) for _ in range(count)]


def free_run(length: int) -> int:
    """The first of so many ports in a row that `take` grants; raises OSError when there are none."""
    for _ in range(PORT_TRIES_MAX):
        first = _rng.randrange(PORT_MIN, first_outgoing_port() - length)
        if all(map(take, range(first, first + length))):
            return first
    raise OSError(f"none of {PORT_TRIES_MAX} ports that were tried is free")


def take(port: int) -> bool:
    """Reserve the port for this process; returns False when it is in use or reserved by another process."""
    if port in _taken:
        return False
    locks = _locks()
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    if not _is_free(port):
        fcntl.lockf(locks, fcntl.LOCK_UN, 1, port)
        return False
    _taken.add(port)
    return True


def release(ports: Iterable[int]) -> None:
    """Give up ports that this process took."""
    for port in ports:
        if port in _taken:
            _taken.remove(port)
            fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def first_outgoing_port() -> int:
    """The first port of the system's own choice; Linux's default where it cannot be known."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first >= PORT_MIN + 4_096 else 65_536  # there is no room below them
