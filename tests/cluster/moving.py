"""A publisher that speaks raw frames and follows its topic from broker to broker, as PIP-307 has it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import ConnectionEnded, Frame, Line, payload_frame

RETRY_S = 0.05
LOST_SECONDS_MAX = 60.0


@dataclass
class Follower:
    """One message is on its way at a time; what is not confirmed is sent again where the topic went."""

    endpoint: Endpoint
    topic: str
    name: str = "raw"
    """As `payload_frame` writes it in every message, by which what is sent again is known."""
    options: dict[str, object] = field(default_factory=dict)
    """More of the Producer command."""
    confirmed: list[bytes] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    """The URLs that it was told."""
    looked_up: int = 0
    refused: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each message was confirmed."""
    _lines: dict[str, Line] = field(default_factory=dict)
    _line: Line | None = None
    _sequence: int = 0

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def send(self, payload: bytes) -> None:
        """Return once the message is confirmed, by whichever broker."""
        deadline = time.monotonic() + LOST_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                if self._line is None:
                    self._open(self._look_up())
                if self._line is not None and self._try(self._line, payload):
                    self._sequence += 1
                    self.confirmed.append(payload)
                    self.times.append(time.monotonic())
                    return
            except (ConnectionEnded, OSError):
                self._line = None
                self._lines = {url: each for url, each in self._lines.items() if each is not self._line}
                self.close()
                time.sleep(RETRY_S)
        raise AssertionError(f"message {self._sequence} was not confirmed in {LOST_SECONDS_MAX:g} s")

    def gaps(self) -> list[float]:
        """Seconds between confirmations."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]

    def _try(self, line: Line, payload: bytes) -> bool:
        line.send_bytes(payload_frame(1, self._sequence, payload))
        while True:
            frame = line.receive()
            if frame.name == "send_receipt" and frame.command.sequence_id == self._sequence:
                return True
            if frame.name == "close_producer":
                self._follow(frame)
                return False

    def _follow(self, frame: Frame) -> None:
        self._line = None
        url = frame.command.assignedBrokerServiceUrl
        if url:
            self.assigned.append(url)
            self._open(url)

    def _look_up(self) -> str:
        self.looked_up += 1
        line = self._to(self.endpoint.service_url)
        request_id = line.request("lookupTopic", topic=self.topic)
        while True:
            frame = line.receive()
            if frame.name == "lookupTopicResponse" and frame.command.request_id == request_id:
                return str(frame.command.brokerServiceUrl)

    def _open(self, url: str) -> None:
        if not url:
            time.sleep(RETRY_S)
            return
        line = self._to(url)
        request_id = line.request(
            "producer", topic=self.topic, producer_id=1, producer_name=self.name, **self.options
        )
        while True:
            frame = line.receive()
            if frame.name == "producer_success" and frame.command.request_id == request_id:
                if frame.command.producer_ready:
                    self._line = line
                    return
            elif frame.name == "error" and frame.command.request_id == request_id:
                self.refused.append(frame.command.message)
                time.sleep(RETRY_S)
                return

    def _to(self, url: str) -> Line:
        if url not in self._lines:
            line = Line(Endpoint(url, self.endpoint.http_url, self.endpoint.cluster))
            line.connect()
            self._lines[url] = line
        return self._lines[url]
