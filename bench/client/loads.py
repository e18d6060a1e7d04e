"""The loads of one library, each in a process of its own: `python -m bench.client.loads LIBRARY LOAD ...`.

Prints one JSON object: figures by name. Both libraries do the same: payloads of one size to one topic, with
as many unconfirmed; all messages of a topic consumed and acknowledged one by one; messages on schedule.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from bench.figures import percentile

OURS: Final = "magnetar-client"
THEIRS: Final = "pulsar-client"

RATE: Final = "messages/s"
CPU: Final = "CPU us a message"
P50: Final = "p50 ms"
P99: Final = "p99 ms"
MEMORY: Final = "KiB a producer"
IMPORT: Final = "import ms"
IMPORT_BESIDE: Final = "import ms, asyncio is loaded"

PENDING: Final = 10_000
BURST: Final = 200
"""Messages sent before the loop turns: receipts are read in between."""


def produce(library: str, url: str, topic: str, size: int, batched: bool, count: int) -> dict[str, float]:
    """Publishes as fast as receipts come."""
    return (_produce if library == OURS else _produce_theirs)(url, topic, size, batched, count)


def _produce(url: str, topic: str, size: int, batched: bool, count: int) -> dict[str, float]:
    from magnetar.client import Batching, Client

    async def run() -> dict[str, float]:
        async with Client(url) as client:
            batching = Batching() if batched else None
            producer = await client.create_producer(topic, batching=batching, max_pending_messages=PENDING)
            payload, stored = bytes(size), 0

            def on_sent(error: object, _: object) -> None:
                nonlocal stored
                if error is not None:
                    raise SystemExit(str(error))
                stored += 1

            stop = _clock(count)
            for number in range(count):
                if not number % BURST:
                    await asyncio.sleep(0)
                    await producer.room()
                producer.send_nowait(payload, on_sent)
            await producer.flush()
            assert stored == count
            return stop()

    return asyncio.run(run())


def _produce_theirs(url: str, topic: str, size: int, batched: bool, count: int) -> dict[str, float]:
    client, pulsar = _theirs(url)
    producer = client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_publish_delay_ms=1,
        batching_max_messages=1_000,
        batching_max_allowed_size_in_bytes=128 * 1_024,
        block_if_queue_full=True,
        max_pending_messages=PENDING,
    )
    payload, stored, done = bytes(size), 0, threading.Event()

    def on_sent(result: Any, _: object) -> None:
        nonlocal stored
        if result != pulsar.Result.Ok:
            raise SystemExit(str(result))
        stored += 1
        if stored == count:
            done.set()

    stop = _clock(count)
    for _ in range(count):
        producer.send_async(payload, on_sent)
    done.wait()
    figures = stop()
    client.close()
    return figures


def consume(library: str, url: str, topic: str, count: int) -> dict[str, float]:
    """Consumes what is stored, and acknowledges each message by itself."""
    return (_consume if library == OURS else _consume_theirs)(url, topic, count)


def _consume(url: str, topic: str, count: int) -> dict[str, float]:
    from magnetar.client import Client

    async def run() -> dict[str, float]:
        async with Client(url) as client:
            name = f"ours-{time.time_ns()}"
            consumer = await client.subscribe(topic, name, type="shared", initial_position="earliest")
            stop, seen = _clock(count), 0
            for _ in range(count):
                message = await consumer.receive()
                seen += len(message.data)
                consumer.acknowledge_nowait(message)
            assert seen
            return stop()

    return asyncio.run(run())


def _consume_theirs(url: str, topic: str, count: int) -> dict[str, float]:
    client, pulsar = _theirs(url)
    consumer = client.subscribe(
        topic,
        f"theirs-{time.time_ns()}",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    stop, seen = _clock(count), 0
    for _ in range(count):
        message = consumer.receive()
        seen += len(message.data())
        consumer.acknowledge(message)
    assert seen
    figures = stop()
    client.close()
    return figures


def paced(library: str, url: str, topic: str, size: int, rate: int, count: int) -> dict[str, float]:
    """Publishes on schedule without batches; latencies count from the scheduled time."""
    return (_paced if library == OURS else _paced_theirs)(url, topic, size, rate, count)


def _paced(url: str, topic: str, size: int, rate: int, count: int) -> dict[str, float]:
    from magnetar.client import Client

    async def run() -> dict[str, float]:
        async with Client(url) as client:
            producer = await client.create_producer(topic, batching=None)
            payload, taken_ms = bytes(size), []
            began = time.perf_counter() + 0.05

            def timed(due: float) -> Callable[[object, object], None]:
                return lambda error, _: taken_ms.append((time.perf_counter() - due) * 1_000)

            for number in range(count):
                due = began + number / rate
                early = due - time.perf_counter()
                if early > 0:
                    await asyncio.sleep(early)
                producer.send_nowait(payload, timed(due))
            await producer.flush()
            return _latencies(taken_ms, count)

    return asyncio.run(run())


def _paced_theirs(url: str, topic: str, size: int, rate: int, count: int) -> dict[str, float]:
    client, _ = _theirs(url)
    producer = client.create_producer(topic, batching_enabled=False)
    payload, taken_ms, done = bytes(size), [], threading.Event()
    began = time.perf_counter() + 0.05

    def timed(due: float) -> Callable[[Any, Any], None]:
        def on_sent(_: Any, __: Any) -> None:
            taken_ms.append((time.perf_counter() - due) * 1_000)
            if len(taken_ms) == count:
                done.set()

        return on_sent

    for number in range(count):
        due = began + number / rate
        early = due - time.perf_counter()
        if early > 0:
            time.sleep(early)
        producer.send_async(payload, timed(due))
    done.wait()
    client.close()
    return _latencies(taken_ms, count)


def idle(library: str, url: str, topic: str, topics: int, count: int) -> dict[str, float]:
    """Opens producers on some topics and leaves them idle; memory is the growth of the process."""
    names = [f"{topic}-{number}" for number in range(topics)]
    if library == THEIRS:
        client, _ = _theirs(url)
        kept = [client.create_producer(name) for name in names]
        before = _resident_kib()
        kept += [client.create_producer(names[number % topics]) for number in range(count)]
        grown = _resident_kib() - before
        client.close()
        return {MEMORY: grown / count}

    from magnetar.client import Client

    async def run() -> dict[str, float]:
        async with Client(url) as client:
            kept = [await client.create_producer(name) for name in names]
            before = _resident_kib()
            for start in range(0, count, 100):
                opening = (
                    client.create_producer(names[number % topics]) for number in range(start, start + 100)
                )
                kept += await asyncio.gather(*opening)
            return {MEMORY: (_resident_kib() - before) / count}

    return asyncio.run(run())


def imported(library: str) -> dict[str, float]:
    """The time in which a new interpreter imports the library, beyond what one without it takes: one that has
    nothing, and one that has asyncio, as every program that uses it.
    """
    program = "from magnetar.client import Client" if library == OURS else "from pulsar import Client"
    _run_ms(program)  # Bytecode is written.
    alone = [_run_ms(program) - _run_ms("pass") for _ in range(9)]
    beside = [_run_ms(f"import asyncio; {program}") - _run_ms("import asyncio") for _ in range(9)]
    return {IMPORT: percentile(alone, 0.5), IMPORT_BESIDE: percentile(beside, 0.5)}


def _run_ms(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return (time.perf_counter() - began) * 1_000


def _theirs(url: str) -> tuple[Any, Any]:
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, logger=quiet), pulsar


def _clock(count: int) -> Callable[[], dict[str, float]]:
    """Starts the time of `count` messages; the result ends it and returns rate and CPU of the process."""
    cpu, began = time.process_time(), time.perf_counter()

    def stop() -> dict[str, float]:
        seconds = time.perf_counter() - began
        return {RATE: count / seconds, CPU: (time.process_time() - cpu) / count * 1e6}

    return stop


def _latencies(taken_ms: list[float], count: int) -> dict[str, float]:
    settled = taken_ms[count // 10 :]
    return {P50: percentile(settled, 0.5), P99: percentile(settled, 0.99)}


def _resident_kib() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1_024


LOADS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "produce": produce,
    "consume": consume,
    "paced": paced,
    "idle": idle,
    "import": imported,
}


def main(argv: list[str]) -> None:
    library, load, *words = argv
    given = [json.loads(word) if word[:1].isdigit() or word in ("true", "false") else word for word in words]
    print(json.dumps(LOADS[load](library, *given)))


if __name__ == "__main__":
    main(sys.argv[1:])
