"""A topic's managed ledger over the local store in a simulated process, with a listener that writes down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from magnetar.common.errors import StorageError
from magnetar.common.metadata.values import TopicHead, decode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    open_managed_ledger,
)
from magnetar.sim.loop import SimLoop
from magnetar.sim.loop import run as run_loop

from tests.simulation.power_loss import KEYS, Process, World

HEAD = "topic-heads"
TOPIC = "persistent://public/default/topic"

ROLL_AT_10 = ManagedLedgerConfig(ledger_entries_max=10, ledger_age_min_minutes=0)


@dataclass
class Listener:
    """What a topic would be told."""

    confirmed: list[tuple[Position, bytes]] = field(default_factory=list)
    contexts: list[object] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    lost: list[StorageError] = field(default_factory=list)

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        assert not self.lost, "nothing is confirmed after the loss"
        for run, context in publishes:
            self.contexts.append(context)
            for number, data in enumerate(run.entries):
                self.confirmed.append((Position(run.ledger_id, run.first_entry_id + number), data))

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        for run, _ in publishes:
            self.refused += run.entries

    def on_lost(self, error: StorageError) -> None:
        self.lost.append(error)


@dataclass
class Topic:
    """A loaded topic."""

    ctx: ManagedLedgerContext
    ledger: ManagedLedger
    listener: Listener
    published: int = 0

    def publish(self, count: int = 1, *, size: int = 0, counts: list[int] | None = None) -> Run:
        """Append one run of `count` entries, whose bytes tell their number."""
        entries = [b"%d" % (self.published + number) + bytes(size) for number in range(count)]
        self.published += count
        run = Run(entries, message_counts=counts)
        self.ledger.append(run, self.published)
        return run

    async def published_all(self) -> None:
        """Wait until everything published is confirmed."""
        await until(lambda: len(self.listener.confirmed) >= self.published)

    async def publish_confirmed(self, count: int = 1, runs: int = 1) -> list[Position]:
        """Publish and wait; returns the positions."""
        before = len(self.listener.confirmed)
        for _ in range(runs):
            self.publish(count)
        await self.published_all()
        return [position for position, _ in self.listener.confirmed[before:]]

    async def flushed(self) -> None:
        """Wait until all acknowledgements so far are on disk."""
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self.ledger.flush_cursors(done.set_result)
        error = await done
        if error is not None:
            raise error

    async def read_all(self, after: Position = EARLIEST) -> list[tuple[Position, bytes]]:
        """Everything that can be read, by `next_position` and `read`."""
        found: list[tuple[Position, bytes]] = []
        at: Position | None = self.ledger.next_position(after)
        while at is not None:
            result = await self.ledger.read(at, 7, 10_000)
            assert result.runs, "there is something to read"
            for run in result.runs:
                for number, data in enumerate(run.entries):
                    found.append((Position(run.ledger_id, run.first_entry_id + number), data))
            at = self.ledger.next_position(found[-1][0])
        return found


def context(process: Process, store: LocalLedgerStore, config: ManagedLedgerConfig) -> ManagedLedgerContext:
    return ManagedLedgerContext(
        store, process.metadata, KEYS, process.clock, config, EntryCache(config.cache_megabytes << 20)
    )


async def load(
    process: Process, config: ManagedLedgerConfig = ROLL_AT_10, *, create: bool = True, **changes: Any
) -> Topic:
    """Start a process' storage and load the topic."""
    store = await process.open_store()
    return await load_again(context(process, store, replace(config, **changes)), create=create)


async def load_again(ctx: ManagedLedgerContext, *, create: bool = False) -> Topic:
    """Take the topic over in a process that runs already."""
    listener = Listener()
    ledger = await open_managed_ledger(ctx, TOPIC, listener, create=create, properties={"made": "here"})
    return Topic(ctx, ledger, listener)


async def until(condition: Any, seconds: float = 60.0) -> None:
    """Let (virtual) time pass until something holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, "it never came to that"
        await asyncio.sleep(0.001)


def simulated(scenario: Callable[[Process], Awaitable[None]], seed: int = 0) -> World:
    """Run a scenario in one process of a fresh world; returns the world."""
    world = World.new()

    async def main(loop: SimLoop) -> None:
        await scenario(Process(loop, world))

    loop = SimLoop(seed)
    run_loop(loop, main(loop))
    return world


def keys_of(world: World, family: str) -> list[str]:
    return [key for key in world.metadata.dump() if f"/{family}/" in key]


def head_of(world: World) -> TopicHead:
    (key,) = keys_of(world, HEAD)
    return decode(TopicHead, world.metadata.dump()[key])


def ledger_ids(topic: Topic) -> list[int]:
    return [span.ref.id for span in topic.ledger._spans.spans]
