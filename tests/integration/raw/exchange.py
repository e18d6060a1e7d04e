"""One exchange of raw commands with a broker: its connections, its names, and what came back."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import ConnectionEnded, Frame, Line
from tests.integration.rest import Rest

AVRO_SCHEMA: Final = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
QUIET_SECONDS: Final = 0.2
FAILOVER_SECONDS: Final = 2.5
"""Apache Pulsar waits 1 s before it makes another consumer active."""
_NO_LEDGER: Final = (1 << 64) - 1
EXISTING_NAMESPACE: Final = "public/default"


class RecordingLine(Line):
    """A connection that keeps what it received."""

    def __init__(self, endpoint: Endpoint, frames: list[Frame | None]) -> None:
        super().__init__(endpoint)
        self._frames = frames

    def receive(self, seconds_max: float = 30.0) -> Frame:
        try:
            frame = super().receive(seconds_max)
        except ConnectionEnded:
            self._frames.append(None)
            raise
        self._frames.append(frame)
        return frame


class Exchange:
    """Connections and names of one exchange; `frames` are the answers of all its connections."""

    def __init__(self, endpoint: Endpoint, quiet_s: float = QUIET_SECONDS) -> None:
        self.endpoint = endpoint
        self.quiet_s = quiet_s
        self.rest = Rest(endpoint)
        self.frames: list[Frame | None] = []
        self.short_name = f"answers-{uuid.uuid4().hex[:12]}"
        self._lines: list[Line] = []

    @property
    def topic(self) -> str:
        return f"persistent://{EXISTING_NAMESPACE}/{self.short_name}"

    @property
    def path(self) -> str:
        """The topic in paths of the admin API."""
        return f"/persistent/{EXISTING_NAMESPACE}/{self.short_name}"

    def recorded(self, **connect: Any) -> Line:
        """A connection whose answers count, but for its Connected."""
        line = RecordingLine(self.endpoint, self.frames)
        self._lines.append(line)
        line.connect(**connect)
        self.frames.pop()
        return line

    def flowing(self, **subscribe: Any) -> Line:
        """A recorded connection with a producer and a consumer of the topic, which has permits."""
        line = self.recorded()
        line.open_producer(self.topic)
        line.subscribe(self.topic, **subscribe)
        line.flow(10)
        return line

    def bare(self) -> Line:
        """A recorded connection that has not said anything."""
        line = RecordingLine(self.endpoint, self.frames)
        self._lines.append(line)
        return line

    def aside(self) -> Line:
        """A connection whose answers do not count."""
        line = Line(self.endpoint)
        self._lines.append(line)
        line.connect()
        return line

    def look_up_first(self, topic: str) -> str:
        """The topic, which the broker now knows to be its own, as clients have it looked up first."""
        aside = self.aside()
        aside.request("lookupTopic", topic=topic)
        aside.receive()
        return topic

    def until_quiet(self, line: Line, seconds: float = 0.0) -> None:
        """Record what comes until nothing comes for so long, or as long as the exchange has it."""
        try:
            while True:
                line.receive(max(seconds, self.quiet_s))
        except (TimeoutError, ConnectionEnded):
            return

    def close(self) -> None:
        for line in self._lines:
            line.close()


def schema(kind: str, data: bytes = b"") -> dict[str, Any]:
    return {"name": "s", "type": kind, "schema_data": data}


def ask(x: Exchange, name: str, **fields: Any) -> None:
    line = x.recorded()
    line.request(name, **fields)
    x.until_quiet(line)


def ask_subscribe(x: Exchange, **fields: Any) -> None:
    line = x.recorded()
    line.ask_subscribe(x.topic, **fields)
    x.until_quiet(line)


def deduplicate(x: Exchange) -> None:
    x.rest.do("POST", f"{x.path}/deduplicationEnabled", True)
    deadline = time.monotonic() + 30
    probe = x.aside()
    probe.open_producer(x.topic, producer_name="probe")
    number = 0
    while probe.publish(b"x", first=number) and probe.publish(b"x", first=number)[0][0] != _NO_LEDGER:
        assert time.monotonic() < deadline, "deduplication was not applied within 30 s"
        number += 1
        time.sleep(0.1)
