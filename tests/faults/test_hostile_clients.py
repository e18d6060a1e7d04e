"""Clients that stall, flood, send garbage or vanish: others are served, and memory stays within its budget.

Beside each of them a well-behaved producer and consumer work, whose receipts and deliveries are timed.
"""

from __future__ import annotations

import random
import resource
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.bystanders import bystanders
from tests.faults.conftest import NewServer
from tests.faults.observe import cpu_seconds, descriptors, metric, peak_resident_mib, resident_mib
from tests.faults.traffic import keep, read_topic
from tests.integration.harness import StandaloneServer, eventually
from tests.integration.raw.transcript import Line, line, payload_frame, simple_frame

pytestmark = [pytest.mark.alone, pytest.mark.full]

MIB = 1 << 20
KEEP_ALIVE_S = 2
BUDGET_MIB = 48
STALLED = 60
SETTINGS = {
    "keepAliveIntervalSeconds": str(KEEP_ALIVE_S),
    "magnetarMemoryBudgetMB": str(BUDGET_MIB),
    "maxMessagePublishBufferSizeInMB": "16",
    "magnetarPublishPendingBytesMaxPerConnection": str(4 * MIB),
    "magnetarLogPendingBytesMax": str(16 * MIB),
    "managedLedgerCacheSizeMB": "16",
}
GROWTH_MIB_MAX = 100
"""The budget, and as much again for sockets, objects and what malloc keeps."""


@pytest.fixture
def server(new_server: NewServer) -> StandaloneServer:
    server = new_server(SETTINGS)
    server.start()
    return server


def bare(server: StandaloneServer) -> socket.socket:
    """A TCP connection on which nothing was said."""
    return socket.create_connection((server.endpoint.host, server.endpoint.port), timeout=10)


def is_closed(one: socket.socket, seconds_max: float) -> bool:
    """Whether the server closes the connection within that time; what it still says is ignored."""
    one.settimeout(seconds_max)
    try:
        while one.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


