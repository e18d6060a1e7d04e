"""Executes recorded deletions of objects of deleted ledgers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from magnetar.broker.offload.deletion_intents import objects_deleted, recorded_deletions
from magnetar.broker.offload.store_calls import OpenStore, Store, in_thread
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_pb2 import Deletion
from magnetar.ledger.cold.layout import MANIFEST_NAME, AttemptPath, parse_attempt_path

log = get_logger(__name__)

AT_ONCE: Final = 100
"""Number of deletions whose objects are deleted before the records of these deletions are."""

SILENCES_IN_A_ROW: Final = 3
"""Consecutive timeouts after which a location is skipped until the next sweep: each call then takes minutes,
and other locations wait.
"""

Counted = Callable[[AttemptPath | None, bool], None]
"""Callback for each attempt whose objects were deleted (True) or could not be."""


@dataclass(slots=True)
class CarriedOut:
    """Result of executing deletions, at one location or at all."""

    done: int = 0
    left: int = 0
    failures: int = 0

    def add(self, other: CarriedOut) -> None:
        """Adds another result to this one."""
        self.done += other.done
        self.left += other.left
        self.failures += other.failures


async def carry_out(
    metadata: MetadataStore, keys: Keys, open_store: OpenStore, counted: Counted
) -> tuple[CarriedOut, set[str]]:
    """Executes every recorded deletion, one location after the other; a failure at one does not affect the
    others.

    Also returns the locations with recorded deletions. Raises MetadataError.
    """
    by_location: dict[str, list[Deletion]] = {}
    async for deletion in recorded_deletions(metadata, keys):
        by_location.setdefault(deletion.location, []).append(deletion)
    total = CarriedOut()
    for location, deletions in sorted(by_location.items()):
        total.add(await _at(location, deletions, metadata, keys, open_store, counted))
    return total, set(by_location)


async def _at(
    location: str,
    deletions: Sequence[Deletion],
    metadata: MetadataStore,
    keys: Keys,
    open_store: OpenStore,
    counted: Counted,
) -> CarriedOut:
    found = CarriedOut(left=len(deletions))
    error = ""
    try:
        store = open_store(location)
        waiting = iter(deletions)
        while some := list(islice(waiting, AT_ONCE)):
            good = []
            for each in some:
                attempt = parse_attempt_path(each.path)
                if attempt is None:
                    found.failures += 1
                    error = f"invalid attempt path {each.path[:200]!r}: nothing was deleted"
                    counted(None, False)
                else:
                    good.append((each, attempt))
            objects = [partial(objects_below, store, each.path) for each, _ in good]
            deleted = await in_thread(partial(delete_directories, store, objects))
            for number in deleted.done:
                await objects_deleted(metadata, keys, good[number][0].intent_id)
                counted(good[number][1], True)
            for number in deleted.failed:
                counted(good[number][1], False)
            found.done += len(deleted.done)
            found.left -= len(deleted.done)
            found.failures += len(deleted.failed)
            error = error or deleted.error
            if deleted.given_up:
                break
    except MagnetarError as failure:
        found.failures += 1
        error = error or str(failure)
    if error:
        log.warning(
            "cannot delete objects of deleted ledgers, retrying at the next sweep",
            location=location,
            ledgers=found.left,
            error=error,
        )
    if found.done:
        log.info("objects of deleted ledgers deleted", location=location, ledgers=found.done)
    return found


@dataclass(slots=True)
class Deleted:
    """Result of deleting directories, by their positions in the given order."""

    done: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    error: str = ""
    """Error of the first directory that failed."""
    given_up: bool = False
    """True when the location stopped answering, so that the remaining directories were not tried."""


def delete_directories(
    store: Store, directories: Sequence[Callable[[], Iterable[str]]], stop: threading.Event
) -> Deleted:
    """Deletes the objects that each directory's callback lists, one after another; once `stop` is set, the
    rest is kept.
    """
    found = Deleted()
    in_a_row = 0
    for number, paths in enumerate(directories):
        try:
            for path in paths():
                if stop.is_set():
                    return found
                store.delete(path)
        except MagnetarError as error:
            found.failed.append(number)
            found.error = found.error or str(error)
            in_a_row = in_a_row + 1 if error.retriable else 0
            if in_a_row >= SILENCES_IN_A_ROW:
                found.given_up = True
                break
        else:
            found.done.append(number)
            in_a_row = 0
    return found


def objects_below(store: Store, path: str) -> list[str]:
    """Lists the objects of one directory, the manifest first: without it the others are unused.

    Raises ObjectStoreError.
    """
    found = [each.path for each in store.list(path)]
    found.sort(key=lambda each: each.rpartition("/")[2] != MANIFEST_NAME)
    return found
