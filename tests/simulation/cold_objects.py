"""An object store under simulation, and who uses it: a broker that reads, a job that offloads ledgers.

Objects outlive every process and every power loss. Everything takes a seeded time, so that others come in
between; reads fail now and then. Parts are not Parquet but as many bytes with the same runs in them: what is
tried here is the order of steps, and who may take them.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from magnetar.common.errors import MagnetarError, StorageError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import Intent, TopicHead, TopicLedger, decode
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsDamaged, ObjectsUnavailable, Verified
from magnetar.ledger.cold.key_rows import KeyRun, key_runs_of
from magnetar.ledger.cold.layout import MANIFEST_NAME, attempt_path
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.ledger_store import LedgerStore, Run
from magnetar.ledger.managed_ledger import offload_state
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers, Step
from magnetar.ledger.managed_ledger.topic_head import read_ref
from magnetar.sim.metadata import SimMetadataServer

from tests.simulation.power_loss import KEYS

LOCATION = "file:///objects"
STALE_AFTER_MS = 40
RUNS_OF_A_PART = 2

Objects = dict[str, bytes]
"""By path below the location."""


class JobDied(Exception):
    """A job ends in the middle and tells nobody."""


def encode_part(runs: list[Run]) -> bytes:
    return repr(
        [
            (
                run.first_entry_id,
                run.publish_time_ms,
                run.first_index,
                run.message_counts,
                run.flags,
                run.entries,
            )
            for run in runs
        ]
    ).encode()


def decode_part(ledger_id: int, data: bytes) -> list[Run]:
    return [
        Run(entries, time, index, counts, flags, ledger_id, first)
        for first, time, index, counts, flags, entries in ast.literal_eval(data.decode())
    ]


def encode_manifest(parts: dict[str, bytes]) -> bytes:
    return repr({name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}).encode()


@dataclass
class SimColdStore:
    """What a broker reads objects with."""

    objects: Objects
    in_use: list[str]
    """Paths that nobody damages now."""
    rng: random.Random
    failures: float = 0.05
    """How often an object store does not answer."""

    @contextmanager
    def untouched(self, ledger: ColdLedger) -> Iterator[None]:
        """Nobody damages these objects meanwhile."""
        self.in_use.append(ledger.path)
        try:
            yield
        finally:
            self.in_use.remove(ledger.path)

    async def read(self, ledger: ColdLedger, first: int, last: int, max_bytes: int) -> list[Run]:
        await self._wait()
        taken: list[Run] = []
        for run in self._runs(ledger):
            if run.last_entry_id < first or run.first_entry_id > last or (taken and max_bytes <= 0):
                continue
            run = run.slice(max(first, run.first_entry_id), min(last, run.last_entry_id))
            while len(run.entries) > 1 and run.byte_length > max_bytes:
                run = run.slice(run.first_entry_id, run.last_entry_id - 1)
            max_bytes -= run.byte_length
            taken.append(run)
            if run.last_entry_id < min(last, run.last_entry_id):
                break
            first = run.last_entry_id + 1
        return _without_gap(taken)

    async def read_keys(self, ledger: ColdLedger, first: int, last: int) -> list[KeyRun]:
        await self._wait()
        stored = [run for run in self._runs(ledger) if run.last_entry_id >= first][:RUNS_OF_A_PART]
        found = key_runs_of(rows_of(stored, partition=-1).columns)
        if found is None:
            found = [KeyRun(run, True, run.byte_length) for run in stored]
        return [cut for each in found if (cut := each.slice(first, last)) is not None]

    async def first_not_before(self, ledger: ColdLedger, publish_time_ms: int) -> int:
        await self._wait()
        late = [run for run in self._runs(ledger) if run.publish_time_ms >= publish_time_ms]
        return late[0].first_entry_id if late else ledger.last_entry_id + 1

    async def verify(self, ledger: ColdLedger) -> Verified:
        await self._wait()
        runs = self._runs(ledger)
        await self._wait()
        first_index, end = runs[0].first_index, runs[-1]
        times = max(run.publish_time_ms for run in runs)
        return Verified(ledger, first_index, end.first_index + end.messages - first_index, times)

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0, 0.0005, 0.003)))
        if self.rng.random() < self.failures:
            raise ObjectsUnavailable("the simulated object store does not answer")

    def _runs(self, ledger: ColdLedger) -> list[Run]:
        return whole_runs(
            self.objects, ledger.path, ledger.manifest_sha256, ledger.ref.id, ledger.last_entry_id
        )


def _without_gap(runs: list[Run]) -> list[Run]:
    """Up to the first gap, which a limit in bytes leaves."""
    for number in range(1, len(runs)):
        if runs[number].first_entry_id != runs[number - 1].last_entry_id + 1:
            return runs[:number]
    return runs


def whole_runs(
    objects: Objects, path: str, manifest_sha256: bytes, ledger_id: int, last_entry_id: int
) -> list[Run]:
    """The runs of a ledger's objects. Raises ObjectsDamaged when they are not whole."""
    manifest = objects.get(f"{path}/{MANIFEST_NAME}")
    if manifest is None or hashlib.sha256(manifest).digest() != manifest_sha256:
        raise ObjectsDamaged(f"the manifest of {path} is not the one that was verified")
    runs: list[Run] = []
    for name, sha256 in ast.literal_eval(manifest.decode()).items():
        data = objects.get(f"{path}/{name}")
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            raise ObjectsDamaged(f"{path}/{name} is not the part that was verified")
        runs += decode_part(ledger_id, data)
    if not runs or runs[0].first_entry_id or runs[-1].last_entry_id != last_entry_id:
        raise ObjectsDamaged(f"{path} has not all entries of its ledger")
    return runs


