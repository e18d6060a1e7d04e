"""A world for races of offload jobs: metadata, an object store, and actors that take turns by a seed.

What decides is real: the transitions of `offload_state`, the driver's `Offloader`, `sweep_location`. Spark's
tasks, the store (in memory, with failures) and the calls between are simulated; each call can be lost before
or after it took effect. Actors are threads of which one runs at a time; at each call another may go on. An
actor that is killed does nothing any more, wherever it was.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.client_calls import Attempts, Deletions
from magnetar.common.offload.offload_errors import OffloadTimedOut
from magnetar.common.offload.offload_pb2 import COMPLETE, RUNNING, CompleteRequest, Deletion, Ledger
from magnetar.common.offload.offload_refusals import NoLedgerToOffload
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, Part, attempt_path
from magnetar.ledger.cold.objects import NoSuchObject, ObjectStoreUnavailable
from magnetar.ledger.managed_ledger import offload_state
from magnetar.spark.offload.tasks import (
    Course,
    MeasureTask,
    PartTask,
    Stopped,
    TasksFailed,
    VerifiedPart,
    VerifyTask,
    WrittenPart,
)

T = TypeVar("T")

LOCATION = "memory://cold"
TOPIC = TopicName.parse("persistent://public/default/races")
STALE_AFTER_MS = 60_000
HANDED_OVER_S_MAX = 30.0

BURST_CHANCE = 0.03
"""At a step, that one actor gets far while all the others stand still."""
OUTAGE_CHANCE = 0.01
"""At a step in a world with trouble, that brokers are away for a while."""


class Killed(BaseException):
    """This actor does nothing any more."""


@dataclass(eq=False)
class Actor:
    """One thread; `go` is set while it may run."""

    name: str
    thread: threading.Thread | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    killed: bool = False
    done: bool = False
    error: BaseException | None = None


class Turns:
    """Who runs: one actor at a time, chosen by the seed at every step."""

    def __init__(self, rng: random.Random, after_step: Callable[[], None]) -> None:
        self._rng = rng
        self._after_step = after_step
        self._actors: list[Actor] = []
        self._here = threading.local()
        self._back = threading.Semaphore(0)

    def add(self, name: str, work: Callable[[], None]) -> Actor:
        actor = Actor(name)

        def run() -> None:
            self._here.actor = actor
            actor.go.acquire()
            try:
                if not actor.killed:
                    work()
            except Killed:
                pass
            except BaseException as error:
                actor.error = error
            actor.done = True
            self._back.release()

        actor.thread = threading.Thread(target=run, name=name, daemon=True)
        self._actors.append(actor)
        actor.thread.start()
        return actor

    def step(self) -> None:
        """Called by an actor: let others go on. Raises Killed in one that was."""
        actor = getattr(self._here, "actor", None)
        if actor is None:
            return  # the test itself, when the races are over
        if actor.killed:
            raise Killed
        self._back.release()
        actor.go.acquire()
        if actor.killed:
            raise Killed

    def run(self, kill_chance: float) -> None:
        """Until every actor has ended."""
        favorite, turns = None, 0
        while waiting := [each for each in self._actors if not each.done]:
            if turns <= 0 and self._rng.random() < BURST_CHANCE:
                favorite, turns = self._rng.choice(waiting), self._rng.randrange(300)
            turns -= 1
            stays = turns > 0 and favorite in waiting
            actor = favorite if stays and favorite is not None else self._rng.choice(waiting)
            if self._rng.random() < kill_chance:
                actor.killed = True
            actor.go.release()
            assert self._back.acquire(timeout=HANDED_OVER_S_MAX), f"{actor.name} hangs"
            if actor.error is not None:
                raise actor.error
            self._after_step()
        for actor in self._actors:
            assert actor.thread is not None
            actor.thread.join()


class World:
    """Metadata, objects and bookies; what has to hold is in `check`."""

    def __init__(self, seed: int, ledgers: int, trouble: float) -> None:
        self.rng = random.Random(seed)
        self.trouble = trouble
        self.store_behind_ms = self.rng.choice((0, 5_000, 120_000))
        """The store's clock is not ours."""
        self.away_until_ms = 0
        self.answers_lost = False
        """While brokers are away: they hear what they are asked, and nobody hears them."""
        self.now_ms = 1_700_000_000_000
        self.turns = Turns(self.rng, self.check)
        self.ledgers: dict[int, TopicLedger] = {}
        self.ledgers_ever = ledgers
        self.bookies: set[int] = set(range(ledgers))
        """Ledgers that bookies still have."""
        self.deletions: dict[str, str] = {}
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.zombies: list[tuple[str, bytes]] = []
        """Writes of tasks that outlived their job."""
        for number in range(ledgers):
            value = TopicLedger(
                first_entry_id=0, last_entry_id=self.rng.randrange(1, 40), byte_length=1_000, closed_ms=1
            )
            value.ref.id = number
            value.entries = value.last_entry_id + 1
            self.ledgers[number] = offload_state.want(value, location=LOCATION, now_ms=self.now_ms)

    # --- time and trouble ---

    def step(self) -> None:
        self.turns.step()
        jump = self.rng.choice((STALE_AFTER_MS, 2 * STALE_AFTER_MS)) if self.rng.random() < 0.01 else 0
        self.now_ms += self.rng.randrange(200) + jump
        if self.trouble and self.now_ms > self.away_until_ms and self.rng.random() < OUTAGE_CHANCE:
            self.away_until_ms = self.now_ms + self.rng.randrange(20_000)
            self.answers_lost = self.rng.random() < 0.5

    def lost(self) -> bool:
        return self.rng.random() < self.trouble

    # --- metadata ---

    def transition(self, ledger_id: int, act: Callable[[TopicLedger], TopicLedger]) -> TopicLedger:
        value = self.ledgers.get(ledger_id)
        if value is None:
            raise NoLedgerToOffload(f"ledger {ledger_id} is gone")
        changed = self.ledgers[ledger_id] = act(value)
        return changed

    def trim(self, ledger_id: int) -> None:
        """The ledger goes with its topic's oldest part; its objects are to go with it."""
        value = self.ledgers.pop(ledger_id, None)
        if value is None:
            return
        self.bookies.discard(ledger_id)
        if value.offload.path and value.offload.state == Offload.COMPLETE:
            self.deletions[f"intent-{ledger_id}"] = value.offload.path

    def leave(self, ledger_id: int) -> None:
        """Bookies let go of a ledger whose objects were looked at."""
        value = self.ledgers.get(ledger_id)
        if value is None or value.offload.state != Offload.COMPLETE:
            return
        attempt = value.offload.attempt
        assert self.whole(value), "complete, and its objects are not whole"
        self.step()
        try:
            self.transition(
                ledger_id, lambda now: offload_state.leave(now, attempt=attempt, now_ms=self.now_ms)
            )
        except MagnetarError:
            return
        self.bookies.discard(ledger_id)

    # --- what has to hold ---

    def whole(self, value: TopicLedger) -> bool:
        """Whether the objects that a complete ledger names are all there, as its manifest says."""
        stored = self.objects.get(f"{value.offload.path}/{MANIFEST_NAME}")
        if stored is None or hashlib.sha256(stored[0]).digest() != value.offload.manifest_sha256:
            return False
        manifest = Manifest.from_json(stored[0])
        entries = 0
        for part in manifest.parts:
            found = self.objects.get(f"{value.offload.path}/{part.name}")
            if found is None or hashlib.sha256(found[0]).digest() != part.sha256:
                return False
            entries += part.entries
        return entries == value.entries

    def check(self) -> None:
        """Holds at every moment: bookies have a ledger, or its objects are complete and whole."""
        for ledger_id, value in self.ledgers.items():
            complete = value.offload.state == Offload.COMPLETE
            assert not complete or self.whole(value), f"ledger {ledger_id} is complete and not whole"
            assert complete or ledger_id in self.bookies, f"ledger {ledger_id} is nowhere"

    def orphans(self) -> set[str]:
        """Objects in no named attempt's directory."""
        named = {value.offload.path for value in self.ledgers.values() if value.offload.path}
        return {path for path in self.objects if path.rpartition("/")[0] not in named}


