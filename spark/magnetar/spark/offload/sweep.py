"""Deletion of unreferenced objects: recorded deletions, and leftovers of failed attempts.

`magnetar.ledger.cold.sweep` decides what is deleted: brokers list the attempts to keep, then objects are
listed, and brokers are called once more about unreferenced ones. At another cluster's location
(`magnetar.ledger.cold.marker`) nothing is deleted. An interrupted sweep is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from magnetar.common.errors import MagnetarError
from magnetar.common.offload.client_calls import Attempts, Deletions
from magnetar.ledger.cold.layout import MANIFEST_NAME, parse_attempt_path
from magnetar.ledger.cold.marker import LocationNotOurs, check
from magnetar.ledger.cold.sweep import GRACE_MS, NOT_ALL_READ, Sweep, to_sweep


class SweepRefused(MagnetarError):
    """Nothing was swept; the message has the remedy."""


class Service(Protocol):
    """The calls to brokers (`OffloadChannel`)."""

    def deletions(self, location: str = "", after_intent_id: str = "") -> Deletions: ...

    def deleted(self, intent_id: str) -> None: ...

    def attempts(self, location: str) -> Attempts: ...


class Store(Protocol):
    """The objects at one location (`magnetar.ledger.cold.objects.ObjectStore`)."""

    def list(self, prefix: str = "") -> Iterable[tuple[str, int, int]]: ...

    def read(self, path: str, offset: int, length: int) -> bytes: ...

    def delete(self, path: str) -> None: ...


@dataclass(slots=True)
class Swept:
    """Result of sweeping one location, or of a dry run."""

    deletions: int = 0
    """Number of recorded deletions that were executed."""
    directories: int = 0
    """Unreferenced attempts."""
    objects: int = 0
    byte_length: int = 0
    """Bytes of these attempts' objects."""
    waiting: int = 0
    """Unreferenced attempts younger than the grace period."""
    failed: list[str] = field(default_factory=list)
    """Errors because of which some objects remain."""


def sweep_location(
    service: Service,
    store: Store,
    location: str,
    *,
    now_ms: int,
    grace_ms: int = GRACE_MS,
    dry_run: bool = False,
    force: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Swept:
    """Sweep one location. Raises SweepRefused when it belongs to another cluster, when brokers cannot list
    the attempts to keep, and, unless `force`, when its cluster is unknown or suspiciously much would be
    deleted; and errors of unavailable brokers and stores."""
    location = location.rstrip("/")
    swept = Swept()
    instance_id = service.deletions("none").instance_id
    _check_ours(store, location, instance_id, may_lack=True)
    _carry_out(service, store, location, swept, dry_run=dry_run, report=report)
    # Those of every location: one place may go by two URIs, and an attempt has one name.
    named = service.attempts("")
    found = to_sweep(store.list(), named.paths, complete=named.complete, now_ms=now_ms, grace_ms=grace_ms)
    if found.doomed:
        # Attempts that began while objects were listed have theirs among them.
        again = service.attempts("")
        found = found.without(again.paths)
        if not again.complete:
            found = replace(found, refused=NOT_ALL_READ)
    swept.waiting = len(found.waiting)
    if found.refused is not None:
        raise SweepRefused(f"nothing was swept at {location}: {found.refused}")
    if found.doubt is not None and not force:
        raise SweepRefused(f"nothing was swept at {location}: {found.doubt} (--force sweeps all the same)")
    if found.doomed or found.unfinished:
        _check_ours(store, location, instance_id, may_lack=force)
    _delete_doomed(store, found, swept, dry_run=dry_run, report=report)
    _delete_unfinished(store, found, swept, dry_run=dry_run, report=report)
    return swept


def _check_ours(store: Store, location: str, instance_id: bytes, *, may_lack: bool) -> None:
    try:
        check(store, instance_id, may_lack=may_lack)
    except LocationNotOurs as error:
        raise SweepRefused(f"nothing was swept at {location}: {error}") from error


def _carry_out(
    service: Service,
    store: Store,
    location: str,
    swept: Swept,
    *,
    dry_run: bool,
    report: Callable[[str], None],
) -> None:
    """Execute the deletions recorded for this location; a failure does not stop the others."""
    after = ""
    while True:
        page = service.deletions(location, after)
        fresh = [each for each in page.deletions if each.intent_id > after]
        for deletion in fresh:
            after = max(after, deletion.intent_id)
            if deletion.location != location:
                continue
            if parse_attempt_path(deletion.path) is None:
                swept.failed.append(f"{deletion.path!r} is not the directory of an attempt: skipped")
                continue
            report(f"deleted ledger: {deletion.path}")
            if not dry_run:
                try:
                    _delete_directory(store, deletion.path)
                except MagnetarError as error:
                    swept.failed.append(str(error))
                    continue
                service.deleted(deletion.intent_id)
            swept.deletions += 1
        if not page.more or not fresh:
            return


def _delete_directory(store: Store, path: str) -> None:
    """Delete an attempt, its manifest first: without it the other objects are ignored."""
    paths = [each for each, _, _ in store.list(path)]
    for each in sorted(paths, key=lambda each: not each.endswith(f"/{MANIFEST_NAME}")):
        store.delete(each)


def _delete_doomed(
    store: Store, found: Sweep, swept: Swept, *, dry_run: bool, report: Callable[[str], None]
) -> None:
    for directory in found.doomed:
        report(f"unreferenced objects: {directory.path}")
        if not dry_run:
            try:
                for path in directory.objects:
                    store.delete(path)
            except MagnetarError as error:
                swept.failed.append(str(error))
                continue
        swept.directories += 1
        swept.objects += len(directory.objects)
        swept.byte_length += directory.byte_length


def _delete_unfinished(
    store: Store, found: Sweep, swept: Swept, *, dry_run: bool, report: Callable[[str], None]
) -> None:
    """Delete leftovers of interrupted writes beside objects that stay."""
    for path in found.unfinished:
        report(f"unfinished: {path}")
        if not dry_run:
            try:
                store.delete(path)
            except MagnetarError as error:
                swept.failed.append(str(error))
                continue
        swept.objects += 1
