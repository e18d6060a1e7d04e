"""Validity of certificates, read from their DER without a library: every process with TLS watches it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def certificates_in(path: Path) -> list[bytes]:
    """The certificates of a PEM file as DER. Raises OSError, or ValueError for damaged ones."""
    text = path.read_text(encoding="ascii", errors="replace")
    found = []
    for piece in text.split(_BEGIN)[1:]:
        body, end, _ = piece.partition(_END)
        if not end:
            raise ValueError(f"{path} breaks off within a certificate")
        found.append(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}"))
    return found


def not_after(der: bytes) -> float:
    """The end of a certificate's validity in seconds since the epoch. Raises ValueError."""
    try:
        certificate = _content(der, 0)[0]
        inner, position = _content(certificate, 0)[0], 0
        if inner[0] == _VERSION:
            position = _content(inner, 0)[1]
        for _ in range(3):  # serial number, signature algorithm, issuer
            position = _content(inner, position)[1]
        validity = _content(inner, position)[0]
        position = _content(validity, 0)[1]
        return _time(validity[position], _content(validity, position)[0])
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("this is no X.509 certificate") from error


def _content(data: bytes, position: int) -> tuple[bytes, int]:
    """The content of the DER element at `position`, and where the next one begins."""
    length, position = data[position + 1], position + 2
    if length & 0x80:
        digits = length & 0x7F
        length, position = int.from_bytes(data[position : position + digits], "big"), position + digits
    if position + length > len(data):
        raise IndexError("it breaks off")
    return data[position : position + length], position + length


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
