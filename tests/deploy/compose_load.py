"""Apache Pulsar's client under load, outside of a cluster's network, and what it remembers of promises.

    with Load.running(client, topics) as load:
        ...a fault...
        load.goes_on("after the fault")
    load.check_everything_arrived()

Each topic has a publisher that has one message on its way, a subscription that is consumed meanwhile (WORK),
and one that nobody looks at until `read_kept` (KEPT).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pulsar

from tests.integration.harness import eventually

WORK: Final = "work"
KEPT: Final = "kept"
PAUSE_S: Final = 0.005
RECEIVE_MS: Final = 500
SEND_MS_MAX: Final = 15_000
PROGRESS: Final = 30
"""Messages of each topic that have to be confirmed for the load to go on."""
SECONDS_MAX: Final = 180.0
"""For anything to come back: many times what a lost broker's lease takes."""


def new_client(service_url: str) -> pulsar.Client:
    """A client that says only what went wrong."""
    return pulsar.Client(
        service_url,
        operation_timeout_seconds=60,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


class Line:
    """One topic: who publishes, who consumes, and the numbers that each of them has seen."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.topic = topic
        self.confirmed: list[int] = []
        self.received: set[int] = set()
        self.failed: list[str] = []
        self._client = client
        self._ending = threading.Event()
        self._consumed = threading.Event()
        client.subscribe(topic, KEPT, initial_position=pulsar.InitialPosition.Earliest).close()
        self._consumer = client.subscribe(topic, WORK, initial_position=pulsar.InitialPosition.Earliest)
        self._producer: pulsar.Producer | None = self._new_producer()
        self._threads = [
            threading.Thread(target=self._publish, name=f"publish {topic}"),
            threading.Thread(target=self._consume, name=f"consume {topic}"),
        ]
        for thread in self._threads:
            thread.start()

    def _new_producer(self) -> pulsar.Producer:
        return self._client.create_producer(
            self.topic, send_timeout_millis=SEND_MS_MAX, batching_enabled=False
        )

    def _publish(self) -> None:
        number = 0
        while not self._ending.wait(PAUSE_S):
            try:
                if self._producer is None:
                    self._producer = self._new_producer()
                self._producer.send(b"%d" % number)
            except pulsar.Timeout as error:  # it may be there or not: sent again
                self.failed.append(repr(error))
            except pulsar.PulsarException as error:
                self.failed.append(repr(error))
                with contextlib.suppress(pulsar.PulsarException):
                    if self._producer is not None:
                        self._producer.close()
                self._producer = None
            else:
                self.confirmed.append(number)
                number += 1

    def _consume(self) -> None:
        while not self._consumed.is_set():
            try:
                message = self._consumer.receive(RECEIVE_MS)
                self.received.add(int(message.data()))
                self._consumer.acknowledge(message)
            except pulsar.Timeout:
                pass
            except pulsar.PulsarException as error:
                self.failed.append(repr(error))
                self._consumed.wait(RECEIVE_MS / 1000)

    def lost(self) -> list[int]:
        """Confirmed, and not received yet."""
        return sorted(set(self.confirmed) - self.received)

    def stop_publishing(self) -> None:
        self._ending.set()
        self._threads[0].join()

    def close(self) -> None:
        """End both; what was received is acknowledged by then."""
        self._ending.set()
        self._consumed.set()
        for thread in self._threads:
            thread.join()
        for each in (self._producer, self._consumer):
            with contextlib.suppress(pulsar.PulsarException):
                if each is not None:
                    each.close()


class Load:
    """Topics at work."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines

    @staticmethod
    @contextlib.contextmanager
    def running(client: pulsar.Client, topics: Sequence[str]) -> Iterator[Load]:
        """Load until the end of the block; then everything confirmed has been received, or it fails."""
        lines: list[Line] = []
        try:
            lines.extend(Line(client, topic) for topic in topics)
            load = Load(lines)
            load.goes_on("when it begins")
            yield load
            for line in lines:
                line.stop_publishing()
            load.check_everything_arrived()
        finally:
            for line in lines:
                line.close()

    @property
    def confirmed(self) -> int:
        return sum(len(line.confirmed) for line in self.lines)

    def goes_on(self, when: str) -> float:
        """Wait until each topic has some more confirmed and received; seconds that it took."""
        began = time.monotonic()
        marks = [(line, len(line.confirmed) + PROGRESS, len(line.received) + PROGRESS) for line in self.lines]
        eventually(
            lambda: all(
                len(line.confirmed) >= confirmed and len(line.received) >= received
                for line, confirmed, received in marks
            ),
            f"{when}: {PROGRESS} more messages of each topic are confirmed and received",
            SECONDS_MAX,
        )
        return time.monotonic() - began

    def check_everything_arrived(self) -> None:
        """Wait until everything confirmed has been received; fails naming what is lost."""
        try:
            eventually(lambda: not any(line.lost() for line in self.lines), "", SECONDS_MAX)
        except AssertionError:
            lost = {line.topic: line.lost()[:99] for line in self.lines if line.lost()}
            said = [failure for line in self.lines for failure in line.failed[-3:]]
            raise AssertionError(f"confirmed and never received: {lost}; what failed last: {said}") from None


def read_kept(client: pulsar.Client, line: Line) -> None:
    """Read the subscription that nobody looked at: everything confirmed is there, in its order.

    What was sent again may be there twice. Fails otherwise.
    """
    consumer = client.subscribe(line.topic, KEPT)
    there: list[int] = []
    while not there or there[-1] < line.confirmed[-1]:
        there.append(int(consumer.receive(60_000).data()))
    consumer.close()
    first_time = list(dict.fromkeys(there))
    assert first_time == sorted(first_time), f"{line.topic}: out of order"
    lost = sorted(set(line.confirmed) - set(there))
    assert not lost, (
        f"{line.topic}: {len(lost)} of {len(line.confirmed)} confirmed messages are lost: {lost[:9]}"
    )
