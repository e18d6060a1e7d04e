"""Schema versions over the SQLite store."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.broker.schemas import NO_VERSION, SchemaStore
from magnetar.common.errors import (
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.metadata.values import Namespace, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import Schema

KEYS = Keys("standalone")
TOPIC = TopicName.parse("orders")


def schema(data: bytes, kind: Schema.Type.ValueType = Schema.Avro, **properties: str) -> Schema:
    made = Schema(name="orders", schema_data=data, type=kind)
    for key, value in properties.items():
        made.properties.add(key=key, value=value)
    return made


def version(number: int) -> bytes:
    return struct.pack(">q", number)


def with_store(tmp_path: Path, body: Callable[[SqliteMetadataStore, SchemaStore], Awaitable[None]]) -> None:
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
        assert await schemas.put(TOPIC, schema(b"one")) == version(0)
        assert await schemas.put(TOPIC, schema(b"two")) == version(1)
        assert await schemas.put(TOPIC, schema(b"one")) == version(0)
        assert await schemas.put(TOPIC, schema(b"three")) == version(2)

    with_store(tmp_path, body)


def test_type_definition_and_properties_make_a_schema_and_its_name_does_not(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.put(TOPIC, schema(b"x", a="1", b="2")) == version(0)
        assert await schemas.put(TOPIC, schema(b"x", b="2", a="1")) == version(0)
        assert await schemas.put(TOPIC, schema(b"x", a="1")) == version(1)
        assert await schemas.put(TOPIC, schema(b"x", Schema.Json, a="1")) == version(2)
        renamed = schema(b"x", a="1", b="2")
        renamed.name = "other"
        assert await schemas.put(TOPIC, renamed) == version(0)

    with_store(tmp_path, body)


def test_a_schema_comes_back_as_it_was_given(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.get(TOPIC) is None
        first, last = schema(b"\x00first", a="1", b="2"), schema(b"last", Schema.KeyValue)
        await schemas.put(TOPIC, first)
        await schemas.put(TOPIC, last)
        assert await schemas.get(TOPIC) == (last, version(1))
        assert await schemas.get(TOPIC, version(0)) == (first, version(0))
        assert await schemas.get(TOPIC, version(2)) is None
        assert await schemas.get(TOPIC, version(-1)) is None

    with_store(tmp_path, body)


def test_partitions_share_the_schemas_of_their_topic(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        assert await schemas.put(TOPIC.partition(0), schema(b"one")) == version(0)
        assert await schemas.put(TOPIC.partition(7), schema(b"one")) == version(0)
        assert await schemas.put(TOPIC, schema(b"two")) == version(1)
        assert await schemas.get(TOPIC.partition(3), version(0)) == (schema(b"one"), version(0))
        assert await schemas.get(TopicName.parse("orders2")) is None

    with_store(tmp_path, body)


def test_plain_bytes_have_no_version(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        nothing = getattr(Schema, "None")
        assert await schemas.put(TOPIC, schema(b"", nothing)) == NO_VERSION
        assert await schemas.get(TOPIC) is None

    with_store(tmp_path, body)


def test_the_same_new_schema_put_by_many_at_once_gets_one_version(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await schemas.put(TOPIC, schema(b"older"))
        same = await asyncio.gather(*(schemas.put(TOPIC, schema(b"new")) for _ in range(20)))
        assert set(same) == {version(1)}

    with_store(tmp_path, body)


def test_different_schemas_put_at_once_get_versions_without_gaps(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        made = await asyncio.gather(*(schemas.put(TOPIC, schema(b"%d" % n)) for n in range(10)))
        assert sorted(made) == [version(n) for n in range(10)]

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
        assert await schemas.put(TOPIC, schema(b"one")) == version(0)
        assert await schemas.put(TOPIC, schema(b"two")) == version(1)
        assert lost

    with_store(tmp_path, body)


def test_a_put_that_others_always_win_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        async def losing(ops: Sequence[Op]) -> int:
            raise VersionMismatch(ops[0].key, 0, 7)

        monkeypatch.setattr(store, "commit", losing)
        with pytest.raises(MetadataError, match="retry"):
            await schemas.put(TOPIC, schema(b"one"))

    with_store(tmp_path, body)


def test_a_schema_given_too_late_stays_not_behind_its_namespace(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        await store.delete(KEYS.namespace(TOPIC.namespace))
        with pytest.raises(NamespaceNotFound):
            await schemas.put(TOPIC, schema(b"one"))
        assert (await store.children(KEYS.schemas_prefix(TOPIC))).items == []

    with_store(tmp_path, body)


def test_a_schema_too_large_for_metadata_is_refused(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        with pytest.raises(NotAllowed, match="bytes"):
            await schemas.put(TOPIC, schema(bytes(1 << 20)))
        assert await schemas.get(TOPIC) is None

    with_store(tmp_path, body)


def test_a_version_that_is_no_version_is_refused(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        with pytest.raises(NotAllowed, match="8 bytes"):
            await schemas.get(TOPIC, b"\x01")

    with_store(tmp_path, body)


def test_the_schemas_of_a_deleted_topic_are_gone_and_versions_begin_anew(tmp_path: Path) -> None:
    async def body(store: SqliteMetadataStore, schemas: SchemaStore) -> None:
        other = TopicName.parse("orders-of-others")
        for number in range(150):
            await schemas.put(TOPIC, schema(b"%d" % number))
        await schemas.put(other, schema(b"a"))
        await store.commit([*await schemas.deletions(TOPIC), Delete("something else")])
        assert not await schemas.deletions(TOPIC)
        assert await schemas.get(TOPIC) is None
        assert await schemas.get(other) is not None
        assert await schemas.put(TOPIC, schema(b"new")) == version(0)

    with_store(tmp_path, body)
