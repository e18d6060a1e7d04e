"""Request ids, which connect the log lines of every process involved in a request.

The receiver of a request generates an id or keeps the request's own. While the request is served every log
line carries `request_id`, and every outgoing call passes it on:

    HTTP                  the header X-Request-ID, of requests and of answers
    gRPC                  the call metadata x-request-id, between brokers and to bookies
    Pulsar's protocol     `client address#request id`, with the request id of the client's command

A task started by a request can outlive it, such as the tasks of a loaded topic. Its later lines concern the
topic, so they carry no id once the request has been served.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

HEADER: Final = "X-Request-ID"
METADATA_KEY: Final = "x-request-id"

CHARS_MAX: Final = 128
"""Maximum length of a client's id in characters; a longer one is replaced."""

_GOOD: Final = re.compile(rf"[A-Za-z0-9._:#/\[\]@=+-]{{1,{CHARS_MAX}}}", re.ASCII)
"""Characters that are safe in a log line, a header and a query."""


class _Request:
    __slots__ = ("id", "served")

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.served = True


_CURRENT: Final[ContextVar[_Request | None]] = ContextVar("request", default=None)


def current() -> str | None:
    """Returns the id of the request being served; None outside of a request."""
    request = _CURRENT.get()
    return request.id if request is not None and request.served else None


@contextmanager
def serving(request_id: str) -> Iterator[None]:
    """Binds the request to the context. Must be entered and left in the same task."""
    request = _Request(request_id)
    token = _CURRENT.set(request)
    try:
        yield
    finally:
        request.served = False
        _CURRENT.reset(token)


def make() -> str:
    """Returns a unique id: 16 hexadecimal digits."""
    return f"{random.getrandbits(64):016x}"


def of_command(address: str, number: int | None) -> str:
    """Returns the id of a command of Pulsar's protocol: client address and the command's request id,
    if any.
    """
    return f"{address}#{'-' if number is None else number}"


def accepted(given: str | bytes | None) -> str | None:
    """Returns the request's id if valid; None otherwise."""
    text = given.decode("latin-1") if isinstance(given, bytes) else given
    return text if text is not None and _GOOD.fullmatch(text) else None


def accepted_or_made(given: str | None) -> str:
    """Returns the request's id if valid; otherwise a generated one."""
    return accepted(given) or make()


def call_metadata() -> tuple[tuple[str, str], ...]:
    """Returns gRPC call metadata with the current request's id; empty outside of a request."""
    request_id = current()
    return () if request_id is None else ((METADATA_KEY, request_id),)


@contextmanager
def serving_call(metadata: Iterable[tuple[str, str | bytes]] | None) -> Iterator[None]:
    """Binds the id in a gRPC call's metadata, as `serving`; generates none if absent."""
    request_id = None
    for key, value in metadata or ():
        if key == METADATA_KEY:
            request_id = accepted(value)
    if request_id is None:
        yield
        return
    with serving(request_id):
        yield
