"""The file behind the SQLite store: format, locking, grouping, failure."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, UnsupportedFormat
from magnetar.common.metadata import sqlite_database
from magnetar.common.metadata.sqlite_database import SqliteDatabase
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore

from tests.unit.common.metadata.in_a_file import with_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata" / "metadata.db"


async def write_one(store: SqliteMetadataStore) -> None:
    await store.put("/a", b"1")


def change_file(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def refusal(path: Path) -> Exception:
    with pytest.raises((MetadataError, UnsupportedFormat)) as refused:
        with_store(path, write_one)
    assert str(path) in str(refused.value)
    return refused.value


def test_a_file_of_another_application_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    change_file(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    assert isinstance(refusal(path), UnsupportedFormat)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, by any means" * 100)
    assert isinstance(refusal(path), UnsupportedFormat)
    assert path.read_bytes() == b"not a database, by any means" * 100


@pytest.mark.parametrize(
    "change",
    ["PRAGMA user_version = 2", "UPDATE store SET incompatible_features = 4"],
    ids=["version", "bit"],
)
def test_a_newer_format_is_refused(path: Path, change: str) -> None:
    with_store(path, write_one)
    change_file(path, change)
    assert isinstance(refusal(path), UnsupportedFormat)


def test_a_second_opener_is_refused_while_the_file_is_open(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        with pytest.raises(MetadataError, match="in use by another process"):
            await SqliteMetadataStore.open(path)
        await store.put("/a", b"1")

    with_store(path, scenario)
    with_store(path, write_one)


def test_a_commit_is_in_the_synced_write_ahead_log_when_it_is_answered(path: Path, tmp_path: Path) -> None:
    """What a process leaves that dies right after an answer: the files as they are at that moment."""

    async def scenario(store: SqliteMetadataStore) -> None:
        assert await on_thread(store, "PRAGMA journal_mode") == [("wal",)]
        assert await on_thread(store, "PRAGMA synchronous") == [(2,)]
        await store.put("/kept", b"1")
        await (await store.session(1000)).put_ephemeral("/ephemeral", b"1")
        for file in path.parent.iterdir():
            (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())

    (tmp_path / "copy").mkdir()
    with_store(path, scenario)

    async def after(store: SqliteMetadataStore) -> None:
        listing = await store.children("/")
        assert [item.key for item in listing.items] == ["/kept"]
        assert listing.revision == 3  # the removal of the ephemeral key is a change of its own

    with_store(tmp_path / "copy" / path.name, after)


def test_writes_of_one_loop_turn_are_one_transaction(path: Path) -> None:
    batches: list[int] = []

    async def scenario(store: SqliteMetadataStore) -> None:
        run = store._database.run

        def counting(requests: Any) -> Any:
            batches.append(len(requests))
            return run(requests)

        store._database.run = counting  # type: ignore[method-assign]
        await asyncio.gather(*(store.put(f"/{number}", b"") for number in range(50)), store.get("/1"))

    with_store(path, scenario)
    assert batches == [51]


def test_a_read_sees_the_writes_asked_for_before_it(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        writing = asyncio.ensure_future(store.put("/a", b"new"))
        await asyncio.sleep(0)
        read = await store.get("/a")
        assert read is not None
        assert read.value == b"new"
        await writing

    with_store(path, scenario)


def test_a_cancelled_caller_does_not_disturb_the_others(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        first = asyncio.ensure_future(store.put("/a", b"1"))
        second = asyncio.ensure_future(store.put("/b", b"1"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second > 0
        assert await store.get("/a") is not None

    with_store(path, scenario)


def test_close_answers_what_was_asked_before_it(path: Path) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(path)
        pending = [asyncio.ensure_future(store.put(f"/{number}", b"")) for number in range(10)]
        await asyncio.sleep(0)
        await store.close()
        assert all(task.done() and task.result() > 0 for task in pending)

    asyncio.run(main())
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_full_disk_writes_nothing_says_so_and_passes(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        version = await store.put("/a", b"1")
        await on_thread(store, "PRAGMA max_page_count = 8")
        watch = store.watch("/")
        outcomes = await asyncio.gather(
            store.put("/a", b"2"), store.put("/big", b"x" * 500_000), return_exceptions=True
        )
        for outcome in outcomes:
            assert isinstance(outcome, MetadataError)
            assert not isinstance(outcome, UnknownOutcome)
            assert "nothing was changed" in str(outcome)
        current = await store.get("/a")
        assert current is not None
        assert (current.value, current.version) == (b"1", version)
        await on_thread(store, "PRAGMA max_page_count = 100000")
        assert await store.put("/big", b"x" * 500_000) == version + 1
        assert (await watch.__anext__()).key == "/big"

    with_store(path, scenario)


def test_after_a_failed_sync_nothing_is_believed_any_more(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        await store.put("/a", b"1")
        execute = store._database._execute

        def failing(sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            if sql == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return execute(sql, parameters)

        store._database._execute = failing  # type: ignore[method-assign]
        outcomes = await asyncio.gather(store.put("/a", b"2"), store.get("/a"), return_exceptions=True)
        assert isinstance(outcomes[0], UnknownOutcome)
        assert isinstance(outcomes[1], MetadataError)
        store._database._execute = execute  # type: ignore[method-assign]
        with pytest.raises(MetadataError, match="restart"):
            await store.get("/a")
        with pytest.raises(MetadataError, match="restart"):
            await store.put("/a", b"3")

    with_store(path, scenario)
    with_store(path, write_one)


def test_an_unexpected_error_leaves_no_transaction_open(path: Path) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        with pytest.raises(MetadataError):
            await store.put("/\ud800", b"a key that is no text")
        await store.put("/a", b"1")

    with_store(path, scenario)


def test_the_directory_is_synced_when_a_file_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(sqlite_database, "_sync_directory", synced.append)
    SqliteDatabase(path).close()
    assert path.parent in synced
    assert path.parent.parent in synced


async def on_thread(store: SqliteMetadataStore, sql: str) -> list[tuple[object, ...]]:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(store._thread, lambda: store._database._execute(sql).fetchall())
