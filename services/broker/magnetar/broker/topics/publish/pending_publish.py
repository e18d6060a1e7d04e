"""Runs of messages in flight to storage, and the frames that answer them: receipts or SendErrors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.broker.latencies import PUBLISH
from magnetar.broker.stats import TopicStats
from magnetar.broker.topics.publish.client_refusals import ways_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import StorageError
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire import commands
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.receipts import receipts
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, RUN_TXN, Run
from prometheus_client import Counter

log = get_logger(__name__)

REFUSED_MESSAGES = Counter(
    "magnetar_refused_messages_total",
    "Refused messages, by error code.",
    ["code"],
    registry=REGISTRY,
)


@dataclass(slots=True, eq=False)
class PendingPublish:
    """A run that is published and not confirmed, with the producer that gets its receipts."""

    producer: Producer
    sends: SendRun
    byte_length: int
    taken_at: float


def run_of(sends: SendRun) -> Run:
    """Makes the run of entries that is appended to the ledger."""
    flags = (RUN_CHUNK if sends.is_chunk else 0) | (RUN_MARKER if sends.marker else 0)
    return Run(sends.entries, message_counts=sends.message_counts, flags=flags, byte_length=sends.byte_length)


def run_in(txn: TxnId, sends: SendRun) -> Run:
    """Makes the run of entries in a transaction that is appended to the ledger."""
    run = run_of(sends)
    run.flags |= RUN_TXN
    run.txn = txn
    return run


def part_of(sends: SendRun, indexes: Sequence[int]) -> SendRun | None:
    """Selects some entries of a run, in their order; None when `indexes` is empty."""
    if not indexes:
        return None
    if len(indexes) == len(sends.entries):
        return sends
    entries = [sends.entries[index] for index in indexes]
    highests, counts = sends.highest_varints, sends.message_counts
    return SendRun(
        sends.producer_id,
        entries,
        [sends.sequence_varints[index] for index in indexes],
        None if highests is None else [highests[index] for index in indexes],
        None if counts is None else [counts[index] for index in indexes],
        sends.is_chunk,
        sends.marker,
        sum(map(len, entries)),
    )


def send_receipts(publishes: list[tuple[Run, object]], stats: TopicStats, now: float) -> None:
    """Sends the receipts of persisted runs."""
    for run, pending in publishes:
        assert isinstance(pending, PendingPublish)
        producer = pending.producer
        if producer.peer.connected:
            producer.peer.write(
                receipts(
                    producer.producer_id,
                    run.ledger_id,
                    run.first_entry_id,
                    pending.sends.sequence_varints,
                    pending.sends.highest_varints,
                )
            )
        producer.peer.publish_pending(-pending.byte_length)
        producer.settled()
        note_published(stats, now, now - pending.taken_at, len(run.entries))


def note_published(stats: TopicStats, now: float, seconds: float, entries: int) -> None:
    """Records the latency of a durable run, from receiving it to its receipts."""
    stats.write_latency.observe(seconds * 1000, entries)
    PUBLISH.observe(now, seconds, entries)


def send_refusals(publishes: list[tuple[Run, object]], error: StorageError) -> None:
    """Sends the SendErrors of runs that storage has refused entirely."""
    for _, pending in publishes:
        assert isinstance(pending, PendingPublish)
        producer = pending.producer
        if producer.peer.connected:
            producer.peer.write(storage_errors(producer, pending.sends, error))
        producer.peer.publish_pending(-pending.byte_length)
        producer.settled()


def storage_errors(producer: Producer, sends: SendRun, error: StorageError) -> bytes:
    """The SendErrors of a run that storage refused; empty for a client that would close its connection."""
    return send_errors(producer, sends, error) if ways_of(producer.client_version).hears_storage else b""


def send_errors(producer: Producer, sends: SendRun, error: StorageError) -> bytes:
    """Encodes the SendErrors of a run."""
    code, reason = code_of(error), str(error)
    return b"".join(
        commands.send_error(producer.producer_id, sends.highest_sequence_id(index), code, reason)
        for index in range(len(sends.entries))
    )


class RefusalLog:
    """Logs the refused messages of one topic, with at most one line a second.

    Clients resend refused messages, so unlimited lines would fill a disk. Each line has the number of entries
    since the previous line; the metric of refused messages counts all.
    """

    __slots__ = ("_clock", "_limit", "_topic")

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._limit = LogLimit()

    def note(self, producer: str, entries: int, reason: str) -> None:
        """Counts refused entries of a producer, and logs them when a line is due."""
        count = self._limit.note(self._clock.monotonic(), entries)
        if count:
            log.warning("publish refused", topic=self._topic, producer=producer, entries=count, error=reason)
