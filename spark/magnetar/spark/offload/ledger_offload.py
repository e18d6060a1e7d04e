"""Offload of one ledger: begin, write, verify, commit; or fail, so that the next job takes it.

    ask the owner -> Begin -> sizes of some entries -> parts -> manifest -> all read back -> Complete

Steps before Complete can be lost at any time: the objects are in a directory of this attempt and are not read
before Complete. Failures are reported with Fail. An attempt that can call neither, because it died or no
broker answers, is taken over by a later attempt, and its objects are swept. Without a response to Complete,
its outcome is unknown. Such an attempt is never failed and never cleaned up; `settle` completes it later.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_errors import may_pass
from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger
from magnetar.ledger.cold.layout import FORMAT_VERSION, MANIFEST_NAME, Manifest, part_name
from magnetar.ledger.cold.marker import claim
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress, hot_source
from magnetar.spark.offload.heartbeats import Beating, Heartbeats
from magnetar.spark.offload.outcomes import Attempt, Outcome, Result, Watcher
from magnetar.spark.offload.part_plan import PART_BYTES, PartRange, entries_to_measure, plan_parts
from magnetar.spark.offload.retries import Patience
from magnetar.spark.offload.tasks import (
    Course,
    MeasureTask,
    PartTask,
    Stopped,
    Tasks,
    TasksFailed,
    VerifiedPart,
    VerifyTask,
    WrittenPart,
)

log = get_logger(__name__)

REASON_CHARS_MAX = 1_000
"""Characters of an attempt's error, kept in the ledger's metadata."""


class Service(Protocol):
    """The driver's calls to brokers. Raises MagnetarError; a retriable one may be tried again."""

    def find(self, topic: str, ledger_id: int) -> Ledger | None:
        """The ledger as the topic's owner describes it; None if the topic no longer has it."""
        ...

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger: ...

    def complete(self, request: CompleteRequest) -> Ledger: ...

    def fail(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes, reason: str) -> None: ...