class Flood:
    """The same bytes again and again, without ever reading."""

    def __init__(self, one: socket.socket, data: bytes) -> None:
        self.taken = 0
        self._socket = one
        self._data = memoryview(data * max(1, MIB // len(data)))
        self._at = 0
        one.setblocking(False)

    def push(self) -> bool:
        """Send what the socket takes now; False when that is nothing."""
        try:
            count = self._socket.send(self._data[self._at :])
        except BlockingIOError:
            return False
        self._at = (self._at + count) % len(self._data)
        self.taken += count
        return True


def flood(floods: list[Flood], bytes_max: int, seconds_max: float) -> float:
    """Push all of them until nothing was taken for two seconds; returns the MiB that were."""
    deadline = time.monotonic() + seconds_max
    moved = time.monotonic()
    while time.monotonic() < min(deadline, moved + 2) and sum(one.taken for one in floods) < bytes_max:
        pushed = [one.push() for one in floods]
        if any(pushed):
            moved = time.monotonic()
        else:
            time.sleep(0.002)
    return sum(one.taken for one in floods) / MIB


def test_a_producer_that_never_reads_its_receipts_is_held_back_and_costs_bounded_memory(
    server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    with bystanders(server.endpoint, topic), line(server.endpoint) as c:
        before = resident_mib(server)
        c.open_producer(topic)
        messages = b"".join(payload_frame(1, n, b"." * 20) for n in range(1_000))
        taken = flood([Flood(c.socket, messages)], 200 * MIB, 25)
        grown = peak_resident_mib(server) - before
        print(f"{taken:.0f} MiB taken without reading a receipt, {grown:.0f} MiB grown")
        cpu = cpu_seconds(server)
        time.sleep(1)
        print(f"held back: {cpu_seconds(server) - cpu:.0%} CPU")
    assert taken < 200, "it is never held back"
    assert grown < GROWTH_MIB_MAX


def test_producers_that_flood_together_stay_within_the_publish_budget(
    server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    with ExitStack() as stack:
        stack.enter_context(bystanders(server.endpoint, topic))
        before = resident_mib(server)
        floods = []
        for n in range(12):
            c = stack.enter_context(line(server.endpoint))
            c.open_producer(topic, producer_id=n)
            floods.append(Flood(c.socket, payload_frame(n, 0, b"." * MIB)))
        taken = flood(floods, 600 * MIB, 6)
        grown = peak_resident_mib(server) - before
        print(f"{taken:.0f} MiB of 1 MiB messages from 12 connections, {grown:.0f} MiB grown")
    assert grown < GROWTH_MIB_MAX


def test_consumers_that_never_read_cost_bounded_memory(server: StandaloneServer, topic: str) -> None:
    keep(server.endpoint, topic)
    with line(server.endpoint) as c:
        c.open_producer(topic)
        for _ in range(16):
            c.publish(*[bytes(100_000)] * 50)
    with ExitStack() as stack:
        stack.enter_context(bystanders(server.endpoint, topic))
        before = resident_mib(server)
        for n in range(STALLED):
            stalled = stack.enter_context(line(server.endpoint))
            stalled.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.subscribe(topic, f"stalled-{n}", subType="Shared")
            stalled.flow(1_000_000)
        cpu = cpu_seconds(server)
        time.sleep(3)
        busy = (cpu_seconds(server) - cpu) / 3
        grown = peak_resident_mib(server) - before
        print(f"{STALLED} consumers that read nothing of 76 MiB each: {grown:.0f} MiB grown, {busy:.0%} CPU")
    assert grown < GROWTH_MIB_MAX


def test_garbage_closes_its_connection_and_no_other(server: StandaloneServer, topic: str) -> None:
    randomness = random.Random(5)
    pieces = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">I", 0xFFFFFFFF) + bytes(100),
        struct.pack(">I", 0x7FFFFFFF) + bytes(100),
        struct.pack(">I", 0),
        struct.pack(">II", 8, 0xFFFFFFF0) + bytes(8),
        struct.pack(">II", 4, 0),
        struct.pack(">II", 104, 100) + b"\xff" * 100,
        simple_frame("connected", server_version="x"),
        *[randomness.randbytes(randomness.randrange(1, 5_000)) for _ in range(40)],
    ]
    with bystanders(server.endpoint, topic):
        before = descriptors(server)
        for connected in (False, True):
            for piece in pieces:
                with bare(server) as one:
                    if connected:
                        one.sendall(simple_frame("connect", client_version="raw", protocol_version=20))
                        assert one.recv(1 << 16)
                    one.sendall(piece)
                    one.shutdown(socket.SHUT_WR)
                    assert is_closed(one, 10), f"still open after {piece[:40]!r}"
        eventually(lambda: descriptors(server) <= before + 2, "their descriptors are closed")
    assert metric(server, "magnetar_protocol_errors_total") >= 10


def test_silence_and_half_frames_are_closed_by_the_keep_alive(server: StandaloneServer, topic: str) -> None:
    hello = simple_frame("connect", client_version="raw", protocol_version=20)
    with bystanders(server.endpoint, topic), ExitStack() as stack:
        started = time.monotonic()
        never_connected = [stack.enter_context(bare(server)) for _ in range(3)]
        never_connected[1].sendall(hello[:7])
        never_connected[2].sendall(simple_frame("connect", client_version="x" * 1000)[:500])
        half, quiet = stack.enter_context(bare(server)), stack.enter_context(bare(server))
        half.sendall(hello + payload_frame(1, 0, bytes(100_000))[:50_000])
        quiet.sendall(hello)
        for one in never_connected:
            assert is_closed(one, 2 * KEEP_ALIVE_S), "no Connect, and still open"
        print(f"without Connect closed after {time.monotonic() - started:.1f} s")
        for one in (half, quiet):
            assert is_closed(one, 3 * KEEP_ALIVE_S), "no answer to pings, and still open"
        print(f"without answers to pings closed after {time.monotonic() - started:.1f} s")


def test_a_frame_that_was_cut_off_leaves_nothing_on_the_topic(server: StandaloneServer, topic: str) -> None:
    keep(server.endpoint, topic)
    confirmed = {}
    with bystanders(server.endpoint, topic):
        for n in range(30):
            with line(server.endpoint) as c:
                c.open_producer(topic)
                confirmed[c.publish(b"whole %d" % n)[0]] = b"whole %d" % n
                frame = payload_frame(1, 1, b"cut off" + bytes(100_000))
                c.send_bytes(frame[: random.Random(n).randrange(1, len(frame))])
                if n % 2:
                    reset_on_close(c)
    assert read_topic(server.endpoint, topic) == confirmed


def reset_on_close(c: Line) -> None:
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_thousand_producers_of_a_client_that_vanishes_are_gone(
    server: StandaloneServer, topic: str
) -> None:
    with bystanders(server.endpoint, topic):
        before = resident_mib(server)
        for round_number in range(4):
            with line(server.endpoint) as c:
                c.send_bytes(
                    b"".join(
                        simple_frame("producer", topic=f"{topic}-{n % 100}", producer_id=n, request_id=n)
                        for n in range(1_000)
                    )
                )
                for _ in range(1_000):
                    assert c.receive().name == "producer_success"
                if round_number == 0:
                    assert metric(server, "pulsar_broker_producers_count") >= 1_000
                reset_on_close(c)
            eventually(lambda: metric(server, "pulsar_broker_producers_count") <= 1, "its producers are gone")
            if round_number == 0:
                first = resident_mib(server)
        last = resident_mib(server)
        print(
            f"1,000 producers on 100 topics: {first - before:.0f} MiB; after 4 rounds {last - before:.0f} MiB"
        )
    assert first - before < 40
    assert last - first < 10, "something of each round stays"


IDLE_KIB_MAX = 24.0
"""Memory of the server for one idle connection."""


def test_nine_thousand_idle_connections_are_served_and_cost_little(
    server: StandaloneServer, topic: str, cleanup: ExitStack
) -> None:
    count = 9_000
    _, descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors_max < count + 500:
        pytest.skip(f"needs {count} descriptors in a process, the system allows {descriptors_max}")
    with bystanders(server.endpoint, topic):
        before = resident_mib(server)
        command = [
            sys.executable,
            str(Path(__file__).with_name("crowd.py")),
            str(server.endpoint.port),
            str(count),
        ]
        crowd = cleanup.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        cleanup.callback(crowd.kill)
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == f"ready {count}\n"
        each = (resident_mib(server) - before) * 1024 / count
        cpu, started = cpu_seconds(server), time.monotonic()
        time.sleep(3 * KEEP_ALIVE_S)
        busy = (cpu_seconds(server) - cpu) / (time.monotonic() - started)
        open_now = metric(server, "pulsar_active_connections", metric="active_connections")
        print(
            f"{count} idle connections: {each:.1f} KiB each; pings every {KEEP_ALIVE_S} s and the bystanders "
            f"cost {busy:.0%} CPU"
        )
        assert crowd.poll() is None
        crowd.stdin.close()
        crowd.wait(20)
        eventually(lambda: descriptors(server) < 200, "their descriptors are closed", 30)
    assert open_now in (0, *range(count, count + 10)), "the metric counts them"
    assert each < IDLE_KIB_MAX
