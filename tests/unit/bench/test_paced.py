"""A schedule does not bend to what the broker does, and latency counts from it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from bench.frames import FIRST_SEQUENCE_ID, SendTemplate, simple_frame
from bench.paced import Schedule, one_in_flight, produce_at

STALL_SECONDS = 0.3
RECEIPT = simple_frame(
    "send_receipt", producer_id=1, sequence_id=FIRST_SEQUENCE_ID, message_id={"ledgerId": 1, "entryId": 2}
)


@pytest.mark.parametrize("rate", [1.0, 3.0, 2_000.0])
def test_an_entry_is_due_at_its_place_and_not_before(rate: float) -> None:
    schedule = Schedule(100.0, rate)
    for entry in (0, 1, 2, 7, 1_000):
        due = schedule.due(entry)
        assert due == pytest.approx(100.0 + entry / rate)
        assert schedule.count_due(due) == entry + 1
        assert schedule.count_due(due - 0.4 / rate) == entry


def test_nothing_is_due_before_the_start() -> None:
    assert Schedule(100.0, 10.0).count_due(99.0) == 0


class StallingBroker:
    """Answers each frame with a receipt, but sleeps once before it reads."""

    def __init__(self, frame_bytes: int) -> None:
        self.client, self._server = socket.socketpair()
        self._frame_bytes = frame_bytes
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.client.close()
        self._thread.join(10)
        self._server.close()

    def _serve(self) -> None:
        received = answered = 0
        time.sleep(STALL_SECONDS)
        while data := self._server.recv(65_536):
            received += len(data)
            whole = received // self._frame_bytes
            self._server.sendall(RECEIPT * (whole - answered))
            answered = whole


def test_a_stall_is_charged_to_every_entry_that_was_due_meanwhile() -> None:
    """Timed from the moment of sending, only the entries in flight would show it."""
    template = SendTemplate(100)
    broker = StallingBroker(template.frame_bytes)
    try:
        run = produce_at(broker.client, None, template, rate=100.0, entries=40, discard=0)
    finally:
        broker.close()
    assert len(run.ack_ms) == len(run.lag_ms) == 40
    assert run.end_to_end_ms == []
    # The stall lasts 30 places of the schedule: each waits for the rest of it.
    assert run.ack_ms[0] > 250
    assert sum(latency > 50 for latency in run.ack_ms) >= 20


def test_entries_to_discard_are_sent_and_not_counted() -> None:
    template = SendTemplate(100)
    broker = StallingBroker(template.frame_bytes)
    try:
        run = produce_at(broker.client, None, template, rate=1_000.0, entries=50, discard=20)
    finally:
        broker.close()
    assert run.entries == len(run.ack_ms) == len(run.lag_ms) == 30


def test_one_in_flight_never_sends_before_the_receipt() -> None:
    template = SendTemplate(100)
    broker = StallingBroker(template.frame_bytes)
    try:
        run = one_in_flight(broker.client, template, seconds=0.05, discard=3)
    finally:
        broker.close()
    assert run.entries == len(run.ack_ms) > 0
    assert max(run.ack_ms) < STALL_SECONDS * 1000
