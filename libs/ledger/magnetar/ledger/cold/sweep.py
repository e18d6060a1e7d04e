"""Decides which objects at a location are unused; a pure function for brokers and the command line.

Each attempt to offload a ledger has its own directory. Once no ledger names the attempt (it failed, was
replaced, or the ledger is gone) nothing reads its objects, and nothing ever will: an attempt that lost its
ledger cannot complete. Other directories are ignored.

An attempt is identified by its random name alone, whatever location its ledger names: one place may have two
URIs. The list of named attempts must be read after the objects were listed, or again then (`Sweep.without`),
so that an attempt started in between is kept. The grace period, counted from the newest object of a
directory, protects a job that still writes after its attempt was replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.ledger.cold.layout import MANIFEST_NAME, parse_attempt_path

GRACE_MS: Final = 24 * 60 * 60 * 1000
"""Default minimum age of the newest object of an attempt."""

NOT_ALL_READ: Final = (
    "not every topic could be asked which objects it needs, or metadata was restored and is not released; "
    "sweep again later"
)

UNFINISHED_SUFFIX: Final = ".unfinished"
"""Suffix of a local file being written, whose name begins with a dot."""

LOST_SHARE_MAX: Final = 0.2
"""Maximum share of unreferenced attempts at a location; a larger share suggests lost or restored metadata, or
another cluster's objects.
"""

LOST_ALWAYS_MAX: Final = 8
"""Number of unreferenced attempts that is always allowed, unless no attempt at the location is named."""


@dataclass(frozen=True, slots=True)
class AttemptObjects:
    """The contents of an attempt's directory."""

    path: str
    """Path below the location."""
    objects: tuple[str, ...]
    """Paths below the location, the manifest first: without it the other objects do not count, so an
    interrupted deletion is safe.
    """
    byte_length: int
    newest_ms: int
    """Time at which the newest object was written, by the clock of the object store."""

    @property
    def name(self) -> str:
        """The attempt's name, the last segment of its path."""
        return _attempt(self.path)

    @property
    def whole(self) -> bool:
        """Whether it has a manifest, which is written last."""
        return self.objects[0].rpartition("/")[2] == MANIFEST_NAME


@dataclass(frozen=True, slots=True)
class Sweep:
    """The decision about one location."""

    doomed: tuple[AttemptObjects, ...] = ()
    """Attempts not named by any ledger and past the grace period, in path order."""
    waiting: tuple[AttemptObjects, ...] = ()
    """Attempts not named by any ledger and within the grace period."""
    unfinished: tuple[str, ...] = ()
    """Leftovers of interrupted writes beside objects that stay; to be deleted as well."""
    named: int = 0
    """Named attempts with objects."""
    named_whole: int = 0
    """Named attempts with a manifest."""
    refused: str | None = None
    """The reason why nothing may be deleted; None if `doomed` may be."""
    doubt: str | None = None
    """The reason to ask an operator before deleting; None without doubt."""

    @property
    def empty(self) -> bool:
        """Whether there are no attempts at all."""
        return not (self.doomed or self.waiting or self.named)

    def without(self, named: Collection[str]) -> Sweep:
        """Return the decision without attempts that were named after the objects were listed."""
        keep = _attempts(named)
        return replace(
            self,
            doomed=tuple(each for each in self.doomed if _attempt(each.path) not in keep),
            waiting=tuple(each for each in self.waiting if _attempt(each.path) not in keep),
        )


@dataclass(slots=True)
class _Lost:
    """The directory of an unreferenced attempt."""

    objects: list[str] = field(default_factory=list)
    byte_length: int = 0
    newest_ms: int = 0

    def found(self, path: str) -> AttemptObjects:
        manifest_first = sorted(
            self.objects, key=lambda each: (each.rpartition("/")[2] != MANIFEST_NAME, each)
        )
        return AttemptObjects(path, tuple(manifest_first), self.byte_length, self.newest_ms)


@dataclass(slots=True)
class _Kept:
    """Directories of named attempts, one after another; nothing of them is kept in memory."""

    count: int = 0
    whole: int = 0
    unfinished: list[str] = field(default_factory=list)
    """Leftovers in attempts with a manifest; in others a job may still be writing."""
    _path: str = ""
    _is_whole: bool = False
    _left: list[str] = field(default_factory=list)

    def add(self, directory: str, name: str, *, old: bool) -> None:
        if directory != self._path:
            self.end()
            self._path = directory
            self.count += 1
        self._is_whole |= name == MANIFEST_NAME
        if old and name.startswith(".") and name.endswith(UNFINISHED_SUFFIX):
            self._left.append(f"{directory}/{name}")

    def end(self) -> None:
        """Ends the last directory: no more of its objects follow."""
        if self._is_whole:
            self.whole += 1
            self.unfinished += self._left
        self._path, self._is_whole, self._left = "", False, []


def to_sweep(
    listing: Iterable[tuple[str, int, int]],
    named: Collection[str],
    *,
    complete: bool,
    now_ms: int,
    grace_ms: int = GRACE_MS,
) -> Sweep:
    """Decides which objects of a location may be deleted, given as (path below it, bytes, written ms).

    `named` are the paths of attempts named by ledgers, at any location, or their last segments; `complete`
    tells whether the list is complete. Objects of one directory must be consecutive. Keeps in memory only
    what it returns, and nothing of named attempts.
    """
    keep = _attempts(named)
    lost: dict[str, _Lost] = {}
    kept = _Kept()
    for path, byte_length, modified_ms in listing:
        path = path.strip("/")
        directory, _, name = path.rpartition("/")
        if _attempt(directory) in keep:
            kept.add(directory, name, old=now_ms - modified_ms >= grace_ms)
            continue
        found = lost.get(directory)
        if found is None:
            if parse_attempt_path(directory) is None:
                continue
            found = lost[directory] = _Lost()
        found.objects.append(path)
        found.byte_length += byte_length
        found.newest_ms = max(found.newest_ms, modified_ms)
    kept.end()
    doomed: list[AttemptObjects] = []
    waiting: list[AttemptObjects] = []
    for directory in sorted(lost):
        objects = lost[directory].found(directory)
        (doomed if now_ms - objects.newest_ms >= grace_ms else waiting).append(objects)
    if not complete:
        # Some of these may turn out to be named.
        return Sweep((), (*waiting, *doomed), (), kept.count, kept.whole, refused=NOT_ALL_READ)
    whole = sum(each.whole for each in doomed)
    doubt = _doubt(whole, whole + kept.whole, kept.count)
    return Sweep(
        tuple(doomed), tuple(waiting), tuple(sorted(kept.unfinished)), kept.count, kept.whole, doubt=doubt
    )


def _attempts(paths: Collection[str]) -> frozenset[str]:
    return frozenset(map(_attempt, paths))


def _attempt(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _doubt(lost: int, whole: int, named: int) -> str | None:
    """Returns the reason for doubt: failures leave few leftovers, and deleted topics have recorded
    deletions.
    """
    if lost <= LOST_SHARE_MAX * whole or (lost <= LOST_ALWAYS_MAX and named):
        return None
    return (
        f"{lost} of {whole} complete ledgers here are named by no topic: metadata may have been lost or "
        "restored, or another cluster uses this location; sweep by hand when they are certainly not needed"
    )
