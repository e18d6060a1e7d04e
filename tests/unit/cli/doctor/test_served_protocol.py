"""The findings of `magnetar doctor --port` about a server: of Magnetar, of something else, or mute."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from magnetar.cli.doctor import served_protocol as module
from magnetar.cli.doctor.served_protocol import served_protocol

from tests.unit.cli.client.broker_stub import broker_stub

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)


@contextmanager
def server(answers: dict[bytes, bytes]) -> Iterator[int]:
    """A server that answers requests by their first bytes; it closes after an answer, and is mute without."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
                open_ones.append(one)
                begin = one.recv(4_096)
                for start, answer in answers.items():
                    if begin.startswith(start):
                        one.sendall(answer)
                        one.close()
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for one in open_ones:
            one.close()


def test_a_broker_is_recognized() -> None:
    with broker_stub() as url:
        assert served_protocol(int(url.rpartition(":")[2])) == "Pulsar's protocol"


@pytest.mark.parametrize(
    ("answers", "protocol"),
    [
        ({b"GET /livez": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"}, "HTTP of Magnetar"),
        ({b"GET": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"}, ""),
        ({b"PRI ": SETTINGS}, "gRPC, as bookies and control ports do"),
        ({b"": b"220 mail.example.org ESMTP\r\n"}, ""),
        ({}, ""),
    ],
    ids=["http", "other http", "grpc", "mail", "mute"],
)
def test_other_servers(answers: dict[bytes, bytes], protocol: str) -> None:
    with server(answers) as port:
        assert served_protocol(port) == protocol
