"""Runner of the scenarios: verdict lines, time bounds, what a program asks of the service.

Each scenario has a client of its own, closed when it ends; all run on one event loop, one after the other. A
scenario also fails if closing its clients leaves a task behind.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from magnetar.client import Client, Consumer, Message, MessageId, Producer
from magnetar.client.errors import OperationTimeout, Refused

from tests.clients.catalogue import BY_NAME

CALM_S: Final = 30.0
DISRUPTIVE_S: Final = 300.0
CLOSE_S: Final = 20.0
RECEIVE_S: Final = 10.0
SILENCE_S: Final = 0.3

Play = Callable[["Scene"], Awaitable[None]]


class Lacks(Exception):
    """Raised by a scenario whose feature the library does not have."""


class Scene:
    """The means of one scenario: its client, its topics, the service's ear."""

    def __init__(self, url: str, prefix: str, keys: Path, name: str, protocol: TextIO) -> None:
        self.url = url
        self.keys = keys
        self.name = name
        self._prefix = prefix
        self._protocol = protocol
        self._clients: list[Client] = []
        self.client = self.new_client()

    def new_client(self) -> Client:
        """Connect once more, for what one client would not do twice."""
        client = Client(self.url, operation_timeout_s=20)
        self._clients.append(client)
        return client

    def topic(self, suffix: str = "") -> str:
        return f"persistent://public/default/{self._prefix}-{self.name}{suffix}"

    async def ask(self, verb: str, *arguments: object) -> str:
        """Have the service do something, and return the answer's value; RuntimeError if it could not."""
        print("ask", verb, *arguments, sep="\t", file=self._protocol, flush=True)
        line: str = await asyncio.to_thread(sys.stdin.readline)
        answer, _, value = line.rstrip("\n").partition("\t")
        if answer != "done":
            raise RuntimeError(f"the harness could not {verb} {arguments}: {value or 'no answer'}")
        return value

    async def producer(self, suffix: str = "", **settings: Any) -> Producer[Any]:
        """Create a producer without batches, unless `settings` say otherwise."""
        settings.setdefault("batching", None)
        return await self.client.create_producer(self.topic(suffix), **settings)

    async def consumer(self, suffix: str = "", subscription: str = "sub", **settings: Any) -> Consumer[Any]:
        """Subscribe at Earliest, unless `settings` say otherwise."""
        settings.setdefault("initial_position", "earliest")
        return await self.client.subscribe(self.topic(suffix), subscription, **settings)

    async def backlog_is(self, count: int) -> None:
        """Wait until the service counts so many unacknowledged entries."""
        end = time.monotonic() + RECEIVE_S
        while (found := await self.ask("backlog", self.topic(), "sub")) != str(count):
            expect(time.monotonic() < end, f"the backlog is {found}, {count} was expected")
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def expect_equal(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {str(actual)[:300]}, expected {str(expected)[:300]}")


async def expect_refused(
    what: str, attempt: Awaitable[object], kind: type[Exception] | tuple[type[Exception], ...] = Refused
) -> None:
    """Expect an error of the kind; another one, and a timeout, is no refusal."""
    try:
        await attempt
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{what} failed with {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what} was not refused")


async def expect_silence(consumer: Consumer[Any], seconds: float = SILENCE_S) -> None:
    """Fail if a message arrives."""
    try:
        message = await consumer.receive(seconds)
    except OperationTimeout:
        return
    raise AssertionError(f"one message too many: {message.data[:100]!r} with id {message.id}")


async def until(holds: Callable[[], bool], otherwise: str, seconds: float = 10.0) -> None:
    """Wait for what has to become true."""
    end = time.monotonic() + seconds
    while not holds():
        expect(time.monotonic() < end, f"not within {seconds:g} s: {otherwise}")
        await asyncio.sleep(0.01)


async def send(producer: Producer[Any], contents: Sequence[str], **fields: Any) -> None:
    for content in contents:
        await producer.send(content.encode(), **fields)


async def send_at_once(producer: Producer[Any], contents: Sequence[str]) -> list[MessageId]:
    """Send without waiting in between, and return the ids; raise if one fails."""
    results: list[MessageId | Exception] = []

    def sent(error: Exception | None, message_id: MessageId | None) -> None:
        result = error or message_id
        assert result is not None
        results.append(result)

    for content in contents:
        producer.send_nowait(content.encode(), sent)
    await producer.flush()
    expect_equal(len(results), len(contents), "results")
    ids = [result for result in results if isinstance(result, MessageId)]
    expect_equal(len(ids), len(contents), "messages stored")
    return ids


async def receive(consumer: Consumer[Any], count: int) -> list[Message]:
    """Return the next `count` messages, not acknowledged."""
    return [await consumer.receive(RECEIVE_S) for _ in range(count)]


async def receive_of_all(consumers: Sequence[Consumer[Any]], count: int) -> list[list[Message]]:
    """Return what each of the consumers gets of the next `count` messages, not acknowledged."""
    received: list[list[Message]] = [[] for _ in consumers]
    end = time.monotonic() + RECEIVE_S
    while sum(map(len, received)) < count:
        counts = [len(messages) for messages in received]
        expect(time.monotonic() < end, f"the consumers got {counts} messages, {count} were expected")
        for consumer, messages in zip(consumers, received, strict=True):
            messages += await consumer.receive_batch(timeout_s=0.02)
    return received


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.data.decode() for message in messages]


def numbered(begin: int, end: int) -> list[str]:
    return [f"message {number}" for number in range(begin, end)]


async def _verdict(play: Play, scene: Scene, seconds: float) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(seconds):
            await play(scene)
    except Lacks as error:
        return "lacks", scene.name, str(error)
    except Exception as error:
        return "fail", scene.name, _reason(play, error)
    return "pass", scene.name


def _reason(play: Play, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == inspect.getsourcefile(play)]
    where = f" (line {lines[-1]})" if lines else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())


async def _run(play: Play, scene: Scene) -> tuple[str, ...]:
    seconds = DISRUPTIVE_S if BY_NAME[scene.name].disruptive else CALM_S
    verdict = await _verdict(play, scene, seconds)
    try:
        async with asyncio.timeout(CLOSE_S):
            await scene.close()
    except Exception as error:
        return ("fail", scene.name, f"closing: {_reason(play, error)}") if verdict[0] == "pass" else verdict
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    if left and verdict[0] == "pass":
        return "fail", scene.name, f"closed clients leave tasks: {sorted(map(str, left))}"
    return verdict


async def _run_all(scenarios: dict[str, Play], arguments: Sequence[str], protocol: TextIO) -> None:
    url, prefix, keys, *names = arguments
    for name in names:
        print("begin", name, sep="\t", file=protocol, flush=True)
        if name in scenarios:
            verdict = await _run(scenarios[name], Scene(url, prefix, Path(keys), name, protocol))
        else:
            verdict = ("fail", name, "this program has no such scenario")
        print(*verdict, sep="\t", file=protocol, flush=True)


def main(scenarios: dict[str, Play], arguments: Sequence[str]) -> None:
    """Run the named scenarios; what else is printed goes to standard error."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(_run_all(scenarios, arguments, protocol))


def scenarios_of(*modules: Any) -> Iterator[tuple[str, Play]]:
    """Name and function of each scenario: the public functions of the modules, dashes for underscores."""
    for module in modules:
        for name, function in vars(module).items():
            own = inspect.iscoroutinefunction(function) and function.__module__ == module.__name__
            if own and not name.startswith("_"):
                yield name.replace("_", "-"), function
