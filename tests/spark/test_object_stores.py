"""A real S3 endpoint: the same calls as on files, typed errors, and one that is silent is given up."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.ledger.cold import objects
from magnetar.ledger.cold.objects import (
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    open_store,
)
from magnetar.testing.free_ports import free_ports

from tests.spark.object_stores import S3, s3_server

MB = 1 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    return open_store(s3.location(request.node.name))


def test_objects_are_written_read_listed_and_deleted(store: ObjectStore, tmp_path: Path) -> None:
    local = tmp_path / "part.parquet"
    local.write_bytes(b"from a file")
    store.put_bytes("t/n/a!2Fb/ledger=1/_manifest.json", b"{}")
    store.put_file(str(local), "t/n/a!2Fb/ledger=1/part.parquet")
    store.put_bytes("t/n/c/ledger=2/empty", b"")
    assert store.read("t/n/a!2Fb/ledger=1/part.parquet", 5, 1) == b"a"
    assert store.read("t/n/a!2Fb/ledger=1/part.parquet", 5, 100) == b"a file"
    assert store.read("t/n/a!2Fb/ledger=1/part.parquet", 11, 100) == b""
    assert store.read("t/n/c/ledger=2/empty") == b""
    assert store.read("t/n/c/ledger=2/empty", 0, 10) == b""
    assert store.size("t/n/a!2Fb/ledger=1/part.parquet") == 11
    assert not store.exists("t/n/c")
    found = {each.path: each.byte_length for each in store.list()}
    assert found == {
        "t/n/a!2Fb/ledger=1/_manifest.json": 2,
        "t/n/a!2Fb/ledger=1/part.parquet": 11,
        "t/n/c/ledger=2/empty": 0,
    }
    assert all(each.modified_ms > 1_700_000_000_000 for each in store.list())
    assert [each.path for each in store.list("t/n/c")] == ["t/n/c/ledger=2/empty"]
    assert list(store.list("nowhere")) == []
    for path in found:
        store.delete(path)
        store.delete(path)
    assert list(store.list()) == []


def test_concurrent_writes_are_seen(store: ObjectStore, s3: S3) -> None:
    store.put_bytes("one", b"before")
    assert [each.path for each in store.list()] == ["one"]
    prefix = store.location.removeprefix(f"s3://{s3.bucket}/")
    s3.client().put_object(Bucket=s3.bucket, Key=f"{prefix}/two", Body=b"x")
    s3.client().put_object(Bucket=s3.bucket, Key=f"{prefix}/one", Body=b"after, and longer")
    assert {each.path for each in store.list()} == {"one", "two"}
    assert store.read("one") == b"after, and longer"
    assert store.size("one") == 17


@pytest.mark.full
def test_a_listing_takes_a_request_for_a_thousand_objects_and_not_one_for_each_directory(
    store: ObjectStore, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = store.location.removeprefix(f"s3://{s3.bucket}/")
    client = s3.client()
    written = [f"t/n/topic-{number}/ledger=1/attempt=0/part" for number in range(1_050)]
    for path in written:
        client.put_object(Bucket=s3.bucket, Key=f"{prefix}/{path}", Body=b"x")
    client.put_object(Bucket=s3.bucket, Key=f"{prefix}/t/", Body=b"")  # a console's "directory"
    client.put_object(Bucket=s3.bucket, Key=f"{prefix}-beside/part", Body=b"another place")
    asked: list[str] = []
    call = type(store._fs).call_s3

    def counted(self: object, method: str, *given: object, **options: object) -> object:
        asked.append(method)
        return call(self, method, *given, **options)

    monkeypatch.setattr(type(store._fs), "call_s3", counted)
    assert sorted(each.path for each in store.list()) == sorted(written)
    assert asked == ["list_objects_v2"] * 2


@pytest.mark.full
def test_a_large_file_goes_in_pieces(store: ObjectStore, s3: S3, tmp_path: Path) -> None:
    local = tmp_path / "large"
    with local.open("wb") as file:
        for number in range(64):
            file.write(bytes([number]) * MB)
    store.put_file(str(local), "large")
    assert store.size("large") == 64 * MB
    assert store.read("large", 40 * MB - 1, 2) == bytes([39, 40])
    prefix = store.location.removeprefix(f"s3://{s3.bucket}/")
    told = s3.client().head_object(Bucket=s3.bucket, Key=f"{prefix}/large")["ETag"]
    assert told.strip('"').endswith("-4"), "of 16 MiB each, not one in memory"


def test_missing_objects_are_distinguished(store: ObjectStore) -> None:
    with pytest.raises(NoSuchObject):
        store.read("nothing")
    with pytest.raises(NoSuchObject):
        store.open("nothing", 10).read(5)
    elsewhere = open_store("s3://no-such-bucket/x")
    with pytest.raises(NoSuchObject):
        elsewhere.read("nothing")
    with pytest.raises(ObjectStoreError, match="does the bucket exist") as raised:
        elsewhere.put_bytes("one", b"x")
    assert not raised.value.retriable


def test_a_store_that_is_away_is_told_and_may_come_back(monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    store = open_store(s3.location("away"))
    with pytest.raises(ObjectStoreUnavailable) as raised:
        store.put_bytes("one", b"x")
    assert raised.value.retriable
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)
    monkeypatch.undo()
    open_store(s3.location("away")).put_bytes("one", b"x")


@pytest.mark.full
def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    monkeypatch.setattr(objects, "READ_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ObjectStoreUnavailable, match=r"(?i)timeout"):
            open_store(s3.location("silent")).read("one")
        silent.settimeout(0.2)
        requests = 0
        while True:
            try:
                silent.accept()[0].close()
            except TimeoutError:
                break
            requests += 1
    assert 0 < requests <= objects.ATTEMPTS_MAX * objects.ROUNDS_MAX**2
