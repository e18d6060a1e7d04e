"""A metadata backup file: gzip over lines of JSON, readable with any tool.

    {"magnetar": "metadata-backup", "version": 1, "cluster": ..., "instance_id": hex, "revision": ...,
     "taken_ms": ..., "release": ..., "unreleased_from": ...}
    {"k": "tenants/public", "v": base64}        one line per key, below /magnetar/<cluster>/v1/, in order
    ...
    {"keys": ..., "sha256": hex}                of all bytes before this line, uncompressed

A file without its last line, or with another checksum, is refused before anything is restored. The file is
written under a temporary name and renamed once complete and synced, so the final name always means a complete
backup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from magnetar.common.errors import DataCorruption, UnsupportedFormat

KIND: Final = "metadata-backup"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupHeader:
    """Source and time of a backup."""

    cluster: str
    instance_id: str
    """32 hexadecimal digits; empty before the first start."""
    revision: int
    """The store's revision at which every key was read."""
    taken_ms: int
    """Milliseconds since 1970 UTC."""
    release: str
    """The Magnetar version that wrote the file."""
    unreleased_from: int = 0
    """The first ledger id reserved by an earlier, still unreleased restoration; 0 without one."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """Content of a complete file."""

    header: BackupHeader
    keys: int
    sha256: str


def write_backup(path: Path, header: BackupHeader, items: Iterable[tuple[str, bytes]]) -> BackupSummary:
    """Writes a file readable by its owner only: it may hold secrets, such as passwords of clusters.

    `items` are keys below the cluster's root, in order, with their values. Blocks. Raises FileExistsError if
    the path exists, OSError.
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already; a backup replaces nothing")
    # Readable by its owner only.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
                summary = _write(file, header, items)
            raw.flush()
            os.fsync(raw.fileno())
        _name(new, path)
    finally:
        new.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return summary


def _name(new: Path, path: Path) -> None:
    """Gives a complete file its name; unlike a rename, this fails if the name was created meanwhile."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise FileExistsError(f"{path} is there already; a backup replaces nothing") from None
    except OSError:  # some network file systems have no links
        if path.exists():
            raise FileExistsError(f"{path} is there already; a backup replaces nothing") from None
        new.rename(path)


def _write(file: gzip.GzipFile, header: BackupHeader, items: Iterable[tuple[str, bytes]]) -> BackupSummary:
    digest, keys = hashlib.sha256(), 0

    def line(value: dict[str, Any]) -> None:
        data = json.dumps(value).encode() + b"\n"
        digest.update(data)
        file.write(data)

    line({"magnetar": KIND, "version": VERSION, **asdict(header)})
    for key, value in items:
        line({"k": key, "v": base64.b64encode(value).decode()})
        keys += 1
    summary = BackupSummary(header, keys, digest.hexdigest())
    line({"keys": keys, "sha256": summary.sha256})
    return summary


def verify_backup(path: Path) -> BackupSummary:
    """Reads the whole file and checks that it is complete. Blocks.

    Raises DataCorruption, UnsupportedFormat of a later release's file, OSError.
    """
    return _read(path, lambda key, value: None)


def read_backup(path: Path) -> tuple[BackupSummary, list[tuple[str, bytes]]]:
    """Returns the header and items of a complete file, in order. Blocks; raises as `verify_backup`."""
    items: list[tuple[str, bytes]] = []
    summary = _read(path, lambda key, value: items.append((key, value)))
    return summary, items


def _read(path: Path, take: Callable[[str, bytes], None]) -> BackupSummary:
    digest = hashlib.sha256()
    header: BackupHeader | None = None
    summary: BackupSummary | None = None
    keys, last_key = 0, ""
    for line, value in _lines(path):  # to the very end: gzip has a checksum of its own there
        if summary is not None:
            raise DataCorruption(f"{path} is damaged: something follows its end")
        if header is None:
            header = _header(path, value)
        elif "k" in value:
            try:
                key, data = str(value["k"]), base64.b64decode(value["v"], validate=True)
            except (KeyError, TypeError, ValueError) as error:
                raise DataCorruption(f"{path} is damaged: a key has no value") from error
            if key <= last_key:
                raise DataCorruption(f"{path} is damaged: {key!r} comes after {last_key!r}")
            take(key, data)
            keys, last_key = keys + 1, key
        else:
            if (value.get("keys"), value.get("sha256")) != (keys, digest.hexdigest()):
                raise DataCorruption(f"{path} is damaged: its checksum is another one")
            summary = BackupSummary(header, keys, digest.hexdigest())
        digest.update(line)
    if summary is None:
        raise DataCorruption(f"{path} is no whole backup of metadata: its end is missing")
    return summary


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise DataCorruption(f"{path} is no backup of metadata")
                yield line, value
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataCorruption(f"{path} is no whole backup of metadata: {error}") from error


def _header(path: Path, value: dict[str, Any]) -> BackupHeader:
    if value.get("magnetar") != KIND:
        raise DataCorruption(f"{path} is no backup of metadata")
    version = value.get("version")
    if version != VERSION:
        raise UnsupportedFormat(
            f"{path} has format version {version}, this release reads {VERSION}: run the release that wrote "
            f"it ({value.get('release', 'not said')}), or a newer one"
        )
    try:
        return BackupHeader(
            cluster=str(value["cluster"]),
            instance_id=str(value["instance_id"]),
            revision=int(value["revision"]),
            taken_ms=int(value["taken_ms"]),
            release=str(value["release"]),
            unreleased_from=int(value.get("unreleased_from", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorruption(f"{path} is damaged: its first line lacks {error}") from error
