"""Brokers with a plain and a TLS port, on certificates made for them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from magnetar.common.security.certificates import Authority
from magnetar.testing.free_ports import free_ports

from bench.brokers import APACHE_PULSAR, MAGNETAR, ApachePulsar, Broker, Magnetar, first_acknowledgement
from bench.connection import ANSWER_SECONDS_MAX
from bench.target import Target
from tests.integration.harness import temporary_directory

HOST: Final = "127.0.0.1"
_NO_LIMIT: Final = "1000000"

RSA_BITS: Final = {"P-256": 0, "RSA-2048": 2048}
"""Kinds of certificates: bits of an RSA key, or 0 for one on P-256."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running broker, reached in both ways."""

    name: str
    plain: Target
    tls: Target

    def target(self, tls: bool) -> Target:
        return self.tls if tls else self.plain

    def socket(self, context: ssl.SSLContext | None) -> socket.socket:
        """A connection without a command, after its handshake when there is a context."""
        port = int(self.target(context is not None).service_url.rpartition(":")[2])
        plain = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS_MAX)
        return plain if context is None else context.wrap_socket(plain, server_hostname=HOST)

    def context(self) -> ssl.SSLContext:
        """A new context of a client, which checks the certificate."""
        return ssl.create_default_context(cafile=self.tls.trust_certs)


def column(name: str, tls: bool) -> str:
    """The name under which figures of a broker are kept, with TLS or without."""
    return f"{name} TLS" if tls else name


@contextlib.contextmanager
def serving(name: str, jars: Path | None, certificate: str = "P-256") -> Iterator[Service]:
    """The broker of that name, started; `jars` are Apache Pulsar's, `certificate` a kind of RSA_BITS."""
    directory = temporary_directory()
    try:
        authority = Authority("bench", rsa_bits=RSA_BITS[certificate])
        (directory / "ca.pem").write_bytes(authority.certificate)
        leaf = authority.issue("broker", ips=[HOST], rsa_bits=RSA_BITS[certificate])
        chain, key = leaf.write(directory, "broker")
        (port,) = free_ports(1)
        settings = {
            "brokerServicePortTls": str(port),
            "tlsCertificateFilePath": str(chain),
            "tlsKeyFilePath": str(key),
        }
        broker: Broker
        if name == MAGNETAR:
            broker = Magnetar({**settings, "magnetarTlsHandshakesPerSecond": _NO_LIMIT})
        else:
            assert name == APACHE_PULSAR, name
            assert jars is not None
            broker = ApachePulsar(jars, settings)
        try:
            first_acknowledgement(broker)
            plain = broker.target
            tls = replace(
                plain, service_url=f"pulsar+ssl://{HOST}:{port}", trust_certs=str(directory / "ca.pem")
            )
            yield Service(name, plain, tls)
        finally:
            broker.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
