"""Parts shared by both offload clients: results, channel options, errors and retries."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

import grpc
from magnetar.common.errors import MagnetarError
from magnetar.common.offload.methods import ERROR_KEY, MESSAGE_BYTES_MAX
from magnetar.common.offload.offload_errors import from_wire, may_pass
from magnetar.common.offload.offload_pb2 import Deletion, Ledger
from magnetar.common.rpc.options import ChannelOptions, channel_options

CONNECT_TIMEOUT_S: Final = 5.0
RECONNECT_MAX_S: Final = 2.0

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 3.0
"""Waits in seconds between attempts, as (first, longest): doubling, with up to half as much again of jitter.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic's entries, ledger by ledger, in order."""

    topic: str
    creation_id: int
    ledgers: list[Ledger]
    address: str
    """Address of the broker that owns the topic: `read` its open ledger there."""
    schema_type: str
    """Type of the newest schema; empty: none."""
    schema: bytes


@dataclass(frozen=True, slots=True)
class Attempts:
    """The directories below a location that must stay."""

    paths: list[str]
    complete: bool
    """Whether the list is complete; otherwise nothing may be swept."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """Objects to delete; incomplete if `more` is set."""

    deletions: list[Deletion]
    more: bool
    instance_id: bytes = b""
    """Instance id of the cluster, as in the markers of its locations."""


def options() -> ChannelOptions:
    """Return the options of a client's channel."""
    return channel_options(MESSAGE_BYTES_MAX, CONNECT_TIMEOUT_S, RECONNECT_MAX_S)


def error_of(error: Any, call: str) -> MagnetarError:
    """Return the error that a failed gRPC call carries."""
    name = ""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            name = value if isinstance(value, str) else value.decode("latin-1")
    status = error.code()
    assert isinstance(status, grpc.StatusCode)
    return from_wire(status, name, error.details() or "", call)


def pause_before_next(found: MagnetarError, attempt: int, left_s: float) -> float | None:
    """Returns the seconds to wait before the next attempt; None if the error is final."""
    if not may_pass(found):
        return None
    pause_s = min(PAUSE_S * 2 ** min(attempt, 10), PAUSE_MAX_S)
    pause_s *= 1 + random.random() / 2  # clients that failed together come back one after the other
    return pause_s if pause_s < left_s else None
