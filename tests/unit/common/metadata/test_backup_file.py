"""A copy of metadata as a file: whole and as it was written, or refused."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.metadata.backup_file import (
    BackupHeader,
    BackupSummary,
    read_backup,
    verify_backup,
    write_backup,
)

HEADER = BackupHeader(
    cluster="eu",
    instance_id=bytes(range(16)).hex(),
    revision=2**40,
    taken_ms=1_600_000_000_000,
    release="0.1.0",
)
ITEMS = [
    ("counters/ledger-id", b"\x00\xff"),
    ("ledgers/00000000000000000001", b""),
    ("tenants/a%2Fb", b"{}\n"),
]
GOLDEN = Path(__file__).parents[3] / "golden" / "metadata-backup" / "v1.gz"
"""Written once by version 1 (HEADER and ITEMS above), never again."""


def written(path: Path) -> BackupSummary:
    return write_backup(path, HEADER, ITEMS)


def test_written_backup_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    summary = written(path)
    assert summary.keys == 3
    assert verify_backup(path) == summary
    assert read_backup(path) == (summary, ITEMS)
    assert [each.name for each in tmp_path.iterdir()] == ["backup"]


def test_a_file_of_version_1_is_read_for_ever() -> None:
    summary, items = read_backup(GOLDEN)
    assert (summary.header, items) == (HEADER, ITEMS)


def test_equal_metadata_gives_equal_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        written(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    written(tmp_path / "backup")
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600


def test_a_backup_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="replaces nothing"):
        written(path)
    assert path.read_text() == "precious"


def test_two_of_one_name_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "backup"

    def others_come_first() -> Iterator[tuple[str, bytes]]:
        yield "tenants/a", b"x" * 1000
        written(path)
        yield "tenants/b", b"y" * 1000

    with pytest.raises(FileExistsError, match="replaces nothing"):
        write_backup(path, HEADER, others_come_first())
    assert read_backup(path)[1] == ITEMS
    assert [each.name for each in tmp_path.iterdir()] == ["backup"]


def test_a_file_system_without_links_holds_backups_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "backup"
    summary = written(path)
    assert verify_backup(path) == summary
    with pytest.raises(FileExistsError, match="replaces nothing"):
        written(path)
    assert [each.name for each in tmp_path.iterdir()] == ["backup"]


def test_interrupted_backup_leaves_no_file(tmp_path: Path) -> None:
    def breaks_off() -> Iterator[tuple[str, bytes]]:
        yield ITEMS[0]
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_backup(tmp_path / "backup", HEADER, breaks_off())
    assert list(tmp_path.iterdir()) == []


def test_no_shorter_file_is_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    written(path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DataCorruption):
            verify_backup(path)


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


@pytest.mark.parametrize("gone", range(5))
def test_a_missing_line_is_noticed(tmp_path: Path, gone: int) -> None:
    path = tmp_path / "backup"
    written(path)
    lines = lines_of(path)
    del lines[gone]
    path.write_bytes(gzip.compress(b"".join(lines)))
    with pytest.raises(DataCorruption):
        verify_backup(path)


def test_any_other_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    written(path)
    text = b"".join(lines_of(path))
    for at in range(len(text)):
        other = bytearray(text)
        other[at] ^= 1
        path.write_bytes(gzip.compress(bytes(other), compresslevel=0))
        with pytest.raises((DataCorruption, UnsupportedFormat)):
            verify_backup(path)


def test_a_later_version_is_refused_with_the_release_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    first = {"magnetar": "metadata-backup", "version": 2, "release": "9.0"}
    path.write_bytes(gzip.compress(json.dumps(first).encode() + b"\n"))
    with pytest.raises(UnsupportedFormat, match=r"format version 2.*9\.0"):
        verify_backup(path)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"text", id="text"),
        pytest.param(gzip.compress(b"[]\n"), id="no header"),
        pytest.param(gzip.compress(b'{"magnetar": "x"}\n'), id="another's header"),
    ],
)
def test_invalid_backup_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "backup"
    path.write_bytes(data)
    with pytest.raises(DataCorruption, match=r"no .*backup of metadata"):
        verify_backup(path)
