"""Connections that say nothing, or the wrong thing: others are served meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pulsar
import pytest

from bench.frames import simple_frame
from tests.security.conftest import Secured, token
from tests.security.test_acceptance import exchange

pytestmark = pytest.mark.full


def test_connections_that_never_authenticate_leave_others_served(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    port = urlsplit(secured.server.endpoint.service_url).port
    with ExitStack() as silent:
        for _ in range(40):
            silent.enter_context(closing(socket.create_connection(("127.0.0.1", port), 5)))
        exchange(connect(pulsar.AuthenticationToken(token("bob"))), "persistent://b/n/beside-silent-ones")


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\0\0\0\x04abcd", b"\x16\x03\x01\0\x05hello"]
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain port", "TLS port"])
def test_garbage_before_authentication_closes_the_connection(
    secured: Secured, connect: Callable[..., pulsar.Client], first: bytes, tls: bool
) -> None:
    port = urlsplit(secured.tls_url if tls else secured.server.endpoint.service_url).port
    with closing(socket.create_connection(("127.0.0.1", port), 20)) as connection:
        connection.sendall(first)
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass  # Closed too, before what was sent had been read.
    exchange(
        connect(pulsar.AuthenticationToken(token("bob")), tls=tls), f"persistent://b/n/after-garbage-{tls}"
    )


def test_a_token_beyond_16_kib_is_refused_at_once(secured: Secured) -> None:
    port = urlsplit(secured.server.endpoint.service_url).port
    frame = simple_frame(
        "connect", client_version="t", protocol_version=20, auth_method_name="token", auth_data=b"x" * 20_000
    )
    with closing(socket.create_connection(("127.0.0.1", port), 5)) as connection:
        connection.sendall(frame)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert b"Failed to authenticate" in answer
