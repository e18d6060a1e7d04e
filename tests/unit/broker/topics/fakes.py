"""A managed ledger and a client that write down what they are told, for publish paths without storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar.broker.client_endings import EndCode
from magnetar.broker.read_pauses import ReadPauses
from magnetar.broker.stats import TopicStats
from magnetar.broker.topics.config import DeduplicationConfig
from magnetar.broker.topics.publish.deduplicated_publishing import DeduplicatedPublishing
from magnetar.broker.topics.publish.deduplication import DeduplicationState
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import LogFailed, StorageError, TransactionNotAllowed
from magnetar.common.naming.position import EARLIEST
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import DeduplicationSnapshot


class FakeClock:
    """Stands still."""

    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_000


@dataclass(eq=False)
class FakePeer:
    """`answers`: (sequence id, "stored", "duplicate" or "refused") and (-1, "closed"), as they came."""

    connected: bool = True
    listener: str | None = None
    certificate: bytes | None = None
    protocol_version: int = 20
    pending_bytes: int = 0
    answers: list[tuple[int, str]] = field(default_factory=list)
    address: str = "client"
    writable: bool = True
    unwritable_s: float = 0.0
    read_pauses: ReadPauses = field(default_factory=ReadPauses)
    paused_s: list[float] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            command = pb.BaseCommand.FromString(data[8:end])
            data = data[end:]
            if command.type == pb.BaseCommand.SEND_ERROR:
                self.answers.append((command.send_error.sequence_id, "refused"))
                continue
            if command.type == pb.BaseCommand.CLOSE_PRODUCER:
                self.answers.append((-1, "closed"))
                continue
            receipt = command.send_receipt
            stored = receipt.message_id.entryId != 2**64 - 1
            self.answers.append((receipt.sequence_id, "stored" if stored else "duplicate"))

    def write_parts(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def publish_pending(self, byte_count: int) -> None:
        self.pending_bytes += byte_count

    def pause_reading_for(self, seconds: float) -> None:
        self.paused_s.append(seconds)

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False

    async def is_alive(self) -> bool:
        return self.connected


@dataclass(eq=False)
class FakeLedger:
    """Takes runs until it is told what becomes of them; `refusing` is raised by `append`."""

    pending: list[tuple[Run, object]] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    refusing: StorageError | None = None
    saves: int = 0
    name: str = "topic"
    over: set[TxnId] = field(default_factory=set)
    """Transactions that may publish no more."""

    @property
    def deduplication(self) -> FakeLedger:
        return self

    def use_transactions(self) -> None:
        pass

    def save(self) -> None:
        self.saves += 1

    def append(self, run: Run, context: object) -> None:
        if self.refusing is not None:
            raise self.refusing
        if run.txn in self.over:
            raise TransactionNotAllowed(f"transaction {run.txn} has ended")
        self.pending.append((run, context))

    def confirm(self, count: int) -> list[tuple[Run, object]]:
        done, self.pending = self.pending[:count], self.pending[count:]
        for run, _ in done:
            run.ledger_id, run.first_entry_id = 1, len(self.stored)
            self.stored += run.entries
        return done

    def refuse(self, count: int) -> list[tuple[Run, object]]:
        at = max(0, len(self.pending) - count)
        self.pending, gone = self.pending[:at], self.pending[at:]
        return gone


class FakeTopic:
    """The deduplicated publish path of a topic, over a ledger that obeys the test."""

    def __init__(self, names: dict[str, Producer] | None = None, **config: Any) -> None:
        self.ledger = FakeLedger()
        self.names = names if names is not None else {}
        self.not_allowed: list[tuple[Producer, list[int]]] = []
        self.state = DeduplicationState(
            DeduplicationSnapshot(EARLIEST),
            now_ms=0,
            producers_max=100,
            inactivity_ms=1_000_000,
            connected=self.names,
        )
        self.publishing = DeduplicatedPublishing(
            DeduplicationConfig(**config),
            self.ledger,  # type: ignore[arg-type]
            self.state,
            TopicStats(),
            FakeClock(),
            lambda producer, entries, error: None,
            self.refuse_in_transaction,
        )

    def refuse_in_transaction(self, producer: Producer, run: SendRun, error: TransactionNotAllowed) -> None:
        """Closes the producer after all answers, as refusals do."""
        self.not_allowed.append((producer, run.sequence_ids()))
        producer.last_words = b""

    def producer(self, name: str = "a") -> tuple[Producer, FakePeer]:
        peer = FakePeer()
        return Producer(1, name, 0, peer, {}, b"", 0), peer

    def send(
        self,
        producer: Producer,
        *ids: int,
        entry: Callable[[int], bytes] | None = None,
        txn: TxnId | None = None,
    ) -> None:
        entries = [b"%d" % number if entry is None else entry(number) for number in ids]
        run = SendRun(
            1,
            entries,
            [encode_varint(number) for number in ids],
            None,
            None,
            False,
            False,
            sum(map(len, entries)),
        )
        self.publishing.publish(producer, run, txn)

    def confirm(self, count: int = 1_000) -> None:
        done = self.ledger.confirm(count)
        if done:
            self.publishing.confirmed(done)

    def refuse(self, count: int = 1_000) -> None:
        gone = self.ledger.refuse(count)
        if gone:
            self.publishing.refused(gone, LogFailed("the log failed"))
