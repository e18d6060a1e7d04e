"""Conversion of rows to messages: the supported columns, and how their values become metadata.

| column | type | is |
| --- | --- | --- |
| value (or payload) | binary, string | the payload; null publishes a message without value |
| key | string | the key, which chooses the partition |
| key_bytes | binary | a binary key, instead of `key` |
| ordering_key | binary, string | what Key_Shared subscriptions go by instead of the key |
| properties | map<string,string> | |
| event_time | timestamp, or bigint in ms | |
| deliver_at | timestamp, or bigint in ms | not delivered before, on shared subscriptions |
| topic | string | where the row goes; null: where the option `topic` says |
| null_value | boolean | true publishes a message without value |

With the option `value.format` the column value is of any type, and is encoded by a schema.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import InvalidName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import SingleMessageMetadata
from magnetar.spark.sink.errors import BadColumns, BadRow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_TYPES: Final = {
    "value": ("binary", "string"),
    "payload": ("binary", "string"),
    "key": ("string",),
    "key_bytes": ("binary",),
    "ordering_key": ("binary", "string"),
    "properties": ("map<string,string>",),
    "event_time": ("timestamp", "bigint"),
    "deliver_at": ("timestamp", "bigint"),
    "topic": ("string",),
    "null_value": ("boolean",),
}
_TIMES: Final = ("event_time", "deliver_at")


@dataclass(slots=True)
class OutgoingRow:
    """A message to be; `encoded` is its SingleMessageMetadata, but for the sequence id."""

    topic: str
    payload: bytes
    key: str | None
    """The key as in metadata: base64 when it is not text."""

    key_is_base64: bool
    ordering_key: bytes
    deliver_at_ms: int
    event_time_ms: int
    properties: Sequence[tuple[str, str]]
    null_value: bool
    encoded: bytes
    byte_length: int
    """Bytes of `encoded` and the payload."""


def check_columns(schema: StructType, default_topic: str, *, encoded: bool = False) -> None:
    """Check the columns; `encoded`: the column value has any type. Raises BadColumns, which lists all
    problems.
    """
    wrong: list[str] = []
    found = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        allowed = _TYPES.get(name)
        if allowed is None:
            wrong.append(f"{name} is not a column of messages")
        elif encoded and name == "payload":
            wrong.append("payload is written as it is: with value.format the column is named value")
        elif kind not in allowed and not (encoded and name == "value"):
            wrong.append(f"{name} is {kind}, and has to be {' or '.join(allowed)}")
    if "value" not in found and "payload" not in found:
        wrong.append("the column value, the payload, is missing: for example to_json(struct('*')) AS value")
    for one, other in (("value", "payload"), ("key", "key_bytes")):
        if one in found and other in found:
            wrong.append(f"both {one} and {other} are there: select one of them")
    if "topic" not in found and not default_topic:
        wrong.append("no topic given: set the option topic, or add a column topic")
    if wrong:
        raise BadColumns("; ".join(wrong) + ". Columns may be " + ", ".join(_TYPES))


class RowEncoder:
    """Makes rows of the record batches of one task."""

    def __init__(self, default_topic: str, encode: Callable[[Any], bytes] | None = None) -> None:
        """`encode` makes payloads of values; without it values are payloads."""
        self._default_topic = default_topic
        self._encode = encode
        self._topics: dict[str, str] = {}

    def rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """Raises BadRow."""
        columns = {name.lower(): _values(name.lower(), batch.column(name)) for name in batch.schema.names}
        nothing: list[Any] = [None] * batch.num_rows
        payloads = columns.get("value") or columns.get("payload") or nothing
        keys = columns.get("key") or nothing
        key_bytes = columns.get("key_bytes") or nothing
        ordering_keys = columns.get("ordering_key") or nothing
        properties = columns.get("properties") or nothing
        event_times = columns.get("event_time") or nothing
        deliver_ats = columns.get("deliver_at") or nothing
        topics = columns.get("topic") or nothing
        nulls = columns.get("null_value") or nothing
        for (
            payload, key, key_byte, ordering_key, its_properties, event_time, deliver_at, topic, null
        ) in zip(
            payloads, keys, key_bytes, ordering_keys, properties, event_times, deliver_ats, topics, nulls,
            strict=True,
        ):  # fmt: skip
            yield self._row(
                payload, key, key_byte, ordering_key, its_properties, event_time, deliver_at, topic, null
            )

    def _row(
        self,
        payload: Any,
        key: str | None,
        key_bytes: bytes | None,
        ordering_key: bytes | str | None,
        properties: Sequence[tuple[str, str | None]] | None,
        event_time_ms: int | None,
        deliver_at_ms: int | None,
        topic: str | None,
        null_value: bool | None,
    ) -> OutgoingRow:
        text = topic or self._default_topic
        full = self._topics.get(text) or self._parsed(text)
        is_null = payload is None or bool(null_value)
        data = b"" if is_null else self._payload(payload)
        is_base64 = key is None and key_bytes is not None
        if key_bytes is not None and key is None:
            key = base64.b64encode(key_bytes).decode()
        order = ordering_key.encode() if isinstance(ordering_key, str) else ordering_key or b""
        # Spark gives the entries of a map in no certain order, and a row has to be the same each time.
        pairs = sorted((name, value or "") for name, value in properties) if properties else []
        row = OutgoingRow(
            full, data, key, is_base64, order, deliver_at_ms or 0, event_time_ms or 0, pairs, is_null, b"", 0
        )
        if row.deliver_at_ms < 0 or row.event_time_ms < 0:
            raise BadRow("event_time and deliver_at cannot be before 1970")
        row.encoded = self._encoded(row)
        row.byte_length = len(row.encoded) + len(data)
        return row

    def _payload(self, value: Any) -> bytes:
        if self._encode is not None:
            return self._encode(value)
        return value.encode() if isinstance(value, str) else bytes(value)

    def _encoded(self, row: OutgoingRow) -> bytes:
        single = SingleMessageMetadata(payload_size=len(row.payload))
        if row.key is not None:
            single.partition_key = row.key
            if row.key_is_base64:
                single.partition_key_b64_encoded = True
        if row.ordering_key:
            single.ordering_key = row.ordering_key
        if row.event_time_ms:
            single.event_time = row.event_time_ms
        if row.null_value:
            single.null_value = True
        for name, value in row.properties:
            single.properties.add(key=name, value=value)
        return single.SerializeToString()

    def _parsed(self, text: str) -> str:
        if not text:
            raise BadRow("a row has no topic: give the option topic, or no null in the column topic")
        try:
            full = TopicName.parse(text).full
        except InvalidName as error:
            raise BadRow(f"topic {text!r} of a row: {error}") from error
        if len(self._topics) >= 65_536:
            self._topics.clear()
        self._topics[text] = full
        return full


def _values(name: str, column: pa.Array) -> list[Any]:
    if name not in _TIMES:
        values: list[Any] = column.to_pylist()
        return values
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        # Milliseconds are all that metadata has.
        column = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    milliseconds: list[Any] = pc.cast(column, pa.int64()).to_pylist()
    return milliseconds
