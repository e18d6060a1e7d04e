"""Deleting directories of objects at one location, which blocks: in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.offload.store_calls import Store
from magnetar.common.errors import MagnetarError
from magnetar.ledger.cold.layout import MANIFEST_NAME

SILENCES_IN_A_ROW: Final = 3
"""A location that does not answer so often is left alone until the next sweep: each call takes minutes then,
and others wait."""


@dataclass(slots=True)
class Deleted:
    """What became of some directories, by their numbers in the order that was given."""

    done: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    error: str = ""
    """Why the first one failed."""
    given_up: bool = False
    """Whether the location did not answer, so that those behind the last one were not tried."""


def delete_directories(
    store: Store, directories: Sequence[Callable[[], Iterable[str]]], stop: threading.Event
) -> Deleted:
    """Delete the objects that each says it has, one after another. Once `stop` is set what is left stays."""
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
    """Of one directory, its manifest first: without it the others count for nothing. Raises
    ObjectStoreError."""
    found = [each.path for each in store.list(path)]
    found.sort(key=lambda each: each.rpartition("/")[2] != MANIFEST_NAME)
    return found