class Store(Protocol):
    """The objects at one location (`magnetar.ledger.cold.objects.ObjectStore`)."""

    def put_bytes(self, path: str, data: bytes) -> None: ...

    def read(self, path: str, offset: int, length: int) -> bytes: ...

    def size(self, path: str) -> int: ...

    def list(self, prefix: str) -> Iterable[tuple[str, int, int]]: ...

    def delete(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Offloader:
    """Offloads ledgers, from several threads concurrently."""

    service: Service
    address: ServiceAddress
    tasks: Tasks
    open_store: Callable[[str], Store]
    heartbeats: Heartbeats
    watcher: Watcher
    patience: Patience
    """Retry policy for brokers."""
    store_patience: Patience
    """Retry policy for the driver's own object store operations."""
    new_attempt: Callable[[], bytes]
    """16 random bytes."""
    wall_ms: Callable[[], int]
    release: str
    part_bytes: int = PART_BYTES
    monotonic: Callable[[], float] = time.monotonic

    def offload(self, wanted: Ledger) -> Outcome:
        """Offload the ledger. Raises only errors that are no MagnetarError, after giving up the attempt."""
        started = self.monotonic()
        attempt = Attempt(wanted.topic, wanted.creation_id, wanted.ledger_id, self.new_attempt())
        outcome = replace(self._offload(wanted, attempt), seconds=self.monotonic() - started)
        self.watcher.ended(outcome)
        return outcome

    def settle(self, outcome: Outcome) -> Outcome:
        """Repeat an unanswered Complete or Fail; an outcome that is still unsettled is returned unchanged."""
        try:
            if (complete := outcome.complete) is not None:
                self.service.complete(complete)
                return replace(outcome, result=Result.OFFLOADED, reason="", complete=None)
            if (given_up := outcome.given_up) is not None:
                self._fail(given_up, outcome.reason)
                return replace(outcome, result=Result.FAILED, given_up=None)
        except MagnetarError as error:
            if not may_pass(error):
                return replace(outcome, result=Result.FAILED, reason=str(error), complete=None, given_up=None)
        return outcome

    # --- inside ---

    def _offload(self, wanted: Ledger, attempt: Attempt) -> Outcome:
        outcome = Outcome(topic=attempt.topic, ledger_id=attempt.ledger_id, result=Result.TAKEN)
        try:
            # Before Begin: a ledger that cannot be offloaded yet is left as it is. Transactions of entries
            # that can be read have ended, so what the owner says of them stays true.
            found = self.patience.call(lambda: self.service.find(wanted.topic, wanted.ledger_id))
        except MagnetarError as error:
            result = Result.FAILED if may_pass(error) else Result.TAKEN
            return replace(outcome, result=result, reason=str(error))
        if found is None:
            return replace(outcome, reason=f"topic {wanted.topic} no longer has the ledger")
        if found.held:
            return replace(outcome, result=Result.HELD, reason=found.held)
        try:
            ledger = self.patience.call(lambda: self.service.begin(*_fields(attempt)))
        except MagnetarError as error:
            if not may_pass(error):
                return replace(outcome, reason=str(error))
            # No response: the attempt may have begun, and then must be failed.
            return replace(outcome, result=Result.UNSETTLED, reason=str(error), given_up=attempt)
        try:
            with self.heartbeats.of(ledger, attempt.attempt) as beating:
                complete, written = self._write_and_verify(ledger, found, beating)
        except MagnetarError as error:
            reason = str(error) if isinstance(error, (TasksFailed, Stopped)) else named(error)
            return self._give_up(outcome, ledger, attempt, reason)
        except BaseException as error:
            self._give_up(outcome, ledger, attempt, f"the job broke: {error!r}")
            raise
        outcome = replace(
            outcome,
            result=Result.OFFLOADED,
            entries=complete.entries,
            entry_bytes=ledger.byte_length,
            rows=complete.rows,
            raw_entries=complete.raw_entries,
            raw_reasons=_sums(each.raw_reasons for each in written),
            object_bytes=complete.object_bytes,
        )
        try:
            self.patience.call(lambda: self.service.complete(complete))
        except MagnetarError as error:
            if may_pass(error):  # Complete may have succeeded: the objects must be kept.
                return replace(outcome, result=Result.UNSETTLED, reason=str(error), complete=complete)
            return self._give_up(outcome, ledger, attempt, str(error))
        return outcome

    def _write_and_verify(
        self, ledger: Ledger, described: Ledger, beating: Beating
    ) -> tuple[CompleteRequest, list[WrittenPart]]:
        """Return the request of Complete, once everything was written and read back.

        `described`: the ledger by its topic's owner, which knows the aborted entries.
        """
        state = ledger.offload
        if not state.location or not state.path:
            raise TasksFailed("the broker did not return a location for the ledger's objects")
        store = self.open_store(state.location)
        self._claim(store, ledger)
        source = replace(
            hot_source(self.address, ledger.topic, ledger),
            aborted=hot_source(self.address, "", described).aborted,
        )
        ranges = self._plan(ledger, source, beating)
        self.watcher.began(ledger, len(ranges))
        written = self.tasks.write(
            [
                PartTask(
                    source=source,
                    location=state.location,
                    path=state.path,
                    name=part_name(each.number),
                    first_entry_id=each.first_entry_id,
                    last_entry_id=each.last_entry_id,
                    exact=state.exact,
                )
                for each in ranges
            ],
            _LedgerCourse(self, ledger, beating, "writing"),
        )
        manifest = self._manifest(ledger, beating.attempt, written)
        _check_whole(ledger, manifest)
        encoded = manifest.to_json()
        manifest_path = f"{state.path}/{MANIFEST_NAME}"
        self.store_patience.call(lambda: store.put_bytes(manifest_path, encoded))
        self._verify(ledger, written, _LedgerCourse(self, ledger, beating, "verifying"))
        if self.store_patience.call(lambda: _read_whole(store, manifest_path)) != encoded:
            raise TasksFailed(f"{manifest_path} does not read back as it was written")
        self.store_patience.call(lambda: _tidy(store, state.path, manifest))
        self._claim(store, ledger)  # another cluster's job may have marked it at the same moment
        return (
            CompleteRequest(
                topic=ledger.topic,
                creation_id=ledger.creation_id,
                ledger_id=ledger.ledger_id,
                attempt=beating.attempt,
                entries=manifest.entries,
                rows=manifest.rows,
                raw_entries=manifest.raw_entries,
                object_bytes=manifest.object_bytes + len(encoded),
                manifest_sha256=hashlib.sha256(encoded).digest(),
            ),
            written,
        )

    def _plan(self, ledger: Ledger, source: LedgerSource, beating: Beating) -> list[PartRange]:
        size = ledger.last_entry_id, ledger.byte_length, self.part_bytes
        sizes: list[int] = []
        if to_measure := entries_to_measure(*size):
            course = _LedgerCourse(self, ledger, beating, "measuring")
            sizes = self.tasks.measure(MeasureTask(source, tuple(to_measure)), course)
        return plan_parts(*size, sizes)

    def _claim(self, store: Store, ledger: Ledger) -> None:
        """Refuse another cluster's location, whose sweep would delete the objects. Raises LocationNotOurs."""
        if ledger.instance_id:  # else a broker of an earlier release, whose clusters have no mark
            self.store_patience.call(lambda: claim(store, ledger.instance_id))

    def _manifest(self, ledger: Ledger, attempt: bytes, written: list[WrittenPart]) -> Manifest:
        parts = tuple(each.part for each in written)
        return Manifest(
            format_version=FORMAT_VERSION,
            topic=ledger.topic,
            creation_id=ledger.creation_id,
            ledger_id=ledger.ledger_id,
            ledger_key=ledger.ledger_key,
            attempt=attempt,
            first_entry_id=0,
            last_entry_id=ledger.last_entry_id,
            entries=sum(each.entries for each in parts),
            rows=sum(each.rows for each in parts),
            raw_entries=sum(each.raw_entries for each in parts),
            first_index=written[0].first_index if written else ledger.first_index,
            max_publish_time_ms=max(each.max_publish_time_ms for each in written) if written else 0,
            exact=ledger.offload.exact,
            parts=parts,
            created_ms=self.wall_ms(),
            release=self.release,
        )

    def _verify(self, ledger: Ledger, written: list[WrittenPart], course: Course) -> None:
        state = ledger.offload
        found = self.tasks.verify(
            [
                VerifyTask(
                    location=state.location,
                    path=state.path,
                    topic=ledger.topic,
                    ledger_id=ledger.ledger_id,
                    part=each.part,
                    envelope_crc32c=each.envelope_crc32c,
                )
                for each in written
            ],
            course,
        )
        for part, each in zip((one.part for one in written), found, strict=True):
            said = VerifiedPart(part.entries, part.rows, part.raw_entries)
            if each != said:
                raise TasksFailed(f"{part.name} has {each}, and {said} was written")

    def _give_up(self, outcome: Outcome, ledger: Ledger, attempt: Attempt, reason: str) -> Outcome:
        log.warning("ledger not offloaded", topic=ledger.topic, ledger=ledger.ledger_id, reason=reason)
        outcome = replace(outcome, result=Result.FAILED, reason=reason)
        try:
            self._fail(attempt, reason)  # Once, also when the job is stopped.
        except MagnetarError as error:
            if may_pass(error):
                return replace(outcome, result=Result.UNSETTLED, given_up=attempt)
            # Another attempt owns the ledger now and decides its outcome. The sweep deletes the objects in
            # this attempt's directory.
            return replace(outcome, reason=f"{reason}; then: {error}")
        self._clean_up(ledger)
        return outcome

    def _fail(self, attempt: Attempt, reason: str) -> None:
        self.service.fail(*_fields(attempt), reason[:REASON_CHARS_MAX])

    def _clean_up(self, ledger: Ledger) -> None:
        """Delete the objects of a failed attempt as far as possible; the sweep deletes the rest."""
        state = ledger.offload
        try:
            store = self.open_store(state.location)
            paths = [path for path, _, _ in store.list(state.path)]
            for path in sorted(paths, key=lambda path: not path.endswith(MANIFEST_NAME)):
                store.delete(path)
        except MagnetarError as error:
            log.info("objects are left to the sweep", path=state.path, reason=str(error))


@dataclass(frozen=True, slots=True)
class _LedgerCourse:
    """Implements `tasks.Course`."""

    offloader: Offloader
    ledger: Ledger
    beating: Beating
    phase: str

    def advanced(self, done: int, total: int) -> None:
        self.offloader.watcher.advanced(self.ledger, self.phase, done, total)

    def over(self) -> str:
        if self.offloader.patience.stop.is_set():
            return "the job was stopped"
        return self.beating.lost


def named(error: MagnetarError) -> str:
    """Return an error's type and message."""
    return f"{type(error).__name__}: {error}"


def _fields(attempt: Attempt) -> tuple[str, int, int, bytes]:
    return attempt.topic, attempt.creation_id, attempt.ledger_id, attempt.attempt


def _sums(counts: Iterable[dict[str, int]]) -> tuple[tuple[str, int], ...]:
    sums: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            sums[reason] = sums.get(reason, 0) + count
    return tuple(sorted(sums.items()))


def _read_whole(store: Store, path: str) -> bytes:
    return store.read(path, 0, store.size(path))


def _tidy(store: Store, path: str, manifest: Manifest) -> None:
    """Remove other files: a killed task may have left a piece of one."""
    keep = {MANIFEST_NAME, *(part.name for part in manifest.parts)}
    for each, _, _ in list(store.list(path)):
        if each.rpartition("/")[2] not in keep:
            store.delete(each)


def _check_whole(ledger: Ledger, manifest: Manifest) -> None:
    """Every entry is in one part. Raises TasksFailed."""
    expected = 0
    for part in manifest.parts:
        if part.first_entry_id != expected or part.entries != part.last_entry_id - part.first_entry_id + 1:
            raise TasksFailed(
                f"{part.name} has {part.entries} entries from {part.first_entry_id} to "
                f"{part.last_entry_id}, where entry {expected} was to follow"
            )
        expected = part.last_entry_id + 1
    if expected != ledger.last_entry_id + 1:
        raise TasksFailed(f"{expected} entries were written, the ledger has {ledger.last_entry_id + 1}")
