"""Object stores: the same calls on files and in memory, typed errors, nothing half-written under its name."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import ConfigError
from magnetar.ledger.cold import objects
from magnetar.ledger.cold.objects import (
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    open_store,
)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "file":
        yield open_store(f"file://{tmp_path}/cold/here")
        return
    fsspec = pytest.importorskip("fsspec")
    yield open_store("memory://cold/here")
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pseudo_dirs.clear()


def test_an_object_is_written_read_and_deleted(store: ObjectStore, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"from a file")
    store.put_bytes("a/b/one", b"hello")
    store.put_file(str(local), "a/two")
    assert store.read("a/b/one") == b"hello"
    assert store.read("a/b/one", 1, 3) == b"ell"
    assert store.read("a/b/one", 3, 100) == b"lo"
    assert store.read("a/b/one", 5, 100) == b""
    assert store.read("a/two") == b"from a file"
    assert (store.size("a/b/one"), store.exists("a/b/one"), store.exists("a/b/three")) == (5, True, False)
    store.delete("a/b/one")
    store.delete("a/b/one")
    assert not store.exists("a/b/one")


def test_an_object_is_replaced_as_a_whole(store: ObjectStore) -> None:
    store.put_bytes("one", b"a longer one")
    store.put_bytes("one", b"short")
    assert store.read("one") == b"short"


def test_everything_below_a_directory_is_listed(store: ObjectStore) -> None:
    paths = ["a/ledger=1/x", "a/ledger=1/y", "a/ledger=2/x", "b", "a/_hidden", "ab/c"]
    for number, path in enumerate(paths):
        store.put_bytes(path, bytes(number))
    found = {each.path: each.byte_length for each in store.list()}
    assert found == {path: number for number, path in enumerate(paths)}
    assert {each.path for each in store.list("a")} == {path for path in paths if path.startswith("a/")}
    assert [each.path for each in store.list("a/ledger=2")] == ["a/ledger=2/x"]
    assert list(store.list("nowhere")) == []
    assert all(each.modified_ms > 1_700_000_000_000 for each in store.list())


def test_missing_object_is_a_typed_error(store: ObjectStore, tmp_path: Path) -> None:
    for call in (store.read, store.size, store.open):
        with pytest.raises(NoSuchObject, match=r"nothing at .*here"):
            call("nothing")
    store.put_bytes("a/b", b"x")
    with pytest.raises(NoSuchObject):
        store.size("a")
    with pytest.raises(ObjectStoreError):
        store.put_file(str(tmp_path / "nothing"), "c")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a//b", "."])
def test_no_path_leads_out_of_the_location(store: ObjectStore, path: str) -> None:
    with pytest.raises(ObjectStoreError, match="is not a path below"):
        store.put_bytes(path, b"")


def test_an_open_object_reads_and_seeks_like_a_file(store: ObjectStore) -> None:
    data = bytes(range(256))
    store.put_bytes("one", data)
    for file in (store.open("one"), store.open("one", 256)):
        same = io.BytesIO(data)
        for seek, size in (
            ((0, 0), 10),
            ((-8, 2), 8),
            ((-8, 2), 100),
            ((100, 0), 50),
            ((-20, 1), 3),
            ((300, 0), 5),
        ):
            assert file.seek(*seek) == same.seek(*seek)
            assert file.read(size) == same.read(size)
            assert file.tell() == same.tell()
        file.seek(0)
        assert file.read() == data
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)


def test_an_object_that_goes_while_it_is_open_is_a_typed_error(store: ObjectStore) -> None:
    store.put_bytes("one", bytes(100))
    file = store.open("one", 100)
    store.delete("one")
    with pytest.raises(NoSuchObject):
        file.read(10)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    store.put_bytes("a/one", b"before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ObjectStoreUnavailable, match="No space left"):
        store.put_bytes("a/one", b"after")
    assert store.read("a/one") == b"before"
    assert [each.path for each in store.list()] == ["a/one"]


def test_files_and_the_directories_made_for_them_are_synced_before_a_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"file://{tmp_path}")
    synced: list[int] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store.put_bytes("a/b/one", b"x")
    expected = ["a/b/one", "a/b", "a", "."]
    assert synced == [(tmp_path / path).stat().st_ino for path in expected]


def test_directories_that_deletions_leave_empty_go(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/cold")
    store.put_bytes("a/b/one", b"x")
    store.put_bytes("a/two", b"x")
    store.delete("a/b/one")
    assert not (tmp_path / "cold/a/b").exists()
    store.delete("a/two")
    assert list((tmp_path / "cold").iterdir()) == []


def test_writers_beside_a_deleter_lose_nothing(tmp_path: Path) -> None:
    """Directories that are empty for a moment are deleted under the feet of who made them."""
    store = open_store(f"file://{tmp_path}")
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                path = f"a/b/{number}-{turn}"
                store.put_bytes(path, b"x" * turn)
                assert store.read(path) == b"x" * turn
                store.delete(path)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), ObjectStoreUnavailable),
        (TimeoutError("slow"), ObjectStoreUnavailable),
        (OSError(errno.EBUSY, "slow down"), ObjectStoreUnavailable),
        (OSError(errno.EIO, "500"), ObjectStoreUnavailable),
        (RuntimeError("who knows"), ObjectStoreUnavailable),
        (PermissionError("Access Denied"), ObjectStoreError),
        (OSError(errno.EINVAL, "bad name"), ObjectStoreError),
        (NotImplementedError(), ObjectStoreError),
        (FileNotFoundError("gone"), NoSuchObject),
    ],
)
def test_errors_of_libraries_say_whether_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[ObjectStoreError]
) -> None:
    store = open_store(f"file://{tmp_path}")

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(store._fs, "cat_file", fails)
    with pytest.raises(ObjectStoreError) as raised:
        store.read("a/b")
    assert type(raised.value) is kind
    assert raised.value.retriable == (kind is ObjectStoreUnavailable)
    assert "a/b at file://" in str(raised.value)


def test_refused_credentials_say_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"file://{tmp_path}")

    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(store._fs, "ls", refuses)
    with pytest.raises(ObjectStoreError, match=r"Access Denied; check the credentials in the environment"):
        list(store.list())


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("", "is not a URI"),
        ("/var/lib/cold", "file:///var/lib/cold"),
        ("nosuchstore://bucket", "use file:// or s3://"),
        ("s3://key:secret@bucket/prefix", "give them in the environment"),
    ],
)
def test_a_location_that_cannot_be_says_what_to_do(location: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        open_store(location)
    assert "secret" not in str(raised.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="pip install gcsfs"):
        open_store("gs://bucket/prefix")

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(objects, "import_module", missing)
    with pytest.raises(ConfigError, match="pip install fsspec pyarrow s3fs"):
        open_store("file:///tmp")
