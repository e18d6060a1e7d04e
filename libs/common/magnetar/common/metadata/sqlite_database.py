"""The SQLite metadata file: format and transactions. Blocking; runs in the store's only thread.

The file is an SQLite database in WAL mode with synchronous=FULL: a commit returns once the WAL is synced. It
is marked by `application_id` and, as its format version, `user_version`; the single row of table `store`
holds the revision and the incompatible-feature bits. The file is locked while it is open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.common.errors import MetadataError, UnknownOutcome, UnsupportedFormat, VersionMismatch
from magnetar.common.metadata.store import (
    ANY_VERSION,
    Check,
    Delete,
    Listing,
    Op,
    Put,
    Versioned,
    WatchEvent,
)

APPLICATION_ID: Final = int.from_bytes(b"MGNR", "big")
FORMAT_VERSION: Final = 1
_KNOWN_FEATURES: Final = 0

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE store (revision INTEGER NOT NULL, incompatible_features INTEGER NOT NULL);
INSERT INTO store VALUES (0, 0);
CREATE TABLE keys (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, lease INTEGER
) WITHOUT ROWID;
CREATE INDEX keys_by_lease ON keys (lease) WHERE lease IS NOT NULL;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Get:
    """A read of one key."""

    key: str


@dataclass(frozen=True, slots=True)
class Children:
    """A read of every key with a prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction; its ephemeral puts are bound to `lease`."""

    ops: Sequence[Op]
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class EndLease:
    """Removal of a lease's keys."""

    lease: int


Request = Get | Children | Commit | EndLease
Answer = Versioned | Listing | int | MetadataError | None