@dataclass
class SimJob:
    """Offloads ledgers of one topic, one after the other, and dies, fails and is slow as its seed says."""

    topic: TopicName
    offloads: OffloadLedgers
    objects: Objects
    rng: random.Random
    completed: int = 0
    died: int = 0
    damaged: int = 0

    async def offload_one(self, ledgers: LedgerStore) -> None:
        """Take some closed ledger that is not offloaded as far as it goes."""
        try:
            found = await self.offloads.of_topic(self.topic)
            waiting = [value for value in found.ledgers if value.offload.state != Offload.COMPLETE]
            if waiting:
                await self._offload(ledgers, found.creation_id, self.rng.choice(waiting))
        except JobDied:
            self.died += 1
        except MagnetarError:
            return  # trimmed, taken by another attempt, or the storage died: the next one tries again

    async def _offload(self, ledgers: LedgerStore, creation_id: int, value: TopicLedger) -> None:
        ref, attempt, clock = read_ref(value.ref), self.rng.randbytes(16), self.offloads.clock
        path = attempt_path(self.topic, ref.id, attempt)

        async def change(step: Step) -> TopicLedger:
            await self._wait()
            return await self.offloads.change(self.topic, creation_id, ref.id, step)

        await change(lambda now: offload_state.want(now, location=LOCATION, now_ms=clock.wall_ms()))
        begun = await change(
            lambda now: offload_state.begin(
                now, attempt=attempt, path=path, now_ms=clock.wall_ms(), stale_after_ms=STALE_AFTER_MS
            )
        )
        try:
            parts = await self._write(ledgers, begun, path)
        except StorageError as error:
            reason = str(error)
            await change(
                lambda now: offload_state.fail(now, attempt=attempt, reason=reason, now_ms=clock.wall_ms())
            )
            return
        manifest = encode_manifest(parts)
        await self._put(f"{path}/{MANIFEST_NAME}", manifest)
        sha256 = hashlib.sha256(manifest).digest()
        try:  # read back: an object may have been written damaged
            whole_runs(self.objects, path, sha256, ref.id, begun.last_entry_id)
        except ObjectsDamaged as error:
            reason = str(error)
            await change(
                lambda now: offload_state.fail(now, attempt=attempt, reason=reason, now_ms=clock.wall_ms())
            )
            return
        await change(
            lambda now: offload_state.complete(
                now,
                attempt=attempt,
                entries=begun.last_entry_id + 1,
                rows=begun.last_entry_id + 1,
                raw_entries=0,
                object_bytes=sum(map(len, parts.values())),
                manifest_sha256=sha256,
                now_ms=clock.wall_ms(),
            )
        )
        self.completed += 1

    async def _write(self, ledgers: LedgerStore, value: TopicLedger, path: str) -> dict[str, bytes]:
        reader = await ledgers.open(read_ref(value.ref))
        runs: list[Run] = []
        at = 0
        while at <= value.last_entry_id:
            runs += await reader.read(at, value.last_entry_id, 2_000)
            at = runs[-1].last_entry_id + 1
        parts: dict[str, bytes] = {}
        for number, first in enumerate(range(0, len(runs), RUNS_OF_A_PART)):
            name = f"part-{number:05d}.parquet"
            parts[name] = encode_part(runs[first : first + RUNS_OF_A_PART])
            torn = self.rng.random() < 0.03
            await self._put(f"{path}/{name}", parts[name][:-1] if torn else parts[name])
        return parts

    async def _put(self, path: str, data: bytes) -> None:
        await self._wait()
        self.objects[path] = data

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.0005)))
        if self.rng.random() < 0.02:
            raise JobDied

    def damage_one(self, metadata: SimMetadataServer, in_use: list[str]) -> None:
        """Bits rot in an object of a ledger that storage still has, and that nobody verifies now."""
        for value in topic_ledgers(metadata):
            offload = value.offload
            if offload_state.is_complete(value) and not offload_state.has_left_bookies(value):
                paths = sorted(path for path in self.objects if path.startswith(f"{offload.path}/"))
                if offload.path not in in_use and paths:
                    path = self.rng.choice(paths)
                    self.objects[path] = self.objects[path][:-1] + b"!"
                    self.damaged += 1
                    return


