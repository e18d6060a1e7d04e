"""The runs of `magnetar perf`: publish on schedule, or consume, until a count, a time or Ctrl-C."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from magnetar.cli.client.perf.report import Following, Measurement, show_figures
from magnetar.client.client import Client
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.consumer.options import InitialPosition, SubscriptionType
from magnetar.client.errors import ClientError
from magnetar.client.messages import OnSent
from magnetar.client.producer.options import Batching, Compression
from magnetar.client.producer.producer import Producer

TICK_S: Final = 0.2
FLUSH_S_MAX: Final = 30.0
BURST_MAX: Final = 1_000
"""Maximum messages sent before yielding to other tasks."""

RANDOM_KEYS: Final = 1_000


def names_of(topic: str, count: int) -> list[str]:
    """The topics of a run."""
    return [topic] if count == 1 else [f"{topic}-{number}" for number in range(count)]


@dataclass(slots=True, kw_only=True)
class PerfProduce:
    """`topics` has one topic name per producer."""

    topics: list[str]
    batching: Batching | None
    compression: Compression
    outstanding: int
    rate: float
    size: int
    keys: str | None
    messages: int
    seconds: float
    interval: float

    async def run(self, client: Client, stopped: asyncio.Event, *, as_json: bool) -> int:
        measured = Measurement("produced")
        producers = [
            await client.create_producer(
                name,
                batching=self.batching,
                compression=self.compression,
                max_pending_messages=self.outstanding,
                send_timeout_s=0,
            )
            for name in self.topics
        ]
        following = Following(measured, self.messages, self.seconds, self.interval)
        measured.start()
        tasks = [asyncio.ensure_future(self._send(producers, stopped, measured))]
        try:
            await _follow(tasks, stopped, following, 0.0)
            async with asyncio.timeout(FLUSH_S_MAX):
                await asyncio.gather(*(producer.flush() for producer in producers))
        except TimeoutError:
            click.echo(f"some messages were not confirmed within {FLUSH_S_MAX:g} s", err=True)
            return 1
        finally:
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            following.close()
            show_figures(measured, as_json=as_json)
            await asyncio.gather(*(producer.close() for producer in producers))
        return 0

    async def _send(
        self, producers: list[Producer[bytes]], stopped: asyncio.Event, measured: Measurement
    ) -> None:
        now, began = measured.now, measured.began
        deadline = began + self.seconds if self.seconds else float("inf")
        last = self.messages or 1 << 62
        turns = itertools.cycle(producers)
        payload, size = bytes(self.size), self.size
        failed: list[ClientError] = []
        sent = 0

        def timed(tag: float) -> OnSent:
            def on_sent(error: ClientError | None, _: object) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    measured.add([now() - tag], size)

            return on_sent

        while sent < last and not stopped.is_set() and (time_now := now()) < deadline:
            due = min(int((time_now - began) * self.rate) + 1, last) if self.rate else last
            burst = min(due - sent, BURST_MAX)
            for _ in range(burst):
                tag = began + sent / self.rate if self.rate else now()
                producer, key = next(turns), self._key(sent)
                await producer.room(key)
                producer.send_nowait(payload, timed(tag), key=key)
                sent += 1
            if failed:
                raise failed[0]
            await asyncio.sleep(0 if burst == BURST_MAX else min(0.001, deadline - time_now))

    def _key(self, number: int) -> str | None:
        if self.keys is None:
            return None
        return str(number if self.keys == "autoIncrement" else random.randrange(RANDOM_KEYS))


@dataclass(slots=True, kw_only=True)
class PerfConsume:
    """`opened` has a topic and a subscription per consumer."""

    opened: list[tuple[str, str]]
    type: SubscriptionType
    position: InitialPosition
    queue_size: int
    rate: float
    messages: int
    seconds: float
    interval: float

    async def run(self, client: Client, stopped: asyncio.Event, *, as_json: bool) -> int:
        measured = Measurement("consumed")
        consumers = [
            await client.subscribe(
                topic,
                subscription,
                type=self.type,
                initial_position=self.position,
                queue_size=self.queue_size,
            )
            for topic, subscription in self.opened
        ]
        following = Following(measured, self.messages, self.seconds, self.interval)
        measured.start()
        done = asyncio.Event()
        tasks = [asyncio.ensure_future(self._receive(consumer, measured, done)) for consumer in consumers]
        ending = asyncio.ensure_future(done.wait())
        try:
            await _follow([ending, *tasks], stopped, following, self.seconds)
        finally:
            for task in (ending, *tasks):
                task.cancel()
            await asyncio.gather(ending, *tasks, return_exceptions=True)
            following.close()
            show_figures(measured, as_json=as_json)
            await asyncio.gather(*(consumer.close() for consumer in consumers))
        return 0

    async def _receive(self, consumer: Consumer[bytes], measured: Measurement, done: asyncio.Event) -> None:
        while not done.is_set():
            message = await consumer.receive()
            latency = time.time() - message.publish_time_ms / 1000
            measured.add([latency], len(message.data))
            consumer.acknowledge_nowait(message)
            if self.messages and measured.messages >= self.messages:
                done.set()
            if self.rate:
                early = measured.began + measured.messages / self.rate - measured.now()
                if early > 0:
                    await asyncio.sleep(early)


async def _follow(
    tasks: Sequence[asyncio.Future[Any]],
    stopped: asyncio.Event,
    following: Following,
    seconds: float,
) -> None:
    """Wait until a task ends, Ctrl-C, or `seconds` have passed (0: no limit). Raises the task's error."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds if seconds else float("inf")
    while not stopped.is_set() and loop.time() < deadline:
        ended, _ = await asyncio.wait(
            tasks, timeout=min(TICK_S, max(deadline - loop.time(), 0)), return_when=asyncio.FIRST_COMPLETED
        )
        following.tick()
        if ended:
            for task in ended:
                if (error := task.exception()) is not None:
                    raise error
            return
