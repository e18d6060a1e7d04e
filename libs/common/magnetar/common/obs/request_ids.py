"""Which request a line of the log belongs to, in every process that the request made work.

Whoever takes a request gives it an id, or keeps the one that it came with; while it is served every line that
is logged carries `request_id`, and every call that is made for it takes the id along:

    HTTP                  the header X-Request-ID, of requests and of answers
    gRPC                  the call metadata x-request-id, between brokers and to bookies
    Pulsar's protocol     `client address#request id`, as the client counts its requests

A task that was begun for a request may outlive it, as the tasks of a topic do that a client had loaded. Their
lines are about the topic then: an id is told only for as long as its request is served.
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
"""Longest accepted id from a client; a longer one is replaced."""

_GOOD: Final = re.compile(rf"[A-Za-z0-9._:#/\[\]@=+-]{{1,{CHARS_MAX}}}", re.ASCII)
"""Characters that are safe in a log line, a header and a query."""


class _Request:
    __slots__ = ("id", "served")

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.served = True


_CURRENT: Final[ContextVar[_Request | None]] = ContextVar("request", default=None)


def current() -> str | None:
    """The id of the request that is served here now; None where there is none."""
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
    """An id that no other request has: 16 hexadecimal digits."""
    return f"{random.getrandbits(64):016x}"


def of_command(address: str, number: int | None) -> str:
    """The id of a command of Pulsar's protocol: who sent it, and how that client counts it, if it does."""
    return f"{address}#{'-' if number is None else number}"


def accepted(given: str | bytes | None) -> str | None:
    """The id that a request came with, if it is one; None where it is none."""
    text = given.decode("latin-1") if isinstance(given, bytes) else given
    return text if text is not None and _GOOD.fullmatch(text) else None


def accepted_or_made(given: str | None) -> str:
    """The id that a request came with, or one of our own."""
    return accepted(given) or make()


def call_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata of a gRPC call that names its request; empty without one."""
    request_id = current()
    return () if request_id is None else ((METADATA_KEY, request_id),)


@contextmanager
def serving_call(metadata: Iterable[tuple[str, str | bytes]] | None) -> Iterator[None]:
    """Like `serving`, for a gRPC call with this metadata; generates no id without one."""
    request_id = None
    for key, value in metadata or ():
        if key == METADATA_KEY:
            request_id = accepted(value)
    if request_id is None:
        yield
        return
    with serving(request_id):
        yield