def topic_ledgers(metadata: SimMetadataServer) -> list[TopicLedger]:
    """Every closed ledger of every topic."""
    return [decode(TopicLedger, value) for key, value in metadata.dump().items() if "/topics/" in key]


def check_every_ledger_is_somewhere(objects: Objects, metadata: SimMetadataServer) -> None:
    """Each ledger that a topic names has its metadata in storage, or whole objects."""
    values = metadata.dump()
    alive = {
        decode(TopicHead, value).creation_id
        for key, value in values.items()
        if key.startswith(KEYS.topic_heads_prefix())
    }
    for key, data in values.items():
        if "/topics/" not in key or KEYS.topic_ledger_ids_of(key)[0] not in alive:
            continue
        value = decode(TopicLedger, data)
        offload = value.offload
        if offload_state.has_left_bookies(value):
            whole_runs(objects, offload.path, offload.manifest_sha256, value.ref.id, value.last_entry_id)
        else:
            assert KEYS.ledger(value.ref.id) in values, f"ledger {value.ref.id} is nowhere"


def sweep(objects: Objects, metadata: SimMetadataServer) -> None:
    """What a sweep does once every grace is over and no job runs: recorded deletions, then whatever no ledger
    names."""
    for key, value in metadata.dump().items():
        if key.startswith(KEYS.intents_prefix):
            intent = decode(Intent, value)
            if intent.WhichOneof("target") == "delete_objects":
                for path in [path for path in objects if path.startswith(f"{intent.delete_objects.path}/")]:
                    del objects[path]
    named = {
        value.offload.path for value in topic_ledgers(metadata) if value.offload.state == Offload.COMPLETE
    }
    for path in [path for path in objects if path.rpartition("/")[0] not in named]:
        del objects[path]
