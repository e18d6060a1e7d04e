"""Fields of certificates, read from their DER without a library: every process with TLS watches validity."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

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
        validity = element_at(inner_fields(der)[3], 0).content
        second = element_at(validity, element_at(validity, 0).end)
        return _time(second.whole[0], second.content)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("this is no X.509 certificate") from error


def inner_fields(der: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return a certificate's serial number (its bytes), and as DER its signature algorithm, issuer and
    validity. Raises ValueError.
    """
    try:
        inner, position = element_at(element_at(der, 0).content, 0).content, 0
        if inner[0] == _VERSION:
            position = element_at(inner, 0).end
        serial = element_at(inner, position)
        algorithm = element_at(inner, serial.end)
        issuer = element_at(inner, algorithm.end)
        validity = element_at(inner, issuer.end)
    except IndexError as error:
        raise ValueError("this is no X.509 certificate") from error
    return serial.content, algorithm.whole, issuer.whole, validity.whole


class Element(NamedTuple):
    """A DER element."""

    whole: bytes
    content: bytes
    end: int
    """Where the next one begins."""


def element_at(data: bytes, position: int) -> Element:
    """Return the DER element at `position`. Raises IndexError when it breaks off."""
    begin, length, position = position, data[position + 1], position + 2
    if length & 0x80:
        digits = length & 0x7F
        length, position = int.from_bytes(data[position : position + digits], "big"), position + digits
    end = position + length
    if end > len(data):
        raise IndexError("it breaks off")
    return Element(data[begin:end], data[position:end], end)


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
