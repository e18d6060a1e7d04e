"""Runner of the scenarios: verdict lines, time bounds, what a program asks of the service.

Each scenario has a client of its own, closed when it ends, and a thread of its own, so that one that hangs
fails after its bound and the program goes on. The library logs to the process's standard output; `main` moves
that to standard error before a client exists, and keeps the descriptor of the protocol's lines.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import pulsar

from tests.clients.catalogue import BY_NAME

CALM_SECONDS = 30.0
DISRUPTIVE_SECONDS = 300.0
RECEIVE_MILLISECONDS = 10_000
SILENCE_MILLISECONDS = 300
EARLIEST = pulsar.InitialPosition.Earliest
LATEST = pulsar.InitialPosition.Latest


class Lacks(Exception):
    """Raised by a scenario whose feature the library does not have."""


class _Client(pulsar.Client):  # type: ignore[misc]
    @functools.wraps(pulsar.Client.create_producer)  # `takes` reads the library's own signature
    def create_producer(self, *arguments: Any, **settings: Any) -> Any:
        """Create a producer; again where the library returned one without its implementation.

        Version 3.1.0 does so on a busy machine: its thread wakes before the result is stored. Such a producer
        has no topic, and every send fails with ProducerNotInitialized without reaching the service.
        """
        producer = super().create_producer(*arguments, **settings)
        if not producer.topic():
            producer = super().create_producer(*arguments, **settings)
        return producer


class Scene:
    """What one scenario gets: its client, its topics, the service's ear."""

    def __init__(self, url: str, prefix: str, keys: Path, name: str, protocol: TextIO) -> None:
        self.url = url
        self.keys = keys
        self.name = name
        self._prefix = prefix
        self._protocol = protocol
        self._clients: list[Any] = []
        self.client = self.new_client()

    def new_client(self) -> Any:
        """Connect once more, for what one client would not do twice."""
        client = _Client(
            self.url,
            operation_timeout_seconds=20,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        self._clients.append(client)
        return client

    def topic(self, suffix: str = "") -> str:
        return f"persistent://public/default/{self._prefix}-{self.name}{suffix}"

    def ask(self, verb: str, *arguments: object) -> str:
        """Have the service do something, and return the answer's value; RuntimeError if it could not."""
        print("ask", verb, *arguments, sep="\t", file=self._protocol, flush=True)
        answer, _, value = sys.stdin.readline().rstrip("\n").partition("\t")
        if answer != "done":
            raise RuntimeError(f"the harness could not {verb} {arguments}: {value or 'no answer'}")
        return value

    def producer(self, suffix: str = "", **settings: Any) -> Any:
        """Create a producer without batches, unless `settings` say otherwise."""
        return self.client.create_producer(self.topic(suffix), **settings)

    def consumer(
        self, suffix: str = "", subscription: str = "sub", *, client: Any = None, **settings: Any
    ) -> Any:
        """Subscribe at Earliest, unless `settings` say otherwise; with the scenario's client by default."""
        settings.setdefault("initial_position", EARLIEST)
        return (client or self.client).subscribe(self.topic(suffix), subscription, **settings)

    def close(self) -> None:
        for client in self._clients:
            with contextlib.suppress(pulsar.PulsarException):  # The scenario may have closed it.
                client.close()


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def expect_equal(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {str(actual)[:300]}, expected {str(expected)[:300]}")


def expect_refused(what: str, attempt: Callable[[], object]) -> None:
    """Expect the library's error of `attempt`; one that ends in a timeout is no refusal."""
    try:
        attempt()
    except pulsar.Timeout as error:
        raise AssertionError(f"{what} was not refused, but timed out") from error
    except pulsar.PulsarException:
        return
    raise AssertionError(f"{what} was not refused")


def expect_silence(consumer: Any, milliseconds: int = SILENCE_MILLISECONDS) -> None:
    """Fail if a message arrives."""
    try:
        message = consumer.receive(timeout_millis=milliseconds)
    except pulsar.Timeout:
        return
    raise AssertionError(f"one message too many: {message.data()[:100]!r} with id {message.message_id()}")


def until(holds: Callable[[], bool], otherwise: str, seconds: float = 10.0) -> None:
    """Wait for what has to become true."""
    end = time.monotonic() + seconds
    while not holds():
        expect(time.monotonic() < end, f"not within {seconds:g} s: {otherwise}")
        time.sleep(0.02)


def send(producer: Any, contents: Sequence[str], **fields: Any) -> None:
    for content in contents:
        producer.send(content.encode(), **fields)


def send_at_once(producer: Any, contents: Sequence[str]) -> None:
    """Send without waiting in between; raise if one fails."""
    results: list[Any] = []
    for content in contents:
        producer.send_async(content.encode(), lambda result, _: results.append(result))
    producer.flush()
    until(lambda: len(results) == len(contents), "every send has a result")
    expect_equal([result for result in results if result != pulsar.Result.Ok], [], "failed sends")


def receive(consumer: Any, count: int) -> list[Any]:
    """Return the next `count` messages, not acknowledged."""
    return [consumer.receive(timeout_millis=RECEIVE_MILLISECONDS) for _ in range(count)]


def receive_of_all(consumers: Sequence[Any], count: int) -> list[list[Any]]:
    """Return what each of the consumers gets of the next `count` messages, not acknowledged."""
    received: list[list[Any]] = [[] for _ in consumers]
    end = time.monotonic() + RECEIVE_MILLISECONDS / 1000
    while sum(map(len, received)) < count:
        counts = [len(messages) for messages in received]
        expect(time.monotonic() < end, f"the consumers got {counts} messages, {count} were expected")
        for consumer, messages in zip(consumers, received, strict=True):
            try:
                while True:
                    messages.append(consumer.receive(timeout_millis=20))
            except pulsar.Timeout:
                pass
    return received


def acknowledge(consumer: Any, messages: Sequence[Any]) -> None:
    for message in messages:
        consumer.acknowledge(message)


def texts(messages: Sequence[Any]) -> list[str]:
    return [message.data().decode() for message in messages]


def numbered(begin: int, end: int) -> list[str]:
    return [f"message {number}" for number in range(begin, end)]


def place(message_id: Any) -> tuple[int, int, int]:
    """Where a message is: ledger, entry, place in the batch."""
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether this version of the library knows the argument."""
    return argument in inspect.signature(function).parameters


def need(function: Callable[..., Any], argument: str, feature: str) -> None:
    if not takes(function, argument):
        raise Lacks(f"no {feature} in this version of the client")


def _verdict(play: Callable[[Scene], None], scene: Scene) -> tuple[str, ...]:
    try:
        play(scene)
    except Lacks as error:
        return "lacks", scene.name, str(error)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == play.__code__.co_filename]
        return "fail", scene.name, " ".join(f"{type(error).__name__}: {error} (line {lines[-1]})".split())
    return "pass", scene.name


def _run(play: Callable[[Scene], None], scene: Scene) -> tuple[str, ...]:
    seconds = DISRUPTIVE_SECONDS if BY_NAME[scene.name].disruptive else CALM_SECONDS
    verdicts: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: verdicts.append(_verdict(play, scene)), daemon=True)
    thread.start()
    thread.join(seconds)
    verdict = verdicts[0] if verdicts else ("fail", scene.name, f"did not end within {seconds:g} s")
    threading.Thread(target=scene.close, daemon=True).start()
    return verdict


def main(scenarios: dict[str, Callable[[Scene], None]], arguments: Sequence[str]) -> None:
    """Run the named scenarios and leave the process, whatever threads the library still has."""
    url, prefix, keys, *names = arguments
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in names:
        print("begin", name, sep="\t", file=protocol, flush=True)
        if name in scenarios:
            verdict = _run(scenarios[name], Scene(url, prefix, Path(keys), name, protocol))
        else:
            verdict = ("fail", name, "this program has no such scenario")
        print(*verdict, sep="\t", file=protocol, flush=True)
    sys.stderr.flush()
    os._exit(0)


def scenarios_of(*modules: Any) -> Iterator[tuple[str, Callable[[Scene], None]]]:
    """Name and function of each scenario: the public functions of the modules, dashes for underscores."""
    for module in modules:
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__
            if own and not name.startswith("_"):
                yield name.replace("_", "-"), function
