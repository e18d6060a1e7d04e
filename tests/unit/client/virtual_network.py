"""A network in virtual time: clients connect to hosts of a test, over connections that delay, cut up and lose
bytes.

Everything runs on one `ClientLoop`, without sockets. All chance comes from the loop's seed.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from magnetar.sim.loop import SimLoop, run


@dataclass(slots=True)
class Faults:
    """Troubles of a network; may be changed at any time."""

    delay_min_s: float = 0.000_1
    delay_max_s: float = 0.001
    reset_probability: float = 0.0
    """Probability, for each write, that its connection is reset at a random byte of it."""
    piece_bytes_max: int = 0
    """The most bytes that arrive in one piece, so that frames are cut anywhere; 0: whole writes."""


class ServerEnd(Protocol):
    """A host's end of a connection."""

    def receive(self, data: bytes) -> None: ...

    def closed(self) -> None: ...


Accept = Callable[["Wire"], ServerEnd]


class VirtualNetwork:
    """Hosts by name and port, and the connections to them."""

    def __init__(self, loop: SimLoop, faults: Faults | None = None) -> None:
        self.loop = loop
        self.faults = faults or Faults()
        self.hosts: dict[tuple[str, int], Accept] = {}
        self.wires: list[Wire] = []
        self.dialed: list[tuple[str, int, str | None]] = []
        """Host, port and the name asked for by TLS, of each attempt."""
        self.hanging: set[tuple[str, int]] = set()
        """Hosts that never answer an attempt to connect."""

    def reset_all(self, host: tuple[str, int] | None = None) -> None:
        """Resets the connections to one host, or all."""
        for wire in list(self.wires):
            if host in (None, wire.host):
                wire.reset()

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: tuple[str, int], name: str | None
    ) -> tuple[asyncio.BaseTransport, Any]:
        self.dialed.append((*host, name))
        if host in self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay())
        accept = self.hosts.get(host)
        if accept is None:
            raise ConnectionRefusedError(111, f"Connect call failed ({host[0]!r}, {host[1]})")
        protocol = factory()
        wire = Wire(self, host, protocol)
        self.wires.append(wire)
        wire.end = accept(wire)
        protocol.connection_made(wire.transport)
        return wire.transport, protocol

    def delay(self) -> float:
        return self.loop.rng.uniform(self.faults.delay_min_s, self.faults.delay_max_s)


class Wire:
    """One connection: the client's transport at one end, `end` at the other."""

    def __init__(self, network: VirtualNetwork, host: tuple[str, int], protocol: Any) -> None:
        self.host = host
        self.transport = _ClientTransport(self)
        self.protocol = protocol
        self.end: ServerEnd | None = None
        self.is_open = True
        self._network = network
        self._last_at = {"up": 0.0, "down": 0.0}

    def to_client(self, data: bytes) -> None:
        """Sends bytes from the host."""
        self._carry("down", data, self.protocol.data_received)

    def to_server(self, data: bytes) -> None:
        assert self.end is not None
        self._carry("up", data, self.end.receive)

    def reset(self) -> None:
        """Ends it: nothing more arrives, and both sides notice sooner or later."""
        self._over(ConnectionResetError(104, "Connection reset by peer"))

    def close(self) -> None:
        """The host closes it: what it sent before arrives first."""
        self._network.loop.call_at(self._at("down"), lambda: self._over(None))

    def closed_by_client(self) -> None:
        """Bytes that were sent before arrive; those that come back are of no interest."""
        self._network.loop.call_at(self._at("up"), lambda: self._over(None))

    def _carry(self, way: str, data: bytes, arrive: Callable[[bytes], None]) -> None:
        network = self._network
        faults, rng = network.faults, network.loop.rng
        if not self.is_open or not data:
            return
        is_cut = faults.reset_probability and rng.random() < faults.reset_probability
        if is_cut:
            data = data[: rng.randrange(len(data) + 1)]
        pieces = [data]
        if faults.piece_bytes_max:
            pieces = []
            while data:
                size = rng.randint(1, faults.piece_bytes_max)
                pieces.append(data[:size])
                data = data[size:]
        for piece in pieces:
            network.loop.call_at(self._at(way), self._arrived, arrive, piece)
        if is_cut:
            network.loop.call_at(self._at(way), self.reset)

    def _at(self, way: str) -> float:
        network = self._network
        at = max(self._last_at[way], network.loop.time() + network.delay())
        # Of timers of one moment the loop does not keep the order.
        self._last_at[way] = at = at + 1e-7
        return at

    def _arrived(self, arrive: Callable[[bytes], None], piece: bytes) -> None:
        if self.is_open:
            arrive(piece)

    def _over(self, error: Exception | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        network = self._network
        network.wires.remove(self)
        self.transport.is_over = True
        network.loop.call_later(network.delay(), self.protocol.connection_lost, error)
        if self.end is not None:
            network.loop.call_later(network.delay(), self.end.closed)


class _ClientTransport(asyncio.Transport):
    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self.is_over = False
        self._closing = False

    def write(self, data: Any) -> None:
        assert not self._closing, "bytes are written after the transport was closed"
        self._wire.to_server(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wire.closed_by_client()

    def is_closing(self) -> bool:
        return self._closing or self.is_over

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high


class ClientLoop(SimLoop):
    """A simulated loop that connects to the hosts of its network."""

    def __init__(self, seed: int = 0, faults: Faults | None = None, time_max_s: float = 86_400.0) -> None:
        super().__init__(seed, time_max_s=time_max_s)
        self.network = VirtualNetwork(self, faults)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: tls.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        name = (server_hostname or host) if ssl is not None else None
        return await self.network.connect(protocol_factory, (host, port), name)


def virtually(
    scenario: Callable[[VirtualNetwork], Awaitable[None]],
    seed: int = 0,
    faults: Faults | None = None,
    time_max_s: float = 86_400.0,
) -> None:
    """Runs a scenario in virtual time, and checks that it leaves no task behind."""
    loop = ClientLoop(seed, faults, time_max_s)

    async def whole() -> None:
        await scenario(loop.network)
        await asyncio.sleep(1.0)  # Connections that were closed end.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    run(loop, whole())
