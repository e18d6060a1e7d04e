"""`python -m bench.compaction`: compaction and compacted views, of Magnetar and of Apache Pulsar in one run.

Messages of 1 KiB over many keys are published, then compacted, and again after one hundredth of them was
published anew. Then the view is read. One publisher on another topic says what its messages wait meanwhile.
The brokers run one after the other, each alone.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import crc32c
import uvloop
from magnetar.common.wire import pulsar_pb2 as pb

from bench.brokers import (
    APACHE_PULSAR,
    MAGNETAR,
    ApachePulsar,
    Broker,
    Magnetar,
    apache_pulsar_jars,
    first_acknowledgement,
)
from bench.connection import Connection
from bench.figures import histogram_quantile, percentile
from bench.frames import FIRST_SEQUENCE_ID, PRODUCER_ID, PUBLISH_TIME_MS, SendTemplate, sequence_varints
from bench.generator import close, produce, until_done
from bench.progress import Steps
from bench.shares import TakeShare
from bench.table import lines, markdown
from bench.target import RESULTS, Target, new_topic, report
from bench.tls_socket import attach

MESSAGES: Final = 1_000_000
KEYS: Final = 100_000
PAYLOAD_BYTES: Final = 1_024
NEW_SHARE: Final = 100
"""The second run has this part of the messages anew."""
WINDOW: Final = 2_000
LOOK_S: Final = 0.02
COMPACTION_S_MAX: Final = 1_800.0
PROBE_EVERY_S: Final = 0.005
IDLE_S: Final = 5.0
LAST_IDS: Final = 500
TABLE: Final = RESULTS / "compaction.md"

_command: Any = pb.BaseCommand


class KeyedSends:
    """Sends with keys drawn at random, `batch` messages an entry; message n has the same key in each run."""

    def __init__(self, keys: int, payload_bytes: int, batch: int = 1, *, seed: int = 1) -> None:
        self._keys = keys
        self._batch = batch
        self._random = random.Random(seed)
        self._payload = random.Random(0).randbytes(payload_bytes)
        self.messages = batch
        metadata = pb.MessageMetadata(
            producer_name="bench", sequence_id=FIRST_SEQUENCE_ID, publish_time=PUBLISH_TIME_MS
        )
        command: dict[str, int] = {"producer_id": PRODUCER_ID, "sequence_id": FIRST_SEQUENCE_ID}
        if batch > 1:
            metadata.num_messages_in_batch = batch
            command["num_messages"] = batch
        else:
            metadata.uncompressed_size = payload_bytes
        self._metadata = metadata.SerializeToString()
        encoded = _command(type=pb.BaseCommand.SEND, send=command).SerializeToString()
        (varint,) = sequence_varints(FIRST_SEQUENCE_ID, 1)
        self._before, self._after = encoded.split(b"\x10" + varint, 1)
        self.frame_bytes = len(self.burst(FIRST_SEQUENCE_ID, 1))

    def burst(self, first: int, count: int) -> bytes:
        """`count` frames with sequence ids from `first`."""
        parts: list[bytes] = []
        for varint in sequence_varints(first, count):
            command = b"%b\x10%b%b" % (self._before, varint, self._after)
            header, payload = self._entry()
            checked = b"%b%b%b" % (struct.pack(">I", len(header)), header, payload)
            size = len(command) + len(checked) + 10
            parts += (
                struct.pack(">II", size, len(command)),
                command,
                b"\x0e\x01",
                struct.pack(">I", crc32c.crc32c(checked)),
                checked,
            )
        return b"".join(parts)

    def _entry(self) -> tuple[bytes, bytes]:
        draw, keys, payload = self._random.randrange, self._keys, self._payload
        if self._batch == 1:
            # Field 6 of MessageMetadata is the partition key; the order of fields does not matter.
            return self._metadata + b"\x32\x0akey-%06d" % draw(keys), payload
        size = pb.SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        messages: list[bytes] = []
        for _ in range(self._batch):
            single = b"%b\x12\x0akey-%06d" % (size, draw(keys))
            messages += (struct.pack(">I", len(single)), single, payload)
        return self._metadata, b"".join(messages)


@dataclass(frozen=True, slots=True)
class Load:
    """How much is published."""

    messages: int
    keys: int
    batch: int


def measure(broker: Broker, load: Load, steps: Steps) -> dict[str, float]:
    """Start a broker, and take all figures of it. Raises RuntimeError when a compaction fails."""
    name = APACHE_PULSAR if isinstance(broker, ApachePulsar) else MAGNETAR
    try:
        steps.begin(f"{name}: starting")
        first_acknowledgement(broker)
        target, topic = broker.target, new_topic()
        with closing(Connection(target.service_url)) as keeper:
            keeper.subscribe(topic)  # without a subscription retention takes what is not compacted yet
        found: dict[str, float] = {}
        steps.begin(f"{name}: publishing {load.messages:,} messages")
        _publish(target, topic, load, load.messages, seed=1)
        with _probing(target) as idle_ms:
            time.sleep(IDLE_S)
        steps.begin(f"{name}: compacting")
        with _probing(target) as busy_ms:
            found |= {f"first run, {what}": value for what, value in _compact(target, topic).items()}
        found["publish p99 without a run, ms"] = percentile(idle_ms, 0.99)
        found["publish p99 during the run, ms"] = percentile(busy_ms, 0.99)
        steps.begin(f"{name}: compacting what is new")
        _publish(target, topic, load, load.messages // NEW_SHARE, seed=2)
        found |= {f"second run, {what}": value for what, value in _compact(target, topic).items()}
        steps.begin(f"{name}: reading the view")
        found |= _read_view(target, topic, load)
    finally:
        broker.stop()
    return found


def _publish(target: Target, topic: str, load: Load, messages: int, seed: int) -> None:
    connection = Connection(target.service_url)
    connection.open_producer(topic)
    sends = KeyedSends(load.keys, PAYLOAD_BYTES, load.batch, seed=seed)
    produce(connection.hand_over(), sends, window=WINDOW, entries=messages // load.batch)


@contextmanager
def _probing(target: Target) -> Iterator[list[float]]:
    """Publish single messages to a topic of their own; the list gets the milliseconds of each."""
    taken_ms: list[float] = []
    stop = threading.Event()
    connection = Connection(target.service_url)
    connection.open_producer(new_topic())
    template = SendTemplate(100)

    def probe() -> None:
        number = FIRST_SEQUENCE_ID
        while not stop.wait(PROBE_EVERY_S):
            began = time.perf_counter()
            connection.send_and_await_receipt(template.burst(number, 1))
            taken_ms.append((time.perf_counter() - began) * 1000)
            number += 1

    thread = threading.Thread(target=probe)
    with closing(connection):
        thread.start()
        try:
            yield taken_ms
        finally:
            stop.set()
            thread.join()


def _compact(target: Target, topic: str) -> dict[str, float]:
    """Compact a topic: seconds, and what the broker's process used. Raises RuntimeError, TimeoutError."""
    path = f"{target.http_url}/admin/v2/{topic.replace('://', '/')}/compaction"
    lag = target.loop_lag_buckets()
    cpu, rss = target.cpu_seconds(), target.rss_bytes()
    rss_max = rss
    began = time.perf_counter()
    _call("PUT", path)
    while True:
        time.sleep(LOOK_S)
        rss_max = max(rss_max, target.rss_bytes())
        status = json.loads(_call("GET", path))
        if status["status"] != "RUNNING":
            break
        if time.perf_counter() - began > COMPACTION_S_MAX:
            raise TimeoutError(f"the compaction did not end within {COMPACTION_S_MAX:g} s")
    seconds = time.perf_counter() - began
    if status["status"] != "SUCCESS":
        raise RuntimeError(f"the compaction ended with {status}")
    found = {
        "s": seconds,
        "CPU s": target.cpu_seconds() - cpu,
        "MB more resident": (rss_max - rss) / 1e6,
        "MB resident": rss_max / 1e6,
    }
    after = target.loop_lag_buckets()
    if after:
        during = [(bound, count - lag.get(bound, 0.0)) for bound, count in sorted(after.items())]
        found["loop lag p99, ms"] = histogram_quantile(during, 0.99) * 1000
    return found