class SqliteDatabase:
    """An open metadata file. Raises MetadataError or UnsupportedFormat when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: MetadataError | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        except sqlite3.Error as error:
            raise MetadataError(f"cannot open the metadata file {path}: {error}") from error
        try:
            self._prepare()
            self._revision: int = self._execute("SELECT revision FROM store").fetchone()[0]
            self._remove_leases_of_the_last_life()
            _sync_directory(path.parent)
            _sync_directory(path.parent.parent)
        except sqlite3.Error as error:
            self._connection.close()
            raise _opening_error(path, error) from error
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Writes the WAL back into the database file and closes both."""
        self._connection.close()

    def run(self, requests: Sequence[Request]) -> tuple[list[Answer], list[WatchEvent]]:
        """Answers requests in order, with all writes in one SQLite transaction that is durable on return.

        Each commit is atomic and has its own guards: a failed one changes nothing and does not affect the
        others. Also returns the changes, in order.
        """
        if self._failed is not None:
            return [self._failed] * len(requests), []
        before = self._revision
        events: list[WatchEvent] = []
        writes = any(isinstance(request, Commit | EndLease) for request in requests)
        try:
            if writes:
                self._execute("BEGIN IMMEDIATE")
            answers = [self._answer(request, events) for request in requests]
            if writes:
                if self._revision != before:
                    self._execute("UPDATE store SET revision = ?", (self._revision,))
                self._execute("COMMIT")
        except sqlite3.Error as error:
            self._revision = before
            return self._failure(requests, error), []
        except Exception:
            self._revision = before
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise
        return answers, events

    def _answer(self, request: Request, events: list[WatchEvent]) -> Answer:
        match request:
            case Get(key):
                row = self._execute("SELECT value, version FROM keys WHERE key = ?", (key,)).fetchone()
                return None if row is None else Versioned(key, row[0], row[1])
            case Children(prefix):
                rows = self._execute(
                    "SELECT key, value, version FROM keys"
                    " WHERE key >= ? AND key < CAST(? AS TEXT) ORDER BY key",
                    (prefix, _after(prefix)),
                )
                return Listing(self._revision, [Versioned(*row) for row in rows])
            case Commit(ops, lease):
                return self._commit(ops, lease, events)
            case EndLease(lease):
                keys = self._execute("SELECT key FROM keys WHERE lease = ? ORDER BY key", (lease,)).fetchall()
                if keys:
                    self._commit([Delete(key) for (key,) in keys], None, events)
                return None

    def _commit(self, ops: Sequence[Op], lease: int | None, events: list[WatchEvent]) -> Answer:
        """Checks the guards before writing, so that a failed guard leaves nothing to undo."""
        for op in ops:
            if op.expected_version != ANY_VERSION:
                row = self._execute("SELECT version FROM keys WHERE key = ?", (op.key,)).fetchone()
                actual = 0 if row is None else row[0]
                if actual != op.expected_version:
                    return VersionMismatch(op.key, op.expected_version, actual)
        if all(isinstance(op, Check) for op in ops):
            return self._revision
        self._revision += 1
        for op in ops:
            match op:
                case Put(key, value):
                    self._execute(
                        "INSERT OR REPLACE INTO keys (key, value, version, lease) VALUES (?, ?, ?, ?)",
                        (key, value, self._revision, lease if op.ephemeral else None),
                    )
                    events.append(WatchEvent(key, value, self._revision))
                case Delete(key):
                    if self._execute("DELETE FROM keys WHERE key = ?", (key,)).rowcount:
                        events.append(WatchEvent(key, None, self._revision))
        return self._revision

    def _failure(self, requests: Sequence[Request], error: sqlite3.Error) -> list[Answer]:
        """Returns the error for each request of a batch that SQLite refused.

        If the disk was full nothing was written, and a later attempt may succeed. After any other device
        error the WAL's content is unknown: no more requests are accepted, and the next start recovers the
        file.
        """
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self._connection.in_transaction:
            try:
                self._execute("ROLLBACK")
            except sqlite3.Error:
                code = sqlite3.SQLITE_IOERR
        text = f"the metadata file {self._path} cannot be written: {error}"
        if code == sqlite3.SQLITE_FULL:
            return [MetadataError(f"{text}; nothing was changed")] * len(requests)
        self._failed = MetadataError(f"{text}; restart to recover it")
        unknown = UnknownOutcome(f"{text}; whether this change was made shows after a restart")
        return [unknown if isinstance(request, Commit | EndLease) else self._failed for request in requests]

    def _execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, parameters)

    def _prepare(self) -> None:
        self._execute("PRAGMA locking_mode = EXCLUSIVE")
        marked: int = self._execute("PRAGMA application_id").fetchone()[0]
        version: int = self._execute("PRAGMA user_version").fetchone()[0]
        if marked == 0 and version == 0 and not self._execute("SELECT 1 FROM sqlite_master").fetchone():
            self._durable()
            self._connection.executescript(_SCHEMA)
            return
        if marked != APPLICATION_ID:
            raise UnsupportedFormat(f"{self._path} is an SQLite file of another application, not metadata")
        features = 0
        if version == FORMAT_VERSION:
            features = self._execute("SELECT incompatible_features FROM store").fetchone()[0]
        if version != FORMAT_VERSION or features & ~_KNOWN_FEATURES:
            raise UnsupportedFormat(
                f"the metadata file {self._path} has format version {version} and incompatible features "
                f"{features:#x}; this release reads version {FORMAT_VERSION} and features "
                f"{_KNOWN_FEATURES:#x}"
            )
        self._durable()

    def _durable(self) -> None:
        mode = self._execute("PRAGMA journal_mode = WAL").fetchone()[0]
        assert mode == "wal", f"journal mode is {mode}"
        self._execute("PRAGMA synchronous = FULL")
        # Takes the lock now, also if nothing is written.
        self._execute("BEGIN IMMEDIATE")
        self._execute("COMMIT")

    def _remove_leases_of_the_last_life(self) -> None:
        self._execute("BEGIN IMMEDIATE")
        if self._execute("DELETE FROM keys WHERE lease IS NOT NULL").rowcount:
            self._revision += 1
            self._execute("UPDATE store SET revision = ?", (self._revision,))
        self._execute("COMMIT")


def _after(prefix: str) -> bytes:
    """Returns a key that sorts after every key with the prefix: UTF-8 text never holds the byte 0xff."""
    return prefix.encode() + b"\xff"


def _opening_error(path: Path, error: sqlite3.Error) -> MetadataError | UnsupportedFormat:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return MetadataError(f"the metadata file {path} is in use by another process")
    if code == sqlite3.SQLITE_NOTADB:
        return UnsupportedFormat(f"{path} is not a metadata file: {error}")
    return MetadataError(f"cannot open the metadata file {path}: {error}")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
