"""Finds out which protocol a server at a port of this host speaks, for `magnetar doctor --port`."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final

from magnetar.common.errors import ProtocolError
from magnetar.common.wire.frame import FrameDecoder, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect

ANSWER_S: Final = 2.0
"""Time in seconds that a server may take for each answer."""

HOST: Final = "127.0.0.1"
_BYTES_MAX: Final = 4_096
_HTTP: Final = f"GET /livez HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
_GRPC: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""HTTP/2's preface with empty settings."""
_SETTINGS: Final = 4
"""Type of HTTP/2's first frame, in its fourth byte."""


def served_protocol(port: int) -> str:
    """Return what the server at a port speaks, in words; empty if it is no server of Magnetar's or Pulsar's.

    Takes no longer than six times `ANSWER_S`.
    """
    with_tls = _speaks_tls(port)
    suffix = " over TLS" if with_tls else ""
    if _is_pulsar(_answer(port, _pulsar_connect(), with_tls=with_tls)):
        return f"Pulsar's protocol{suffix}"
    page = _answer(port, _HTTP, with_tls=with_tls)
    if page.startswith(b"HTTP/1.1 200 ") and page.endswith(b"\r\n\r\nok\n"):
        return f"HTTP of Magnetar{suffix}"
    first = _answer(port, _GRPC, with_tls=with_tls, protocol="h2")
    if len(first) >= 9 and first[3] == _SETTINGS:
        return f"gRPC{suffix}, as bookies and control ports do"
    return ""


def _pulsar_connect() -> bytes:
    connect = CommandConnect(client_version="magnetar-doctor", protocol_version=20)
    return encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))


def _is_pulsar(answer: bytes) -> bool:
    """Return whether a broker accepted or refused the connection."""
    try:
        frames = FrameDecoder().receive_data(answer)
    except ProtocolError:
        return False
    accepted = (BaseCommand.CONNECTED, BaseCommand.ERROR, BaseCommand.AUTH_CHALLENGE)
    return bool(frames) and frames[0].command.type in accepted


def _speaks_tls(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_S) as connection:
            _any_certificate().wrap_socket(connection).close()
    except ssl.SSLError as error:
        # Only a server that speaks TLS asks for a certificate, or refuses a handshake by an alert.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _answer(port: int, request: bytes, *, with_tls: bool, protocol: str = "") -> bytes:
    """Return the first bytes that a server answers; empty for none."""
    found = b""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=ANSWER_S) as plain:
        connection = plain
        if with_tls:
            context = _any_certificate()
            if protocol:
                context.set_alpn_protocols([protocol])
            connection = context.wrap_socket(plain)
        with connection:
            connection.sendall(request)
            while len(found) < _BYTES_MAX and (data := connection.recv(_BYTES_MAX)):
                found += data
                if request is not _HTTP:
                    break
    return found


def _any_certificate() -> ssl.SSLContext:
    """Nothing secret is sent to it, and its certificate names its host, not this address."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
