"""Schema versions over the SQLite store."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.schemas.schema_store import NO_VERSION, SchemaStore
from magnetar.common.errors import (
    IncompatibleSchema,
    InvalidSchema,
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.metadata.values import Namespace, SchemaRecord, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.schemas.rules import Strategy
from magnetar.common.wire.pulsar_pb2 import Schema

KEYS = Keys("standalone")
TOPIC = TopicName.parse("orders")
ANY = SchemaRules(Strategy.ALWAYS_COMPATIBLE)
FULL = SchemaRules(Strategy.FULL)

Body = Callable[[SqliteMetadataStore, SchemaStore], Awaitable[None]]


def definition(*fields: str) -> bytes:
    members = [{"name": field, "type": "int"} for field in fields]
    return json.dumps({"type": "record", "name": "R", "fields": members}).encode()


def schema(*fields: str, kind: Schema.Type.ValueType = Schema.Avro, **properties: str) -> Schema:
    made = Schema(name="orders", schema_data=definition(*fields), type=kind)
    for key, value in properties.items():
        made.properties.add(key=key, value=value)
    return made


def version(number: int) -> bytes:
    return struct.pack(">q", number)


def with_store(tmp_path: Path, body: Body) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        try:
            await store.put(KEYS.namespace(TOPIC.namespace), encode(Namespace()))
            await body(store, SchemaStore(store, KEYS))
        finally:
            await store.close()

    asyncio.run(run())


def test_versions_count_up_from_zero_and_an_equal_schema_keeps_its_version(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.put(TOPIC, schema("one"), ANY) == version(0)
        assert await schemas.put(TOPIC, schema("two"), ANY) == version(1)
        assert await schemas.put(TOPIC, schema("one"), ANY) == version(0)
        assert await schemas.put(TOPIC, schema("three"), ANY) == version(2)

    with_store(tmp_path, body)


def test_type_and_definition_make_a_schema_and_its_name_and_properties_do_not(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.put(TOPIC, schema("x", a="1", b="2"), ANY) == version(0)
        assert await schemas.put(TOPIC, schema("x", a="3"), ANY) == version(0)
        assert await schemas.put(TOPIC, schema("x", kind=Schema.Json), ANY) == version(1)
        renamed = schema("x", a="1", b="2")
        renamed.name = "other"
        assert await schemas.put(TOPIC, renamed, ANY) == version(0)

    with_store(tmp_path, body)


def test_a_schema_comes_back_as_it_was_given(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.get(TOPIC) is None
        first, last = schema("first", a="1", b="2"), Schema(name="o", schema_data=b"", type=Schema.Int8)
        await schemas.put(TOPIC, first, ANY)
        await schemas.put(TOPIC, last, ANY)
        assert await schemas.get(TOPIC) == (last, version(1))
        assert await schemas.get(TOPIC, version(0)) == (first, version(0))
        assert await schemas.get(TOPIC, version(2)) is None
        assert await schemas.get(TOPIC, version(-1)) is None

    with_store(tmp_path, body)


def test_the_first_eight_bytes_of_a_long_version_count(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await schemas.put(TOPIC, schema("first"), ANY)
        await schemas.put(TOPIC, schema("last"), ANY)
        assert await schemas.get(TOPIC, version(0) + bytes(56)) == (schema("first"), version(0))
        for short in (b"\x01", bytes(7)):
            with pytest.raises(NotAllowed, match="8 bytes"):
                await schemas.get(TOPIC, short)

    with_store(tmp_path, body)


def test_partitions_share_the_schemas_of_their_topic(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.put(TOPIC.partition(0), schema("one"), ANY) == version(0)
        assert await schemas.put(TOPIC.partition(7), schema("one"), ANY) == version(0)
        assert await schemas.put(TOPIC, schema("two"), ANY) == version(1)
        assert await schemas.get(TOPIC.partition(3), version(0)) == (schema("one"), version(0))
        assert await schemas.get(TopicName.parse("orders2")) is None

    with_store(tmp_path, body)


def test_plain_bytes_have_no_version_and_auto_types_are_refused(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        nothing = Schema(name="o", schema_data=b"", type=Schema.Type.Value("None"))
        assert await schemas.put(TOPIC, nothing, ANY) == NO_VERSION
        with pytest.raises(InvalidSchema, match="AUTO_CONSUME"):
            await schemas.put(TOPIC, Schema(name="o", schema_data=b"", type=Schema.AutoConsume), ANY)
        assert await schemas.get(TOPIC) is None

    with_store(tmp_path, body)


def test_a_refused_schema_is_not_stored_and_the_error_names_the_field(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await schemas.put(TOPIC, schema("one"), FULL)
        with pytest.raises(IncompatibleSchema, match=r"FULL.*two"):
            await schemas.put(TOPIC, schema("one", "two"), FULL)
        with pytest.raises(InvalidSchema):
            await schemas.put(TOPIC, Schema(name="o", schema_data=b"{", type=Schema.Avro), ANY)
        assert len(await schemas.history(TOPIC)) == 1

    with_store(tmp_path, body)


def test_without_auto_update_known_schemas_are_taken_and_new_ones_refused(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        fixed = SchemaRules(Strategy.ALWAYS_COMPATIBLE, may_update=False)
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await schemas.put(TOPIC, schema("one"), fixed)
        await schemas.put(TOPIC, schema("one"), ANY)
        assert await schemas.put(TOPIC, schema("one"), fixed) == version(0)
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await schemas.put(TOPIC, schema("two"), fixed)

    with_store(tmp_path, body)


def test_the_same_new_schema_put_by_many_at_once_gets_one_version(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await schemas.put(TOPIC, schema("older"), ANY)
        same = await asyncio.gather(*(schemas.put(TOPIC, schema("new"), ANY) for _ in range(20)))
        assert set(same) == {version(1)}

    with_store(tmp_path, body)


def test_different_schemas_put_at_once_get_versions_without_gaps(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        other = SchemaStore(store, KEYS)
        made = await asyncio.gather(
            *((schemas, other)[n % 2].put(TOPIC, schema(f"f{n}"), ANY) for n in range(16))
        )
        assert sorted(made) == [version(n) for n in range(16)]

    with_store(tmp_path, body)


def test_a_put_whose_answer_was_lost_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        commit = store.commit
        lost: list[str] = []

        async def losing(ops: Sequence[Op]) -> int:
            revision = await commit(ops)
            if not lost:
                lost.append(ops[0].key)
                raise UnknownOutcome("the answer was lost")
            return revision

        monkeypatch.setattr(store, "commit", losing)
        assert await schemas.put(TOPIC, schema("one"), FULL) == version(0)
        assert await schemas.put(TOPIC, schema(), ANY) == version(1)
        assert lost

    with_store(tmp_path, body)


def test_a_put_that_others_always_win_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        async def losing(ops: Sequence[Op]) -> int:
            raise VersionMismatch(ops[0].key, 0, 7)

        monkeypatch.setattr(store, "commit", losing)
        with pytest.raises(MetadataError, match="retry"):
            await schemas.put(TOPIC, schema("one"), ANY)

    with_store(tmp_path, body)


def test_a_version_is_not_appended_to_a_history_that_was_erased_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        other = SchemaStore(store, KEYS)
        for number in range(3):
            await schemas.put(TOPIC, schema(f"f{number}"), ANY)
        commit = store.commit
        erased: list[bytes] = []

        async def behind_an_erasure(ops: Sequence[Op]) -> int:
            if not erased:
                erased.append(b"")
                await other.erase(TOPIC)
                erased.append(await other.put(TOPIC, schema("first"), ANY))
            return await commit(ops)

        monkeypatch.setattr(store, "commit", behind_an_erasure)
        assert await schemas.put(TOPIC, schema("second"), ANY) == version(1)
        assert erased[1:] == [version(0)]
        assert [each.version for each in await schemas.history(TOPIC)] == [0, 1]

    with_store(tmp_path, body)


def test_a_schema_given_too_late_stays_not_behind_its_namespace(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await store.delete(KEYS.namespace(TOPIC.namespace))
        with pytest.raises(NamespaceNotFound):
            await schemas.put(TOPIC, schema("one"), ANY)
        assert (await store.children(KEYS.schemas_prefix(TOPIC))).items == []

    with_store(tmp_path, body)


def test_a_schema_too_large_for_metadata_is_refused(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        large = schema("one", text="x" * (1 << 20))
        with pytest.raises(NotAllowed, match="bytes"):
            await schemas.put(TOPIC, large, ANY)
        assert await schemas.get(TOPIC) is None

    with_store(tmp_path, body)


def test_large_definitions_are_compared_in_a_thread(tmp_path: Path) -> None:
    fields = [f"field_{number}" for number in range(2_000)]

    async def body(store: SqliteMetadataStore, _: SchemaStore) -> None:
        calls: list[object] = []

        class Counting(ThreadPool):
            def run(self, call):  # type: ignore[no-untyped-def]
                calls.append(call)
                return super().run(call)

        pool = Counting(1, "schemas")
        schemas = SchemaStore(store, KEYS, pool=pool)
        try:
            assert await schemas.put(TOPIC, schema("small"), ANY) == version(0)
            assert not calls
            assert await schemas.put(TOPIC, schema(*fields), ANY) == version(1)
            assert calls
            with pytest.raises(IncompatibleSchema, match="one_more"):
                await schemas.put(TOPIC, schema(*fields, "one_more"), FULL)
        finally:
            pool.close()

    with_store(tmp_path, body)


def test_consumers_are_checked_and_store_nothing(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        with pytest.raises(IncompatibleSchema, match="in use and has no schema"):
            await schemas.check_reader(TOPIC, schema("one"), Strategy.FULL)
        await schemas.put(TOPIC, schema("one", "two"), ANY)
        for _ in range(2):
            await schemas.check_reader(TOPIC, schema("one"), Strategy.FULL)
            with pytest.raises(IncompatibleSchema, match="three"):
                await schemas.check_reader(TOPIC, schema("one", "three"), Strategy.FULL)
        await schemas.check_reader(TOPIC, schema("one", "three"), Strategy.ALWAYS_COMPATIBLE)
        assert len(await schemas.history(TOPIC)) == 1

    with_store(tmp_path, body)


def test_deleted_schemas_are_found_by_number_only_and_are_not_compared(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.retire(TOPIC) == 0
        await schemas.put(TOPIC, schema("one"), FULL)
        assert await schemas.has_schema(TOPIC)
        assert [await schemas.retire(TOPIC) for _ in range(2)] == [1, 1]
        assert await schemas.get(TOPIC) is None
        assert await schemas.get(TOPIC, version(1)) is None
        assert await schemas.get(TOPIC, version(0)) == (schema("one"), version(0))
        assert not await schemas.has_schema(TOPIC)
        assert await schemas.find(TOPIC, schema("one")) is None
        assert await schemas.put(TOPIC, schema("another"), FULL) == version(2)
        assert [each.version for each in await schemas.current(TOPIC)] == [2]

    with_store(tmp_path, body)


def test_the_schemas_of_a_deleted_topic_are_gone_and_versions_begin_anew(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        other = TopicName.parse("orders-of-others")
        for number in range(150):
            await store.put(KEYS.schema(TOPIC, number), b"")
        await schemas.put(other, schema("a"), ANY)
        await store.commit([*await schemas.deletions(TOPIC), Delete("something else")])
        assert not await schemas.deletions(TOPIC)
        assert await schemas.get(TOPIC) is None
        assert await schemas.get(other) is not None
        assert await schemas.put(TOPIC, schema("new"), ANY) == version(0)

    with_store(tmp_path, body)


def test_erasing_takes_versions_that_are_added_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        other = SchemaStore(store, KEYS)
        for number in range(150):
            await store.put(
                KEYS.schema(TOPIC, number), encode(SchemaRecord(version=number, type=Schema.Int8))
            )
        commit = store.commit
        added: list[bytes] = []

        async def behind_a_put(ops: Sequence[Op]) -> int:
            if not added:
                added.append(b"")
                added.append(await other.put(TOPIC, schema("first"), ANY))
            return await commit(ops)

        monkeypatch.setattr(store, "commit", behind_a_put)
        await schemas.erase(TOPIC)
        assert added[1:] == [version(150)]
        assert (await store.children(KEYS.schemas_prefix(TOPIC))).items == []
        await schemas.erase(TOPIC)
        assert await schemas.put(TOPIC, schema("new"), ANY) == version(0)

    with_store(tmp_path, body)
