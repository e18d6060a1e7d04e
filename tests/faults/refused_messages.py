"""What the client from PyPI makes of a refused message: copies, reconnects, what its caller hears, and when.

As a program it prints a line of the table in docs/faults.md for each case, of a standalone of its own and,
with `--broker NAME SERVICE_URL HTTP_URL`, of one that runs already: `python -m tests.faults.refused_messages
--help`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import pulsar

from tests.faults.small_disk import SmallDisk
from tests.integration.admin_calls import set_policy
from tests.integration.harness import Endpoint, StandaloneServer, temporary_directory

SEGMENT_BYTES: Final = 256 << 10
HEADROOM_BYTES: Final = 1 << 20
SMALL_DISK: Final = {
    "magnetarSegmentSizeBytes": str(SEGMENT_BYTES),
    "magnetarLogFillAheadBytes": str(64 << 10),
    "magnetarLogFreeSpaceHeadroomBytes": str(HEADROOM_BYTES),
}
BYTES_MAX: Final = 1_000
DELAY_CAP_MS: Final = 1_000
TAKEN_UP_S: Final = 1.0
"""Apache's broker takes a policy up a moment after its answer."""
NEIGHBOR_PAUSE_S: Final = 0.002
OPENED: Final = "Created producer on broker"
CONNECTED: Final = "Connected to broker"


@dataclass(slots=True)
class Outcome:
    """What became of one message: seconds until its callback, and its result; None while there is none."""

    seconds: float | None = None
    result: str | None = None


@dataclass(slots=True)
class Seen:
    """What was seen of one case."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    copies: Counter[bytes] = field(default_factory=Counter)
    neighbors: Counter[bytes] = field(default_factory=Counter)
    reopened: int = 0
    neighbor_reopened: int = 0
    connections: int = 0
    recovered_s: float | None = None
    """From the moment at which what refused was gone to the next message that was stored."""

    @property
    def neighbors_twice(self) -> int:
        """Messages of the producer beside it that are on their topic more than once."""
        return sum(1 for copies in self.neighbors.values() if copies > 1)


class Case:
    """A client with a producer under test and a neighbor on the same connection, on a topic of its own."""

    def __init__(self, service_url: str, topic: str, send_timeout_s: float = 30.0) -> None:
        self.topic = topic
        self._service_url = service_url
        self._directory = temporary_directory()
        self._log = self._directory / "client.log"
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(self._log))
        self._client = pulsar.Client(service_url, logger=logger)
        options = {"batching_enabled": False, "send_timeout_millis": int(send_timeout_s * 1000)}
        self._producer = self._client.create_producer(topic, **options)
        self._neighbor = self._client.create_producer(
            f"{topic}-neighbor", max_pending_messages=100_000, **options
        )
        self._producer.send(b"first")
        self._connected = self._times(CONNECTED)
        self._ending = threading.Event()
        self._neighbors = threading.Thread(target=self._publish_beside, daemon=True)
        self._neighbors.start()
        self.seen = Seen()

    def send(self, name: str, payload: bytes, delay_s: float = 0.0) -> None:
        """Publish without waiting; its outcome has this name."""
        outcome = self.seen.outcomes[name] = Outcome()
        began = time.monotonic()

        def answered(result: pulsar.Result, _: pulsar.MessageId) -> None:
            outcome.seconds, outcome.result = time.monotonic() - began, result.name

        delay = timedelta(seconds=delay_s) if delay_s else None
        self._producer.send_async(payload, answered, deliver_after=delay)

    def send_until_stored(self, name: str, seconds_max: float) -> float | None:
        """Publish a message again until it is stored; seconds that it took, None when it took too long."""
        began = time.monotonic()
        while (left := began + seconds_max - time.monotonic()) > 0:
            self.send(name, name.encode())
            if self.wait_for(name, seconds_max=left) and self.seen.outcomes[name].result == "Ok":
                return time.monotonic() - began
        return None

    def wait_for(self, *names: str, seconds_max: float) -> bool:
        """True once each of these messages has its outcome."""
        deadline = time.monotonic() + seconds_max
        while any(self.seen.outcomes[name].result is None for name in names):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _publish_beside(self) -> None:
        number = 0
        while not self._ending.wait(NEIGHBOR_PAUSE_S):
            self._neighbor.send_async(b"%d" % number, lambda result, message_id: None)
            number += 1

    def _times(self, *parts: str) -> int:
        """How many lines of the log have all of these; 0 where another client of the process has the log."""
        if not self._log.exists():
            return 0
        return sum(all(part in line for part in parts) for line in self._log.read_text().splitlines())

    def end(self) -> Seen:
        """Stop the client, and read what is on the topics."""
        self.seen.reopened = self._times(OPENED, f"[{self.topic},") - 1
        self.seen.neighbor_reopened = self._times(OPENED, f"[{self.topic}-neighbor,") - 1
        self.seen.connections = self._times(CONNECTED) - self._connected
        self._ending.set()
        self._neighbors.join()
        self._client.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        client = pulsar.Client(self._service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            self.seen.copies = Counter(_everything(client, self.topic))
            self.seen.neighbors = Counter(_everything(client, f"{self.topic}-neighbor"))
        finally:
            client.close()
        return self.seen


def _everything(client: pulsar.Client, topic: str) -> Iterator[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        yield reader.read_next(30_000).data()
    reader.close()


@contextmanager
def full_disk() -> Iterator[tuple[StandaloneServer, SmallDisk]]:
    """A standalone on a small disk that is not full yet. Needs root."""
    directory = temporary_directory()
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        disk = SmallDisk("ext4", directory / "disk", 24, cleanup)
        server = StandaloneServer(directory, SMALL_DISK)
        server.data_dir = disk.path / "data"
        cleanup.callback(server.kill)
        server.start()
        yield server, disk


def fill(disk: SmallDisk) -> None:
    """Leave less than the log's reserve."""
    disk.leave_free(2 * SEGMENT_BYTES + HEADROOM_BYTES - (128 << 10))


