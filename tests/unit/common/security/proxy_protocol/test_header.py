"""Headers of the PROXY protocol: both versions, in pieces, and what is none."""

from __future__ import annotations

import random
import socket
import struct
from ipaddress import ip_address

import pytest
from magnetar.common.security.proxy_protocol.header import (
    HEADER_BYTES_MAX,
    BadHeader,
    Client,
    HeaderReader,
)

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(body: bytes, *, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", len(body)) + body


def v4_body(host: str, port: int, extensions: bytes = b"") -> bytes:
    return socket.inet_aton(host) + socket.inet_aton("10.0.0.1") + struct.pack("!HH", port, 6650) + extensions


def v6_body(host: str, port: int) -> bytes:
    return ip_address(host).packed + ip_address("::1").packed + struct.pack("!HH", port, 6650)


HEADERS = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 6650\r\n", Client("192.0.2.7", 51_000)),
    (b"PROXY TCP6 2001:db8::7 ::1 51000 6650\r\n", Client("2001:db8::7", 51_000)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (v2(v4_body("192.0.2.7", 51_000)), Client("192.0.2.7", 51_000)),
    (v2(v4_body("192.0.2.7", 51_000, b"\x04\x00\x02ab" * 100)), Client("192.0.2.7", 51_000)),
    (v2(v6_body("2001:db8::7", 51_000), family=0x21), Client("2001:db8::7", 51_000)),
    (v2(b"", command=0x20, family=0x00), None),
    (v2(b"x" * 216, family=0x31), None),
]


@pytest.mark.parametrize(("header", "client"), HEADERS)
def test_headers_give_the_client_and_leave_what_follows(header: bytes, client: Client | None) -> None:
    for following in (b"", b"\x16\x03\x01", b"PROXY ", b"\r\n"):
        reader = HeaderReader()
        assert reader.consume(header + following) == len(header)
        assert reader.is_complete
        assert reader.client == client


@pytest.mark.parametrize(("header", "client"), HEADERS)
def test_pieces_of_any_size_make_the_same_header(header: bytes, client: Client | None) -> None:
    rng = random.Random(7)
    for _ in range(50):
        reader, rest = HeaderReader(), header + b"rest"
        while not reader.is_complete:
            piece = rest[: rng.randint(1, 9)]
            rest = rest[reader.consume(piece) :]
        assert (reader.client, rest) == (client, b"rest")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n",
        b"\x00\x00\x00\x19",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.700 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 2\r\n",
        b"PROXY \r\n",
        b"PROXY " + b"x" * 200,
        v2(v4_body("192.0.2.7", 1), command=0x11),
        v2(v4_body("192.0.2.7", 1), command=0x22),
        v2(b"\x00" * 11),
        v2(b"\x00" * 35, family=0x21),
        v2(b"\x00" * HEADER_BYTES_MAX),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        HeaderReader().consume(data)


def test_a_length_that_is_too_long_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(BadHeader, match="at most 4096"):
        HeaderReader().consume(v2(b"\x00" * HEADER_BYTES_MAX)[:16])


@pytest.mark.parametrize("seed", range(200))
def test_random_bytes_raise_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    begin = rng.choice([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"])
    reader, size = HeaderReader(), 0
    try:
        while not reader.is_complete and size < 2 * HEADER_BYTES_MAX:
            data = begin + rng.randbytes(rng.randint(1, 64))
            assert 0 < reader.consume(data) <= len(data)
            begin, size = b"", size + len(data)
    except BadHeader:
        return
    assert reader.is_complete or begin == b""
