"""A blocking connection for the commands before and after a measured run, one at a time or many in flight."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from typing import Literal
from urllib.parse import urlsplit

from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import CONSUMER_ID, PRODUCER_ID, simple_frame
from bench.target import Target
from bench.tls_socket import Handed, TlsSocket

ANSWER_SECONDS_MAX = 60.0

UINT64_MAX = (1 << 64) - 1
"""-1 in the unsigned fields of a message id; twice, the earliest message."""

_MAY_REFUSE = frozenset({"lookupTopicResponse", "tcClientConnectResponse", "endTxnResponse"})
"""Answers that carry an error in themselves."""

SubType = Literal["Exclusive", "Shared", "Key_Shared"]


class Refused(Exception):
    """The broker answered something else than what was asked for."""


def connect(target: Target) -> Connection:
    """Connect to a broker under measurement, by TLS where its address says so."""
    tls = ssl.create_default_context(cafile=target.trust_certs) if target.trust_certs else None
    return Connection(target.service_url, tls)


class Connection:
    """Commands and answers, until the socket is handed to a generator."""

    def __init__(self, service_url: str, tls: ssl.SSLContext | None = None) -> None:
        """Connect; `tls` checks the certificate of a pulsar+ssl address."""
        url = urlsplit(service_url)
        address = (url.hostname or "127.0.0.1", url.port or 6650)
        plain = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: Handed = plain
        if tls is not None:
            self._socket = TlsSocket(plain, tls, address[0])
        self._received = bytearray()
        self._all("connected", [simple_frame("connect", client_version="bench", protocol_version=21)])

    def open_producer(self, topic: str) -> None:
        """A producer whose id the generated Sends carry."""
        self.open_producers([topic], PRODUCER_ID)

    def open_producers(self, topics: Sequence[str], first_id: int, *, avro_schema: bytes = b"") -> None:
        """A producer on each topic, with consecutive ids, and with a schema unless it is empty."""
        schema = {"schema": {"name": "", "schema_data": avro_schema, "type": "Avro"}} if avro_schema else {}
        self._look_up(topics)
        self._all(
            "producer_success",
            [
                simple_frame("producer", topic=topic, producer_id=number, request_id=number, **schema)
                for number, topic in enumerate(topics, first_id)
            ],
        )

    def open_transactional_producer(self, topic: str) -> None:
        """A producer that may publish in transactions."""
        self._look_up([topic])
        producer = simple_frame(
            "producer", topic=topic, producer_id=PRODUCER_ID, request_id=1, txn_enabled=True
        )
        self._all("producer_success", [producer])

    def connect_coordinator(self, number: int) -> None:
        """Become a client of a transaction coordinator. Raises Refused while it is not served."""
        self._look_up([f"persistent://pulsar/system/transaction_coordinator_assign-partition-{number}"])
        self._all(
            "tcClientConnectResponse", [simple_frame("tcClientConnectRequest", request_id=1, tc_id=number)]
        )

    def commit(self, most_bits: int, least_bits: int) -> None:
        """Commit a transaction. Raises Refused with the coordinator's error."""
        frame = simple_frame(
            "endTxn",
            request_id=1,
            txnid_most_bits=most_bits,
            txnid_least_bits=least_bits,
            txn_action="COMMIT",
        )
        self._all("endTxnResponse", [frame])

    def subscribe(self, topic: str, *, sub_type: SubType = "Exclusive", name: str = "bench") -> None:
        """The durable subscription `bench` from the earliest message, and its consumer without permits."""
        self.subscribe_all([topic], CONSUMER_ID, sub_type=sub_type, name=name)

    def subscribe_all(
        self, topics: Sequence[str], first_id: int, *, sub_type: SubType = "Exclusive", name: str = "bench"
    ) -> None:
        """The same on each topic, with consecutive consumer ids."""
        keys = {"keySharedMeta": {"keySharedMode": "AUTO_SPLIT"}} if sub_type == "Key_Shared" else {}
        self._look_up(topics)
        self._all(
            "success",
            [
                simple_frame(
                    "subscribe",
                    topic=topic,
                    subscription="bench",
                    subType=sub_type,
                    consumer_id=number,
                    consumer_name=name,
                    request_id=number,
                    initialPosition="Earliest",
                    **keys,
                )
                for number, topic in enumerate(topics, first_id)
            ],
        )

    def subscribe_compacted(self, topic: str, name: str) -> None:
        """A reader of the compacted view of a topic from its start, without permits."""
        self._look_up([topic])
        reader = simple_frame(
            "subscribe",
            topic=topic,
            subscription=name,
            subType="Exclusive",
            consumer_id=CONSUMER_ID,
            consumer_name=name,
            request_id=1,
            durable=False,
            read_compacted=True,
            start_message_id={"ledgerId": UINT64_MAX, "entryId": UINT64_MAX},
        )
        self._all("success", [reader])

    def last_message_id(self, request_id: int) -> tuple[int, int]:
        """Ledger and entry of the last message that the consumer can get."""
        self._socket.sendall(simple_frame("getLastMessageId", consumer_id=CONSUMER_ID, request_id=request_id))
        answer = pb.BaseCommand.FromString(self._answer("getLastMessageIdResponse"))
        found = answer.getLastMessageIdResponse.last_message_id
        return found.ledgerId, found.entryId

    def close_consumers(self, first_id: int, count: int) -> None:
        """The consumers leave; their subscriptions stay."""
        self._all(
            "success",
            [
                simple_frame("close_consumer", consumer_id=number, request_id=number)
                for number in range(first_id, first_id + count)
            ],
        )

    def send_and_await_receipt(self, frame: bytes) -> None:
        """One Send and its receipt."""
        self._all("send_receipt", [frame])

    def send_and_await_receipts(self, frames: bytes, count: int) -> None:
        """Send frames at once and wait for `count` receipts."""
        self._socket.sendall(frames)
        for _ in range(count):
            self._answer("send_receipt")

    def first_message(self) -> bytes:
        """Grant one permit; returns the command of the message that comes."""
        self._socket.sendall(simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=1))
        return self._answer("message")

    def hand_over(self) -> socket.socket:
        """The socket without TLS, for a generator that reads from here on."""
        handed = self.hand_over_any()
        assert isinstance(handed, socket.socket), "this load is not measured over TLS"
        return handed

    def hand_over_any(self) -> Handed:
        """The same, with TLS or without."""
        if self._received:
            raise RuntimeError(f"{len(self._received)} bytes came unasked before the run")
        return self._socket

    def close(self) -> None:
        self._socket.close()

    def _look_up(self, topics: Iterable[str]) -> None:
        """Looks the topic up first, as clients do; Apache Pulsar serves only topics that were looked up."""
        self._all(
            "lookupTopicResponse",
            [
                simple_frame("lookupTopic", topic=topic, request_id=number, authoritative=False)
                for number, topic in enumerate(topics, 1)
            ],
        )

    def _all(self, answer: str, frames: Sequence[bytes]) -> None:
        self._socket.sendall(b"".join(frames))
        for _ in frames:
            self._answer(answer)

    def _answer(self, expected: str) -> bytes:
        while True:
            (size,) = struct.unpack(">I", self._exactly(4))
            body = self._exactly(size)
            (command_size,) = struct.unpack_from(">I", body)
            encoded = body[4 : 4 + command_size]
            command = pb.BaseCommand.FromString(encoded)
            if command.HasField("ping"):
                self._socket.sendall(simple_frame("pong"))
            elif command.HasField(expected):  # type: ignore[arg-type]
                answer = getattr(command, expected)
                if expected in _MAY_REFUSE and answer.HasField("error"):
                    raise Refused(answer.message)
                return encoded
            elif not command.HasField("active_consumer_change"):
                raise Refused(f"expected {expected}, got: {' '.join(str(command).split())}")

    def _exactly(self, count: int) -> bytes:
        received = self._received
        while len(received) < count:
            data = self._socket.recv(256 * 1024)
            if not data:
                raise ConnectionError("the broker closed the connection")
            received += data
        taken = bytes(received[:count])
        del received[:count]
        return taken
