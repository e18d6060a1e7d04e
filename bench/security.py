"""Cost of TLS in a standalone, beside plain text in the same run: `python -m bench.security`.

Handshakes, memory of a connection, and CPU a message, all of the server's process alone. Figures of plain and
TLS are taken in turns, so that a busy machine touches both; decisions: `python -m bench.authorization`.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from magnetar.common.security.certificates import Authority

from bench.connection import Connection
from bench.frames import FIRST_SEQUENCE_ID, SendTemplate, simple_frame
from bench.target import Target
from tests.integration.harness import StandaloneServer
from tools.free_ports import free_ports

HANDSHAKES: Final = 500
CONNECTIONS: Final = 200
ROUNDS: Final = 5
BURSTS: Final = 200
BURST: Final = 500
PAYLOADS: Final = (100, 1024)
TRAFFIC_BYTES: Final = 128 * 1024
SETTLE_S: Final = 1.0
_NO_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Secured:
    """A standalone with a plain and a TLS port."""

    target: Target
    tls_url: str
    context: ssl.SSLContext

    def connect(self, tls: bool) -> socket.socket:
        """A connection without a command, after its handshake."""
        url = (self.tls_url if tls else self.target.service_url).rpartition("://")[2]
        host, _, port = url.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=60)
        return self.context.wrap_socket(plain, server_hostname=host) if tls else plain

    def opened(self, tls: bool) -> Connection:
        """A connection that has sent its Connect."""
        if tls:
            return Connection(self.tls_url, self.context)
        return Connection(self.target.service_url)


@contextmanager
def serving(rsa_bits: int) -> Iterator[Secured]:
    """A standalone whose certificate has an RSA key of this size, or one on P-256 with 0."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        authority = Authority("bench", rsa_bits=rsa_bits)
        (directory / "ca.pem").write_bytes(authority.certificate)
        leaf = authority.issue("broker", dns=["localhost"], rsa_bits=rsa_bits)
        certificate, key = leaf.write(directory, "broker")
        (port,) = free_ports(1)
        server = StandaloneServer(
            directory,
            {
                "advertisedAddress": "localhost",
                "brokerServicePortTls": str(port),
                "tlsCertificateFilePath": str(certificate),
                "tlsKeyFilePath": str(key),
                "magnetarTlsHandshakesPerSecond": str(_NO_LIMIT),
            },
        )
        try:
            server.start()
            endpoint = server.endpoint
            yield Secured(
                Target(endpoint.service_url, endpoint.http_url, server.pid),
                f"pulsar+ssl://localhost:{port}",
                ssl.create_default_context(cafile=str(directory / "ca.pem")),
            )
        finally:
            server.kill()


def main() -> None:
    """Print a table of each kind of figure."""
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each load (default {ROUNDS})")
    rounds: int = parser.parse_args().rounds
    print("| connections, one after the other | ms of CPU each | a second |\n| --- | --- | --- |")
    for what, rsa_bits in (("P-256", 0), ("RSA-2048", 2048)):
        with serving(rsa_bits) as secured:
            plain, encrypted = in_turns(partial(handshakes, secured), rounds)
            if rsa_bits == 0:
                print(f"| plain | {plain[0]:.2f} | {plain[1]:,.0f} |")
            print(f"| TLS 1.3, {what} | {encrypted[0]:.2f} | {encrypted[1]:,.0f} |", flush=True)
    resident = []
    for tls in (False, True):  # each in a server of its own: memory that one gave back would serve the other
        with serving(0) as secured:
            resident.append(memory(secured, tls))
    with serving(0) as secured:
        print("\n| KiB of memory a connection | plain | TLS |\n| --- | --- | --- |")
        (idle, used), (idle_tls, used_tls) = resident
        print(f"| connected, idle | {idle:.0f} | {idle_tls:.0f} |")
        print(f"| after {TRAFFIC_BYTES >> 10} KiB came in | {used:.0f} | {used_tls:.0f} |", flush=True)
        print("\n| µs of CPU a message published | plain | TLS | more |\n| --- | --- | --- | --- |")
        for payload in PAYLOADS:
            (cpu, _), (cpu_tls, _) = in_turns(partial(publishing, secured, payload), rounds)
            print(f"| {payload} bytes | {cpu:.1f} | {cpu_tls:.1f} | {cpu_tls / cpu - 1:+.0%} |", flush=True)


Pair = tuple[float, float]


def in_turns(measure: Callable[[bool], Pair], rounds: int) -> tuple[Pair, Pair]:
    """The medians of both figures of `measure`, for plain and for TLS."""
    found: dict[bool, list[Pair]] = {False: [], True: []}
    for each in range(rounds):
        for tls in (False, True) if each % 2 == 0 else (True, False):
            found[tls].append(measure(tls))
    plain, encrypted = (
        (statistics.median(one for one, _ in pairs), statistics.median(two for _, two in pairs))
        for pairs in (found[False], found[True])
    )
    return plain, encrypted


def handshakes(secured: Secured, tls: bool) -> Pair:
    """Milliseconds of CPU of a connection that is opened and closed, and how many a second."""
    cpu, began = secured.target.cpu_seconds(), time.perf_counter()
    for _ in range(HANDSHAKES):
        secured.connect(tls).close()
    seconds = time.perf_counter() - began
    return (secured.target.cpu_seconds() - cpu) / HANDSHAKES * 1e3, HANDSHAKES / seconds


def memory(secured: Secured, tls: bool) -> Pair:
    """KiB that a connection takes after its Connect, and after traffic."""
    with ExitStack() as closing:
        before = _settled(secured)
        connections = [secured.opened(tls) for _ in range(CONNECTIONS)]
        for connection in connections:
            closing.callback(connection.close)
        idle = _settled(secured)
        pings = simple_frame("pong") * (TRAFFIC_BYTES // len(simple_frame("pong")))
        for connection in connections:
            connection.hand_over().sendall(pings)
        used = _settled(secured)
    return (idle - before) / CONNECTIONS / 1024, (used - before) / CONNECTIONS / 1024


def _settled(secured: Secured) -> int:
    time.sleep(SETTLE_S)
    return secured.target.rss_bytes()


def publishing(secured: Secured, payload_bytes: int, tls: bool) -> Pair:
    """Microseconds of CPU a message, published in bursts that are awaited; and messages a second."""
    connection = secured.opened(tls)
    template = SendTemplate(payload_bytes)
    try:
        connection.open_producer(f"persistent://public/default/bench-{time.time_ns()}")
        connection.send_and_await_receipts(template.burst(FIRST_SEQUENCE_ID, BURST), BURST)
        cpu, began = secured.target.cpu_seconds(), time.perf_counter()
        for number in range(1, BURSTS + 1):
            connection.send_and_await_receipts(
                template.burst(FIRST_SEQUENCE_ID + number * BURST, BURST), BURST
            )
        seconds = time.perf_counter() - began
        count = BURSTS * BURST
        return (secured.target.cpu_seconds() - cpu) / count * 1e6, count / seconds
    finally:
        connection.close()


if __name__ == "__main__":
    main()