@dataclass(frozen=True)
class WorldService:
    """Implements what the driver and the sweep ask brokers."""

    world: World

    def find(self, topic: str, ledger_id: int) -> Ledger | None:
        def look() -> Ledger | None:
            value = self.world.ledgers.get(ledger_id)
            return None if value is None else message_of(value)

        return self._exchange(look)

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
        world = self.world

        def act(value: TopicLedger) -> TopicLedger:
            return offload_state.begin(
                value,
                attempt=attempt,
                path=attempt_path(TOPIC, ledger_id, attempt),
                now_ms=world.now_ms,
                stale_after_ms=STALE_AFTER_MS,
            )

        return self._exchange(lambda: message_of(world.transition(ledger_id, act)))

    def complete(self, request: CompleteRequest) -> Ledger:
        world = self.world

        def act(value: TopicLedger) -> TopicLedger:
            return offload_state.complete(
                value,
                attempt=request.attempt,
                entries=request.entries,
                rows=request.rows,
                raw_entries=request.raw_entries,
                object_bytes=request.object_bytes,
                manifest_sha256=request.manifest_sha256,
                now_ms=world.now_ms,
            )

        return self._exchange(lambda: message_of(world.transition(request.ledger_id, act)))

    def fail(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes, reason: str) -> None:
        world = self.world

        def act(value: TopicLedger) -> TopicLedger:
            return offload_state.fail(value, attempt=attempt, reason=reason, now_ms=world.now_ms)

        self._exchange(lambda: message_of(world.transition(ledger_id, act)))

    def wanted(self) -> list[Ledger]:
        world = self.world
        return self._exchange(
            lambda: [
                message_of(value)
                for value in world.ledgers.values()
                if offload_state.waits(value, world.now_ms, STALE_AFTER_MS)
            ]
        )

    def deletions(self, location: str = "", after_intent_id: str = "") -> Deletions:
        def ask() -> Deletions:
            found = [
                Deletion(intent_id=key, location=LOCATION, path=path)
                for key, path in self.world.deletions.items()
            ]
            return Deletions(found, more=False)

        return self._exchange(ask)

    def deleted(self, intent_id: str) -> None:
        self._exchange(lambda: self.world.deletions.pop(intent_id, None))

    def attempts(self, location: str) -> Attempts:
        """A ledger at a time, as brokers look at topic after topic."""
        paths = []
        for ledger_id in range(self.world.ledgers_ever):

            def look(ledger_id: int = ledger_id) -> str:
                value = self.world.ledgers.get(ledger_id)
                named = value is not None and value.offload.state in (Offload.RUNNING, Offload.COMPLETE)
                return value.offload.path if value is not None and named else ""

            paths.append(self._exchange(look))
        return Attempts([path for path in paths if path], complete=True)

    def _exchange(self, act: Callable[[], T]) -> T:
        """A call: the request may be lost, or the answer."""
        world = self.world
        world.step()
        away = world.now_ms < world.away_until_ms
        if world.lost() or (away and not world.answers_lost):
            raise OffloadTimedOut("the request was lost")
        found = act()
        world.check()
        world.step()
        if world.lost() or (away and world.answers_lost):
            raise OffloadTimedOut("the answer was lost")
        return found


