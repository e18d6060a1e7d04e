"""Certificates in revocation lists, and the open connections of clients that showed one.

OpenSSL checks the lists in handshakes alone. Here they are read without a library, like validity times, and
compared by issuer and serial number, byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import socket
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeAlias

from magnetar.common.errors import ConfigError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.security.audit import audit_process
from magnetar.common.security.tls.certificate_times import element_at, inner_fields
from prometheus_client import Counter

_log = get_logger(__name__)

_BEGIN: Final = "-----BEGIN X509 CRL-----"
_END: Final = "-----END X509 CRL-----"
_INTEGER: Final = 0x02
_SEQUENCE: Final = 0x30
_TIMES: Final = (0x17, 0x18)

CertificateId: TypeAlias = tuple[bytes, bytes]
"""Issuer as DER, and the serial number's bytes."""

CLOSED: Final = Counter(
    "magnetar_tls_revoked_connections_closed",
    "Open connections that were closed because their client's certificate was revoked.",
    registry=REGISTRY,
)


def certificate_id(der: bytes) -> CertificateId:
    """Return issuer and serial number of a certificate. Raises ValueError."""
    serial, _algorithm, issuer = inner_fields(der)[:3]
    return issuer, serial


def read_revoked(path: str) -> frozenset[CertificateId]:
    """Return the certificates in all lists of a PEM file. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        return frozenset().union(*(_revoked(der) for der in _lists(text)))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, IndexError, binascii.Error) as error:
        raise ConfigError(f"{path}: no PEM file with revocation lists: {error}") from error


def _lists(text: str) -> list[bytes]:
    found = []
    for piece in text.split(_BEGIN)[1:]:
        body, end, _ = piece.partition(_END)
        if not end:
            raise ValueError("it breaks off within a list")
        found.append(base64.b64decode("".join(body.split()), validate=True))
    return found


def _revoked(der: bytes) -> set[CertificateId]:
    """The entries of one CertificateList (RFC 5280, 5.1)."""
    signed = element_at(element_at(der, 0).content, 0).content
    position = 0
    if signed[0] == _INTEGER:  # the version, which lists without extensions do not have
        position = element_at(signed, position).end
    position = element_at(signed, position).end  # signature algorithm
    issuer = element_at(signed, position)
    position = issuer.end
    while position < len(signed) and signed[position] in _TIMES:
        position = element_at(signed, position).end
    if position >= len(signed) or signed[position] != _SEQUENCE:
        return set()  # nothing is revoked
    entries, at, found = element_at(signed, position).content, 0, set()
    while at < len(entries):
        entry = element_at(entries, at)
        found.add((issuer.whole, element_at(entry.content, 0).content))
        at = entry.end
    return found


class CertifiedConnections:
    """Open TLS connections whose client showed a certificate, with that certificate's id."""

    def __init__(self) -> None:
        self._ids: weakref.WeakKeyDictionary[socket.socket, CertificateId] = weakref.WeakKeyDictionary()
        self._revoked: Collection[CertificateId] = frozenset()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, sock: socket.socket, certificate: bytes) -> None:
        """Watch a connection until its socket is gone; ends it when its certificate is revoked already."""
        self._ids[sock] = certificate_id(certificate)
        if self._ids[sock] in self._revoked:  # in a list that came during the handshake
            self._close([sock])

    def revoke(self, revoked: Collection[CertificateId]) -> None:
        """Take over the ids of all lists, and end connections with a certificate in them."""
        self._revoked = revoked
        self._close([sock for sock, found in list(self._ids.items()) if found in revoked])

    def _close(self, socks: list[socket.socket]) -> None:
        ended = 0
        for sock in socks:
            self._ids.pop(sock, None)
            try:
                # The transport sees the end of the stream, and closes the connection as if the client had.
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself
            ended += 1
        if ended:
            CLOSED.inc(ended)
            _log.warning("connections with revoked certificates closed", connections=ended)
            audit_process("certificate revoked", outcome="connections closed", connections=ended)
