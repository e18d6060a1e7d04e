"""Answers to a client for a refused message, so that it fails that message alone where it can.

The clients differ in what they make of a SendError. The one in C++, which those in Python and Node.js are
made of, fails one message when it hears of a wrong checksum; any other code makes it close its connection,
with all that others have on their way there. The one in Go closes it too, and at NotAllowedError forgets the
producer for good. The one in Java fails one message at NotAllowedError. That in Rust fails one at any code,
unless the producer is closed at the same moment. To all of them CloseProducer says: open the producer anew,
and send what is unanswered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import ServerError


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """One message that is not taken."""

    sequence_id: int
    """The highest of a batch."""
    code: ServerError.ValueType
    reason: str


@dataclass(frozen=True, slots=True)
class RefusalWays:
    """How the clients of one kind hear of refusals."""

    fails_one: bool = True
    """A SendError makes the client fail that message, and no other; it gets none otherwise."""
    code: ServerError.ValueType | None = None
    """The code that does so; None: any does."""
    hears_storage: bool = False
    """It goes on after a SendError of storage; otherwise it hears CloseProducer alone."""
    closed_after_s: float = 0.0
    """Between the SendErrors and CloseProducer."""

    def errors(self, producer_id: int, messages: Sequence[RefusedMessage]) -> bytes:
        """The SendErrors of messages that are refused for what they are, as frames."""
        if not self.fails_one:
            return b""
        return b"".join(
            commands.send_error(producer_id, message.sequence_id, self._code(message.code), message.reason)
            for message in messages
        )

    def _code(self, code: ServerError.ValueType) -> ServerError.ValueType:
        # What was damaged on its way is to be sent again, and the client in Java does that.
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
    """By what the client says it is."""
    for name, ways in _WAYS.items():
        if client_version.startswith(name):
            return ways
    return _OTHERS