@dataclass(frozen=True)
class WorldStore:
    """Implements the object store: every call may fail, a write before or after it took effect."""

    world: World

    def put_bytes(self, path: str, data: bytes) -> None:
        self._trouble()
        self.world.objects[path] = (data, self.world.now_ms - self.world.store_behind_ms)
        self._trouble()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._trouble()
        found = self.world.objects.get(path)
        if found is None:
            raise NoSuchObject(path)
        return found[0][offset : None if length is None else offset + length]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def list(self, prefix: str = "") -> Iterator[tuple[str, int, int]]:
        """A page at a time: what is written meanwhile may be in it or not."""
        seen: set[str] = set()
        while True:
            self._trouble()
            page = [path for path in sorted(self.world.objects) if path not in seen][:3]
            if not page:
                return
            seen.update(page)
            for path in page:
                if path.startswith(prefix):
                    data, modified_ms = self.world.objects.get(path, (b"", self.world.now_ms))
                    yield path, len(data), modified_ms

    def delete(self, path: str) -> None:
        self._trouble()
        self.world.objects.pop(path, None)
        self._trouble()

    def _trouble(self) -> None:
        self.world.step()
        if self.world.lost():
            raise ObjectStoreUnavailable("the store does not answer")


@dataclass(frozen=True)
class WorldTasks:
    """Implements Spark's tasks: they write and read objects, may fail, and may outlive their job."""

    world: World

    def measure(self, task: MeasureTask, course: Course) -> list[int]:
        world = self.world
        world.step()
        if reason := course.over():
            raise Stopped(reason)
        if world.lost():
            raise TasksFailed("a task was lost")
        return [world.rng.randrange(1, 100) for _ in task.entry_ids]

    def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
        world = self.world
        store = WorldStore(world)
        written = []
        for number, task in enumerate(tasks):
            if reason := course.over():
                raise Stopped(reason)
            data = f"{task.source.ledger_id}:{task.first_entry_id}-{task.last_entry_id}".encode()
            path = f"{task.path}/{task.name}"
            if world.lost():
                world.zombies.append((path, data))
                raise TasksFailed("a task was lost, and goes on somewhere")
            try:
                store.put_bytes(path, data)
            except MagnetarError as error:
                raise TasksFailed(str(error)) from error
            entries = task.last_entry_id - task.first_entry_id + 1
            part = Part(
                name=task.name,
                first_entry_id=task.first_entry_id,
                last_entry_id=task.last_entry_id,
                rows=entries,
                entries=entries,
                raw_entries=0,
                byte_length=len(data),
                sha256=hashlib.sha256(data).digest(),
                payload_crc32c=0,
                payload_bytes=0,
                raw_crc32c=0,
                raw_bytes=0,
            )
            written.append(WrittenPart(part, task.first_entry_id, world.now_ms, 0, {}))
            course.advanced(number + 1, len(tasks))
        return written

    def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
        store = WorldStore(self.world)
        found = []
        for task in tasks:
            try:
                data = store.read(f"{task.path}/{task.part.name}")
            except MagnetarError as error:
                raise TasksFailed(str(error)) from error
            if hashlib.sha256(data).digest() != task.part.sha256:
                raise TasksFailed(f"{task.part.name} is not what was written")
            found.append(VerifiedPart(task.part.entries, task.part.rows, task.part.raw_entries))
        return found


def message_of(value: TopicLedger) -> Ledger:
    """A ledger as brokers tell it."""
    ledger = Ledger(
        topic=TOPIC.full,
        creation_id=1,
        ledger_id=value.ref.id,
        ledger_key=value.ref.key,
        last_entry_id=value.last_entry_id,
        entries=value.entries,
        byte_length=value.byte_length,
        closed_ms=value.closed_ms,
    )
    ledger.offload.location = value.offload.location
    ledger.offload.path = value.offload.path
    ledger.offload.exact = value.offload.exact
    ledger.offload.state = {Offload.RUNNING: RUNNING, Offload.COMPLETE: COMPLETE}.get(
        value.offload.state, ledger.offload.state
    )
    return ledger
