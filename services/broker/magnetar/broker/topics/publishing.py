"""What a run of messages becomes on its way into a topic, and how its sender hears that it was refused."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.error_codes import code_of
from magnetar.broker.topics.producer import Producer
from magnetar.common.errors import StorageError
from magnetar.common.wire import commands
from magnetar.common.wire.events import SendRun
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, Run


@dataclass(slots=True, eq=False)
class PendingPublish:
    """A run that was taken and is not confirmed: who gets its receipts."""

    producer: Producer
    sends: SendRun
    byte_length: int
    taken_at: float


def run_of(sends: SendRun) -> Run:
    """The entries of a run, to be appended."""
    flags = (RUN_CHUNK if sends.is_chunk else 0) | (RUN_MARKER if sends.marker else 0)
    return Run(sends.entries, message_counts=sends.message_counts, flags=flags, byte_length=sends.byte_length)


def send_errors(producer: Producer, sends: SendRun, error: StorageError) -> bytes:
    """The SendErrors of a run, as frames."""
    code, reason = code_of(error), str(error)
    return b"".join(
        commands.send_error(producer.producer_id, sequence_id, code, reason)
        for sequence_id in sends.sequence_ids()
    )
