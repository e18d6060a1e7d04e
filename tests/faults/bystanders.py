"""A well-behaved producer and consumer that must not notice what others do to the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, payload_frame

PAUSE_S = 0.02
COUNT_MIN = 30
"""Messages at least, however soon the hostile client is through."""

UNNOTICED_S = 10.0
"""No receipt and no message may take longer; they take milliseconds, this is for a busy machine."""


class Bystanders:
    """One message each 20 ms, published, delivered and acknowledged on two connections of one topic."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self.topic = topic
        self.receipts_s: list[float] = []
        self.deliveries_s: list[float] = []
        self.error: BaseException | None = None
        self._ending = threading.Event()
        self._sent_at: list[float] = []
        self._consumer = Line(endpoint)
        self._consumer.connect()
        self._consumer.subscribe(topic)
        self._consumer.flow(1_000_000)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, endpoint), daemon=True)
            for work in (self._publish, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: object, endpoint: Endpoint) -> None:
        assert callable(work)
        try:
            work(endpoint)
        except BaseException as error:
            self.error = error

    def _publish(self, endpoint: Endpoint) -> None:
        with line(endpoint) as c:
            c.open_producer(self.topic)
            while not self._ending.is_set():
                number = len(self._sent_at)
                self._sent_at.append(time.monotonic())
                c.send_bytes(payload_frame(1, number, b"%d" % number))
                c.expect("send_receipt", sequence_id=number)
                self.receipts_s.append(time.monotonic() - self._sent_at[-1])
                time.sleep(PAUSE_S)

    def _consume(self, _: Endpoint) -> None:
        while not (self._ending.is_set() and len(self.deliveries_s) == len(self._sent_at)):
            try:
                frame = self._consumer.receive(0.5)
            except TimeoutError:
                continue
            assert frame.name == "message", frame
            number = len(self.deliveries_s)
            assert frame.payload == b"%d" % number, f"expected {number}, got {frame.payload!r}"
            self.deliveries_s.append(time.monotonic() - self._sent_at[number])
            self._consumer.ack(frame.position, receipt=False)

    def finish(self, pauses: int = 0) -> None:
        """Stop and check: everything arrived, in order, and soon, but for one message in each pause."""
        deadline = time.monotonic() + 60
        while len(self.deliveries_s) < COUNT_MIN and self.error is None and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a bystander hangs"
        self._consumer.close()
        if self.error is not None:
            raise self.error
        receipts, deliveries = sorted(self.receipts_s), sorted(self.deliveries_s)
        assert len(deliveries) >= COUNT_MIN, f"only {len(deliveries)} messages got through"
        print(
            f"bystanders: {len(receipts)} messages, receipt p50 {receipts[len(receipts) // 2] * 1000:.1f} ms "
            f"max {receipts[-1] * 1000:.0f} ms, delivery max {deliveries[-1] * 1000:.0f} ms"
        )
        assert receipts[-1 - pauses] < UNNOTICED_S, "a receipt took long"
        assert deliveries[-1 - pauses] < UNNOTICED_S, "a delivery took long"


@contextmanager
def bystanders(endpoint: Endpoint, topic: str) -> Iterator[Bystanders]:
    """Bystanders for the block, checked at its end."""
    pair = Bystanders(endpoint, topic + "-bystanders")
    try:
        yield pair
    except BaseException:
        pair._ending.set()
        raise
    pair.finish()
