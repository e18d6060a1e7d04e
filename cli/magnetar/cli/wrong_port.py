"""Errors of HTTP requests to a port that speaks another protocol."""

from __future__ import annotations

from http.client import HTTPException, RemoteDisconnected
from typing import Final

_NOT_HTTP: Final = "that port does not speak HTTP: use the HTTP port of a broker or discovery, usually 8080"
_SILENT: Final = (
    "the server closed the connection without an answer: is this the HTTP port of a broker or discovery, "
    "usually 8080?"
)


def http_problem(error: BaseException) -> str:
    """Return why a response is not one of HTTP, in words instead of its bytes; empty for other errors."""
    if isinstance(error, RemoteDisconnected):
        return _SILENT
    return _NOT_HTTP if isinstance(error, HTTPException) else ""
