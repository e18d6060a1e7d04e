"""Publishers and consumers on raw frames, each in a thread, that remember what they were promised."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import ConnectionEnded, Frame, Line, line, payload_frame

Position = tuple[int, int]


class Traffic(threading.Thread):
    """One connection at work until `finish` is called or the server ends it. `finish` tells what broke."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(daemon=True)
        self._endpoint = endpoint
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self.disconnected = False

    def run(self) -> None:
        try:
            with line(self._endpoint) as c:
                self.work(c)
        except (ConnectionEnded, OSError):
            self.disconnected = True
        except BaseException as error:
            self._error = error

    def work(self, c: Line) -> None:
        raise NotImplementedError

    def finish(self, seconds_max: float = 60.0) -> None:
        """Stop, wait for the end; raises what went wrong in the thread."""
        self._ending.set()
        self.join(seconds_max)
        assert not self.is_alive(), f"{self} does not end"
        if self._error is not None:
            raise self._error

    def until(self, condition: Callable[[], bool], what: str, seconds_max: float = 60.0) -> None:
        """Wait while the thread works; fails at once when it ended."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            if self._error is not None:
                raise self._error
            assert self.is_alive(), f"the connection ended, waiting for: {what}"
            assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}"
            time.sleep(0.005)


class Publisher(Traffic):
    """Sends numbered messages `<name>:<n>` with up to `in_flight` of them unanswered, in bursts."""

    def __init__(
        self,
        endpoint: Endpoint,
        topic: str,
        name: str,
        *,
        in_flight: int = 200,
        size: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(endpoint)
        self.topic = topic
        self.producer_name = name
        self.confirmed: dict[int, Position] = {}
        self.refused: dict[int, str] = {}
        self.next = 0
        self._in_flight = in_flight
        self._padding = b"." * size
        self._pause_s = pause_s
        self._burst = max(1, in_flight // 8)

    def payload(self, number: int) -> bytes:
        return f"{self.producer_name}:{number}:".encode() + self._padding

    def work(self, c: Line) -> None:
        c.open_producer(self.topic)
        waiting: set[int] = set()
        last = -1
        while not self._ending.is_set() or waiting:
            if not self._ending.is_set() and len(waiting) <= self._in_flight - self._burst:
                burst = range(self.next, self.next + self._burst)
                c.send_bytes(b"".join(payload_frame(1, n, self.payload(n)) for n in burst))
                self.next = burst.stop
                waiting.update(burst)
                if self._pause_s:
                    time.sleep(self._pause_s)
            answer = c.receive(30.0)
            if answer.name == "close_producer":
                # What was sent behind a refused message was not taken.
                self.refused.update(dict.fromkeys(waiting, "behind"))
                waiting.clear()
                c.open_producer(self.topic)
                continue
            number = answer.command.sequence_id
            waiting.remove(number)
            if answer.name == "send_receipt":
                assert number > last, f"the receipt of {number} came after that of {last}"
                last = number
                self.confirmed[number] = answer.position
            else:
                assert answer.name == "send_error", answer
                self.refused[number] = pb.ServerError.Name(answer.command.error)
                time.sleep(0.005)  # as clients do, which do not hammer a server that refuses

    def more_receipts(self, count: int = 500) -> None:
        """Wait for that many receipts more."""
        target = len(self.confirmed) + count
        self.until(lambda: len(self.confirmed) > target, f"{count} more receipts")


def keep(endpoint: Endpoint, topic: str) -> None:
    """Make a subscription that acknowledges nothing: everything from here on stays on the topic."""
    with line(endpoint) as c:
        c.subscribe(topic, "keeper")


def numbers_of(name: str, messages: list[bytes]) -> list[int]:
    """The numbers of one publisher's messages, in the order of `messages`."""
    start = f"{name}:".encode()
    return [int(one.split(b":")[1]) for one in messages if one.startswith(start)]


def read_frames(endpoint: Endpoint, topic: str) -> list[Frame]:
    """Everything on a topic, in the order of delivery, by a subscription that leaves no trace."""
    got: list[Frame] = []
    with line(endpoint) as c:
        c.subscribe(topic, "look", 9, durable=False)
        request_id = c.request("getLastMessageId", consumer_id=9)
        answer = c.expect("getLastMessageIdResponse", request_id=request_id).command.last_message_id
        last = (answer.ledgerId, answer.entryId)
        c.flow(100_000_000, consumer_id=9)
        while not got or got[-1].position < last:
            frame = c.receive(10.0)
            assert frame.name == "message", frame
            assert not got or got[-1].position < frame.position, f"{frame.position} is out of order"
            got.append(frame)
    return got


def read_topic(endpoint: Endpoint, topic: str) -> dict[Position, bytes]:
    """The payload of every entry of a topic, in order."""
    return {frame.position: frame.payload for frame in read_frames(endpoint, topic)}


def assert_promises_kept(publisher: Publisher, got: dict[Position, bytes]) -> None:
    """Everything confirmed is there, where the receipt said, in order; nothing that was refused is."""
    for number, position in publisher.confirmed.items():
        assert got.get(position) == publisher.payload(number), f"message {number} is not at {position}"
    there = numbers_of(publisher.producer_name, list(got.values()))
    assert there == sorted(set(there)), "a producer's messages are out of order or there twice"
    false = set(there) & publisher.refused.keys()
    assert not false, f"refused and yet on the topic: {sorted(false)[:5]}"