def _call(method: str, url: str) -> bytes:
    request = urllib.request.Request(url, method=method, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return bytes(response.read())


def _read_view(target: Target, topic: str, load: Load) -> dict[str, float]:
    """Read a view of which the number of messages is unknown: until the last message's id has come."""
    asking = Connection(target.service_url)
    asking.subscribe_compacted(topic, "asking")
    asked_ms = []
    for number in range(LAST_IDS):
        began = time.perf_counter()
        last = asking.last_message_id(number)
        asked_ms.append((time.perf_counter() - began) * 1000)
    asking.close()
    reading = Connection(target.service_url)
    reading.subscribe_compacted(topic, "reading")
    cpu = target.cpu_seconds()

    async def main() -> tuple[int, float, float]:
        first = 0.0

        def taken(messages: list[bytes]) -> None:
            nonlocal first
            first = first or time.perf_counter()
            for each in messages[-1:]:
                message_id = pb.BaseCommand.FromString(each).message.message_id
                if (message_id.ledgerId, message_id.entryId) >= last:
                    side.finish()

        side = TakeShare(taken, acknowledge=False, batch=load.batch)
        await attach(side, reading.hand_over())
        began = time.perf_counter()
        side.start()
        await until_done(side)
        await close(side)
        return side.count, first - began, side.ended - began

    entries, first_s, seconds = uvloop.run(main())
    return {
        "view, entries": float(entries),
        "view, entries/s": entries / seconds,
        "view, first message, ms": first_s * 1000,
        "view, CPU s per million": (target.cpu_seconds() - cpu) / entries * 1e6,
        "last message id p99, ms": percentile(asked_ms, 0.99),
    }


def table(found: dict[str, dict[str, float]]) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Headings and rows: each broker's figure, and with both the ratio of Magnetar's to the anchor's."""
    names = list(found)
    keys = dict.fromkeys(key for figures in found.values() for key in figures)
    rows: list[Sequence[object]] = []
    for key in keys:
        values: list[object] = [found[name].get(key, "-") for name in names]
        if len(names) > 1:
            ours, theirs = values
            both = isinstance(ours, float) and isinstance(theirs, float) and theirs
            values.append(ours / theirs if both else "-")  # type: ignore[operator]
        rows.append((key, *values))
    return ("", *names, *(("ratio",) if len(names) > 1 else ())), rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compaction", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"of 1 KiB (default {MESSAGES:,})")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"drawn at random (default {KEYS:,})")
    parser.add_argument("--batch", type=int, default=1, help="messages in an entry (default 1)")
    parser.add_argument("--quick", action="store_true", help="20,000 messages of 2,000 keys")
    parser.add_argument("--only", choices=("magnetar", "apache"), help="measure one of the two")
    options = parser.parse_args(argv)
    load = Load(options.messages, options.keys, options.batch)
    if options.quick:
        load = Load(20_000, 2_000, options.batch)
    brokers: dict[str, Callable[[], Broker]] = {}
    if options.only != "apache":
        brokers[MAGNETAR] = Magnetar
    if options.only != "magnetar":
        jars = apache_pulsar_jars(print)
        if isinstance(jars, str):
            parser.error(f"Apache Pulsar cannot be measured: {jars}; give --only magnetar")
        brokers[APACHE_PULSAR] = lambda: ApachePulsar(jars)
    with Steps(5 * len(brokers)) as steps:
        found = {name: measure(make(), load, steps) for name, make in brokers.items()}
    for name, figures in found.items():
        shape = {"broker": name, "messages": load.messages, "keys": load.keys, "batch": load.batch}
        report("compaction", {**shape, **figures})
    headings, rows = table(found)
    markdown(TABLE, headings, rows)
    print("\n".join(lines(headings, rows)))


if __name__ == "__main__":
    main()
