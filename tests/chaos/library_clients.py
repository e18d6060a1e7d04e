"""A producer and a consumer of the PyPI client beside the raw ones: what applications see of the faults."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pulsar

from tests.soak.history import ORDERED, Kind
from tests.soak.library_clients import TYPES

PAUSE_S = 0.1
RECEIVE_MS = 200
OPERATION_S = 30


class LibraryTopic:
    """Runs in two threads until `finish`; `violations` says what was wrong then."""

    def __init__(self, service_url: str, topic: str, kind: Kind) -> None:
        self.topic = topic
        self.kind: Kind = kind
        self.violations: list[str] = []
        self.receipts: list[float] = []
        """When each came (time.monotonic)."""
        self.received: set[int] = set()
        self.confirmed: set[int] = set()
        self._client = pulsar.Client(
            service_url,
            operation_timeout_seconds=OPERATION_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),  # it tells of every fault
        )
        self._sending = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._consume, self._publish)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, seconds_max: float) -> None:
        """Send no more, await what was confirmed; bounded."""
        self._sending.set()
        deadline = time.monotonic() + seconds_max
        self._threads[1].join(seconds_max)
        while self.confirmed - self.received and time.monotonic() < deadline:
            time.sleep(0.1)
        self._over.set()
        self._threads[0].join(OPERATION_S)
        if any(thread.is_alive() for thread in self._threads):
            self.violations.append(f"{self}: the library hangs")
        elif missing := self.confirmed - self.received:
            self.violations.append(f"{self}: lost {len(missing)}, the first is {min(missing)}")
        else:
            self._client.close()

    def __repr__(self) -> str:
        return f"PyPI client, {self.kind} of {self.topic}"

    def took(self, number: int, last: int) -> int:
        """A message came, after `last`; returns what is the last now."""
        new = number not in self.received
        if new and number < last and self.kind in ORDERED:
            self.violations.append(f"{self}: message {number} came for the first time after {last}")
        self.received.add(number)
        return max(number, last)

    def _publish(self) -> None:
        producer = None
        while producer is None and not self._sending.is_set():
            with suppress(pulsar.PulsarException):
                producer = self._client.create_producer(
                    self.topic, send_timeout_millis=0, block_if_queue_full=True, batching_enabled=False
                )
        number = 0
        while producer is not None and not self._sending.wait(PAUSE_S):
            producer.send_async(b"%d" % number, _Sent(self, number))
            number += 1
        if producer is not None:
            producer.flush()

    def _consume(self) -> None:
        consumer, last = None, -1
        while not self._over.is_set():
            try:
                if consumer is None:
                    consumer = self._client.subscribe(
                        self.topic,
                        "chaos",
                        consumer_type=TYPES[self.kind],
                        initial_position=pulsar.InitialPosition.Earliest,
                    )
                message = consumer.receive(RECEIVE_MS)
                last = self.took(int(message.data()), last)
                consumer.acknowledge(message)
            except pulsar.PulsarException:
                continue


class _Sent:
    """Hears what became of one message."""

    def __init__(self, topic: LibraryTopic, number: int) -> None:
        self._topic = topic
        self._number = number

    def __call__(self, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self._topic.confirmed.add(self._number)
            self._topic.receipts.append(time.monotonic())
        else:
            self._topic.violations.append(f"{self._topic}: message {self._number} was not sent: {result}")
