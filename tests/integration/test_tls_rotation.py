"""Certificates and authorities are replaced on disk while clients publish, consume and connect."""

from __future__ import annotations

import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from magnetar.common.security.certificates import Authority

from bench.frames import simple_frame
from tests.integration.harness import eventually, external_endpoint
from tests.integration.test_tls import Certificates, TlsServer

LOOK_EVERY_S = 1
LINES = 2
RECEIVE_MS = 20_000
PAUSE_S = 0.005


class Line:
    """A publisher and a consumer with a client of their own, in threads, until `end`."""

    def __init__(self, server: TlsServer, topic: str) -> None:
        self._client = server.client("me")
        self._consumer = self._client.subscribe(topic, "s")
        self._producer = self._client.create_producer(topic, send_timeout_millis=10_000)
        self._ended = threading.Event()
        self.sent = 0
        self.received = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=each) for each in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                self._producer.send(b"%d" % self.sent)
            except pulsar.PulsarException as error:
                self.failures.append(f"message {self.sent}: {error}")
                return
            self.sent += 1
        self._producer.send(b"last")

    def _consume(self) -> None:
        try:
            while (data := self._receive()) != b"last":
                if data != b"%d" % self.received:
                    self.failures.append(f"{data!r} came, expected {self.received}")
                    return
                self.received += 1
        except pulsar.PulsarException as error:
            self.failures.append(f"receiving {self.received}: {error}")

    def _receive(self) -> bytes:
        message = self._consumer.receive(RECEIVE_MS)
        self._consumer.acknowledge(message)
        data: bytes = message.data()
        return data

    def end(self) -> None:
        """Stop both threads and close the client."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


class RawLine:
    """One connection of frames, which a client library would open again unseen."""

    def __init__(self, server: TlsServer) -> None:
        self._socket: ssl.SSLSocket = server.connect("me")
        self._asked(simple_frame("connect", client_version="raw", protocol_version=21))

    def ping(self) -> None:
        """Fails unless the connection that was opened first answers."""
        self._asked(simple_frame("ping"))

    def _asked(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        assert self._socket.recv(4096), "the connection was closed"

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    if external_endpoint() is not None or shutil.which("curl") is None:
        pytest.skip("needs a server of its own, whose certificates are made here, and curl")
    files = tmp_path / "certificates"
    files.mkdir()
    server = TlsServer(
        tmp_path,
        Certificates(files),
        tlsCertRefreshCheckDurationSec=str(LOOK_EVERY_S),
        tlsRequireTrustedClientCertOnConnect="true",
    )
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()


def clients_trust(server: TlsServer, *authorities: Authority) -> None:
    bundle = b"".join(each.certificate for each in authorities)
    (server.certificates.directory / "ca.pem").write_bytes(bundle)


def shown(server: TlsServer, name: str) -> str:
    """The serial number that a new connection with this client certificate sees."""
    with server.connect(name) as connection:
        return str((connection.getpeercert() or {})["serialNumber"])


@pytest.mark.full
def test_a_certificate_then_the_authority_change_while_clients_work(server: TlsServer) -> None:
    certificates = server.certificates
    old, new = certificates.authority, Authority("clients of tomorrow")
    certificates.put("tomorrow", new.issue("me"))
    lines = [Line(server, f"rotated-{number}") for number in range(LINES)]
    ended = False

    def all_work(raw: RawLine) -> None:
        before = [line.received for line in lines]
        eventually(
            lambda: all(line.received > count + 50 for line, count in zip(lines, before, strict=True)),
            "messages go on",
        )
        assert [line.failures for line in lines] == [[]] * LINES
        raw.ping()

    def changed(before: str, name: str) -> None:
        # Each look is a new connection, and not one of them may fail.
        eventually(lambda: shown(server, name) != before, "new connections get the new certificate")

    try:
        with closing(RawLine(server)) as raw:
            first = shown(server, "me")
            certificates.serve(old)
            changed(first, "me")
            all_work(raw)

            clients_trust(server, old, new)
            loaded = server.reloads("ok")
            certificates.trust(old, new)
            eventually(lambda: server.reloads("ok") > loaded, "both authorities are trusted")
            second = shown(server, "me")
            assert shown(server, "tomorrow") == second
            certificates.serve(new)
            changed(second, "tomorrow")
            shown(server, "me")
            all_work(raw)

            loaded = server.reloads("ok")
            certificates.trust(new)
            clients_trust(server, new)
            eventually(lambda: server.reloads("ok") > loaded, "the former authority is gone")
            assert server.curl("/admin/v2/clusters", "tomorrow").returncode == 0
            assert server.curl("/admin/v2/clusters", "me").returncode != 0
            all_work(raw)
            for line in lines:
                line.end()
            ended = True
            assert [line.failures for line in lines] == [[]] * LINES
            assert [line.received for line in lines] == [line.sent for line in lines]
            assert server.reloads("failed") == 0, "a pair that was being written was taken for a broken one"
    finally:
        if not ended:
            for line in lines:
                line.end()
