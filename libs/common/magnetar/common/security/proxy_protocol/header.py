"""Parses headers of the PROXY protocol, versions 1 and 2
(https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt). Does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

HEADER_BYTES_MAX: Final = 4_096
"""Longest accepted header; version 2 allows 64 KiB of extensions, which are skipped."""

_V1_BYTES_MAX: Final = 107
_V1_BEGIN: Final = b"PROXY "
_V1_END: Final = b"\r\n"
_V2_BEGIN: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_FIXED: Final = 16
_V2_VERSION: Final = 0x2
_LOCAL, _PROXY = 0x0, 0x1
_STREAM_V4, _STREAM_V6 = 0x11, 0x21


class BadHeader(ValueError):
    """The connection does not begin with a valid header."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client's address, as the load balancer saw it."""

    host: str
    port: int


class HeaderReader:
    """Reads one header, in pieces of any size."""

    def __init__(self) -> None:
        self._read = b""
        self.is_complete = False
        self.client: Client | None = None
        """The client once complete; None for the load balancer's own connection, such as a health check."""

    def consume(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to the header. Raises BadHeader once it cannot be one."""
        joined = self._read + data
        end = _end_of(joined)
        if end is None:
            self._read = joined
            return len(data)
        self.client = _client_of(joined[:end])
        self.is_complete = True
        return end - len(self._read)


def _end_of(data: bytes) -> int | None:
    """The length of the header at the begin of `data`; None while it is not known to be there."""
    if data.startswith(_V2_BEGIN):
        if len(data) < _V2_FIXED:
            return None
        end = _V2_FIXED + int.from_bytes(data[14:16], "big")
        if end > HEADER_BYTES_MAX:
            raise BadHeader(f"a header of {end} bytes; at most {HEADER_BYTES_MAX} are accepted")
        return end if len(data) >= end else None
    if data.startswith(_V1_BEGIN):
        found = data.find(_V1_END, 0, _V1_BYTES_MAX)
        if found < 0 and len(data) >= _V1_BYTES_MAX:
            raise BadHeader(f"a header of version 1 without its end in {_V1_BYTES_MAX} bytes")
        return None if found < 0 else found + len(_V1_END)
    if _V1_BEGIN.startswith(data) or _V2_BEGIN.startswith(data):
        return None
    raise BadHeader("no PROXY header")


def _client_of(header: bytes) -> Client | None:
    return _v2_client(header) if header.startswith(_V2_BEGIN) else _v1_client(header)


def _v1_client(header: bytes) -> Client | None:
    parts = header.removesuffix(_V1_END).decode("latin-1").split(" ")
    if parts[1] == "UNKNOWN":
        return None
    if parts[1] not in ("TCP4", "TCP6") or len(parts) != 6:
        raise BadHeader("a header of version 1 for another protocol than TCP, or of another form")
    kind = IPv4Address if parts[1] == "TCP4" else IPv6Address
    try:
        hosts = [ip_address(text) for text in parts[2:4]]
    except ValueError as error:
        raise BadHeader(f"a header of version 1 with an invalid address: {error}") from error
    if not all(isinstance(host, kind) for host in hosts):
        raise BadHeader(f"a header of version 1 with {parts[1]} and another kind of address")
    ports = [_port(text) for text in parts[4:6]]
    return Client(str(hosts[0]), ports[0])


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) < 65_536):
        raise BadHeader("a header of version 1 with an invalid port")
    return int(text)


def _v2_client(header: bytes) -> Client | None:
    version, command = header[12] >> 4, header[12] & 0x0F
    if version != _V2_VERSION or command not in (_LOCAL, _PROXY):
        raise BadHeader(f"a header with version and command 0x{header[12]:02x}")
    if command == _LOCAL:
        return None
    family, body = header[13], header[_V2_FIXED:]
    if family == _STREAM_V4 and len(body) >= 12:
        return Client(str(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"))
    if family == _STREAM_V6 and len(body) >= 36:
        return Client(str(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"))
    if family in (_STREAM_V4, _STREAM_V6):
        raise BadHeader("a header of version 2 that is too short for its addresses")
    return None  # unspecified, datagrams or Unix sockets: the spec says to use the connection's own address
