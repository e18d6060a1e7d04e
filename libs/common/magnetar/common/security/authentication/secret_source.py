"""Keys and password files as settings name them: a file, a `data:` URL or base64 text; files are watched."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from magnetar.common.runtime.file_signature import Signature, signature_of

BYTES_MAX: Final = 16 << 20
"""Longest file that is read."""

_DATA: Final = "data:"
_BASE64: Final = ";base64"


class SecretSource:
    """The bytes that a setting names. Errors name the setting and never its value."""

    def __init__(self, key: str, text: str) -> None:
        self._key = key
        self._text = text.strip()
        self.path = _path(self._text)
        """The file that holds the bytes; None when the setting itself holds them."""
        self._seen: Signature = ()

    def read(self) -> bytes:
        """Return the bytes unchanged. Raises ValueError that says what is wrong with which setting."""
        if self.path is not None:
            return self._read_file(self.path)
        try:
            if self._text.startswith(_DATA):
                head, separator, body = self._text[len(_DATA) :].partition(",")
                if not separator:
                    raise ValueError("no comma")
                raw = unquote_to_bytes(body)
                return _decoded(raw) if head.endswith(_BASE64) else raw
            return _decoded(self._text.encode())
        except ValueError:
            raise ValueError(
                f"{self._key} is neither file:PATH, data:;base64,TEXT, the path of a file nor base64"
            ) from None

    def has_changed(self) -> bool:
        """Return whether the file is another one than `read` saw; False for what is no file or cannot be
        looked at.
        """
        if self.path is None:
            return False
        found = signature_of([self.path])
        return found != (None,) and found != self._seen

    def _read_file(self, path: Path) -> bytes:
        try:
            # Noted before reading: a change in between is read at the next look.
            self._seen = signature_of([path])
            with path.open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except OSError as error:
            raise ValueError(f"{self._key}: cannot read {path}: {error.strerror}") from error
        if len(content) > BYTES_MAX:
            raise ValueError(f"{self._key}: {path} has more than {BYTES_MAX} bytes")
        return content


def _path(text: str) -> Path | None:
    if text.startswith("file:"):
        rest = text.removeprefix("file:")
        return Path("/" + rest.lstrip("/")) if rest.startswith("//") else Path(rest)
    if text.startswith(_DATA) or not text:
        return None
    try:
        return Path(text) if os.path.exists(text) else None
    except ValueError:
        return None


def _decoded(text: bytes) -> bytes:
    """Decode base64 in either alphabet, with or without padding. Raises ValueError."""
    compact = b"".join(text.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    try:
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("invalid base64") from error