def too_large(service_url: str, endpoint: Endpoint, seconds: float) -> Seen:
    """A message over its topic's own limit, and a small one behind it."""
    case = Case(service_url, new_topic())
    set_policy(endpoint, case.topic, "maxMessageSize", BYTES_MAX)
    time.sleep(TAKEN_UP_S)
    return _watched(case, bytes(2 * BYTES_MAX), 0.0, seconds)


def delayed_too_long(service_url: str, endpoint: Endpoint, seconds: float) -> Seen:
    """A message delayed beyond its topic's cap, and one behind it that is not delayed."""
    case = Case(service_url, new_topic())
    cap = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": DELAY_CAP_MS}
    set_policy(endpoint, case.topic, "delayedDelivery", cap)
    time.sleep(TAKEN_UP_S)
    return _watched(case, b"late", 3_600.0, seconds)


def _watched(case: Case, payload: bytes, delay_s: float, seconds: float) -> Seen:
    case.send("refused", payload, delay_s)
    case.send("small", b"small")
    time.sleep(seconds)
    return case.end()


def on_a_full_disk(seconds: float) -> Seen:
    """Two messages while the disk is under its reserve, which is freed after `seconds`; then another."""
    with full_disk() as (server, disk):
        case = Case(server.endpoint.service_url, new_topic())
        fill(disk)
        time.sleep(TAKEN_UP_S)  # What is on its way may still be taken.
        case.send("refused", b"no space")
        case.send("small", b"small")
        time.sleep(seconds)
        disk.free_up()
        case.seen.recovered_s = case.send_until_stored("later", seconds_max=60.0)
        return case.end()


def new_topic() -> str:
    """A topic that no other case uses."""
    return f"persistent://public/default/refused-{uuid.uuid4().hex[:10]}"


def _row(broker: str, case: str, seen: Seen) -> str:
    def told(name: str) -> str:
        outcome = seen.outcomes[name]
        return "nothing" if outcome.seconds is None else f"{outcome.result} after {outcome.seconds:.2f} s"

    recovered = seen.recovered_s
    return (
        f"| {case} | {broker} | {seen.copies[b'small']} | {seen.reopened} | {seen.connections} | "
        f"{told('refused')} | {told('small')} | {seen.neighbors_twice} of {len(seen.neighbors)}, "
        f"{seen.neighbor_reopened} |{'' if recovered is None else f' stored again after {recovered:.1f} s |'}"
    )


def of_standalone(watch: Callable[[str, Endpoint, float], Seen], seconds: float) -> Seen:
    """A case against a standalone of its own."""
    directory = temporary_directory()
    server = StandaloneServer(directory)
    try:
        server.start()
        return watch(server.endpoint.service_url, server.endpoint, seconds)
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Print a row for each case, each watched in a process of its own: a process has one log of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="watch each case for so long")
    parser.add_argument(
        "--broker", nargs=3, metavar=("NAME", "SERVICE_URL", "HTTP_URL"), help="one that runs"
    )
    options = parser.parse_args()
    cases = {"over the topic's size": too_large, "over the delay cap": delayed_too_long}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        if options.broker is not None:
            name, service_url, http_url = options.broker
            endpoint = Endpoint(service_url, http_url)
            for case, watch in cases.items():
                seen = processes.submit(watch, service_url, endpoint, options.seconds).result()
                print(_row(name, case, seen), flush=True)
            return
        for case, watch in cases.items():
            seen = processes.submit(of_standalone, watch, options.seconds).result()
            print(_row("Magnetar", case, seen), flush=True)
        seen = processes.submit(on_a_full_disk, options.seconds + 10).result()
        print(_row("Magnetar", "disk under its reserve", seen), flush=True)


if __name__ == "__main__":
    main()
