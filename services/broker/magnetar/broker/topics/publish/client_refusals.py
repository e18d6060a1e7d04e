"""Answers to a client for a refused message, chosen so that only that message fails where possible.

Clients react differently to a SendError. The C++ client, which the Python and Node.js clients use, fails one
message on a checksum error; on any other code it closes its connection, including other producers' messages
in flight. The Go client closes it, too, and drops the producer permanently on NotAllowedError. The Java
client fails one message on NotAllowedError. The Rust client fails one on any code, unless the producer is
closed at the same moment. All of them react to CloseProducer by reopening the producer and resending
unanswered messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import ServerError


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """One refused message."""

    sequence_id: int
    """Highest sequence id of a batch."""
    code: ServerError.ValueType
    reason: str


@dataclass(frozen=True, slots=True)
class RefusalWays:
    """Reactions of one kind of client to refusals."""

    fails_one: bool = True
    """Whether a SendError makes the client fail only that message; otherwise none is sent."""
    code: ServerError.ValueType | None = None
    """Error code for which this holds; None: any code."""
    hears_storage: bool = False
    """Whether the client continues after a SendError about storage; otherwise it gets only CloseProducer."""
    closed_after_s: float = 0.0
    """Seconds between the SendErrors and CloseProducer."""

    def errors(self, producer_id: int, messages: Sequence[RefusedMessage]) -> bytes:
        """Encodes the SendErrors of messages that are refused because of their content."""
        if not self.fails_one:
            return b""
        return b"".join(
            commands.send_error(producer_id, message.sequence_id, self._code(message.code), message.reason)
            for message in messages
        )

    def _code(self, code: ServerError.ValueType) -> ServerError.ValueType:
        # A message damaged in transit should be resent, which the Java client does.
        damaged = code == ServerError.ChecksumError
        return code if self.code is None or damaged else self.code


_WAYS: Final = {
    "Pulsar-CPP": RefusalWays(code=ServerError.ChecksumError),
    "Pulsar-Java": RefusalWays(code=ServerError.NotAllowedError),
    "Pulsar-Go": RefusalWays(fails_one=False),
    "pulsar-rs": RefusalWays(closed_after_s=0.05),
}

_OTHERS: Final = RefusalWays(hears_storage=True)


def ways_of(client_version: str) -> RefusalWays:
    """Selects the reactions by the client's version string."""
    for name, ways in _WAYS.items():
        if client_version.startswith(name):
            return ways
    return _OTHERS
