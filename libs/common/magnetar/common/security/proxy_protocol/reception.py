"""Reads the PROXY headers of accepted connections, from their sockets, before anything else does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.security.proxy_protocol.header import BadHeader, Client, HeaderReader
from prometheus_client import Counter

_log = get_logger(__name__)

TIMEOUT_S: Final = 10.0
"""Seconds for the whole header."""

WAITING_MAX: Final = 1_000
"""Connections whose header is not complete; one more takes the place of the oldest."""

READ_BYTES: Final = 4_096

OK: Final = "ok"
LOCAL: Final = "local"
INVALID: Final = "invalid"
CLOSED: Final = "closed"
TIMEOUT: Final = "timeout"
CROWDED: Final = "crowded"

HEADERS: Final = Counter(
    "magnetar_proxy_protocol_headers",
    "Connections of load balancers by their PROXY header: ok; local (without a client); invalid, timeout, "
    "crowded (too many waited): closed; closed by the load balancer before its end.",
    ["result"],
    registry=REGISTRY,
)
begin_at_zero(HEADERS, OK, LOCAL, INVALID, CLOSED, TIMEOUT, CROWDED)

Accepted = Callable[[socket.socket, Client | None], None]
"""Takes a socket over, with the client that its header names; None: the other end is the client."""


@dataclass(eq=False, slots=True)
class _Waiting:
    sock: socket.socket
    peer: str
    then: Accepted
    reader: HeaderReader = field(default_factory=HeaderReader)
    timer: asyncio.TimerHandle | None = None


class HeaderReception:
    """Reads headers of connections from load balancers. One for all ports of a process, on one event loop."""

    def __init__(self, networks: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """`networks`: the load balancers. Raises ValueError for one that is invalid."""
        self._networks = [ip_network(text) for text in networks]
        self._timeout_s = timeout_s
        self._waiting: dict[_Waiting, None] = {}
        self._failures = LogLimit()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def admit(self, sock: socket.socket, host: str, port: int, then: Accepted) -> None:
        """Take a non-blocking socket that was just accepted; `then` gets it, or it is closed."""
        if self._closed:
            sock.close()
            return
        if not self._is_load_balancer(host):
            then(sock, None)
            return
        if len(self._waiting) >= WAITING_MAX:
            self._refuse(next(iter(self._waiting)), CROWDED, "too many connections wait for their header")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(sock, f"{host}:{port}", then)
        waiting.timer = loop.call_later(self._timeout_s, self._refuse, waiting, TIMEOUT, "no header in time")
        self._waiting[waiting] = None
        loop.add_reader(sock, self._readable, waiting)
        self._readable(waiting)

    def close(self) -> None:
        """Close connections without a complete header; idempotent."""
        self._closed = True
        for waiting in list(self._waiting):
            self._forget(waiting)
            waiting.sock.close()

    # -- internals

    def _is_load_balancer(self, host: str) -> bool:
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def _readable(self, waiting: _Waiting) -> None:
        if waiting not in self._waiting:
            return
        try:
            found = waiting.sock.recv(READ_BYTES, socket.MSG_PEEK)
            if not found:
                self._refuse(waiting, CLOSED, "the connection ended")
                return
            # What belongs to the header is taken out of the socket; the rest stays for what comes next.
            waiting.sock.recv(waiting.reader.consume(found))
        except (BlockingIOError, InterruptedError):
            return
        except BadHeader as error:
            self._refuse(waiting, INVALID, str(error))
            return
        except OSError as error:
            self._refuse(waiting, CLOSED, error.strerror or str(error))
            return
        if waiting.reader.is_complete:
            self._forget(waiting)
            HEADERS.labels(LOCAL if waiting.reader.client is None else OK).inc()
            waiting.then(waiting.sock, waiting.reader.client)

    def _refuse(self, waiting: _Waiting, result: str, reason: str) -> None:
        self._forget(waiting)
        waiting.sock.close()
        HEADERS.labels(result).inc()
        if result == CLOSED:
            return  # how load balancers check that the port is open
        count = self._failures.note(asyncio.get_running_loop().time())
        if count:
            _log.warning(
                "connection without a valid PROXY header", peer=waiting.peer, reason=reason, connections=count
            )

    def _forget(self, waiting: _Waiting) -> None:
        del self._waiting[waiting]
        if waiting.timer is not None:
            waiting.timer.cancel()
        asyncio.get_running_loop().remove_reader(waiting.sock)
