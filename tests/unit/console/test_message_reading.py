"""Messages as pages show them, whatever their payloads are, and the filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from magnetar.client import Message, MessageId
from magnetar.client.messages import EntryLeft
from magnetar.client.schemas.schema import SchemaError
from magnetar.common.wire.pulsar_pb2 import KeyValue, MessageMetadata
from magnetar.console.message_reading import (
    HEX_BYTES_MAX,
    TEXT_CHARS_MAX,
    Filters,
    id_text,
    payload_text,
    shown,
)


class _Consumer:
    """The consumer that received a message, as far as the message needs it."""

    topic = "persistent://public/default/t"
    partition = -1

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def decode(self, message: Message) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return message.data if self.value is None else self.value


def message(
    data: bytes, *, key: str | None = None, properties: Mapping[str, str] | None = None, value: Any = None
) -> Message:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=3,
        publish_time=1_700_000_000_000,
        properties=[KeyValue(key=name, value=text) for name, text in (properties or {}).items()],
    )
    if key is not None:
        metadata.partition_key = key
    entry = EntryLeft([(7, 4)], 0)
    return Message(cast(Any, _Consumer(value)), entry, metadata, None, data, -1, 0, b"")


@pytest.mark.parametrize(
    ("payload", "text", "form"),
    [
        (b"hello", "hello", "text"),
        (b"", "", "text"),
        (b'{"a":1}', '{\n  "a": 1\n}', "JSON"),
        (b"{not json", "{not json", "text"),
        (b"\xff\xfe", "ff fe", "bytes"),
        (b"a\x00b", "61 00 62", "bytes"),
        (b"[" * 100_000, "[" * 100_000, "text"),
    ],
)
def test_payloads_are_shown_as_what_they_are(payload: bytes, text: str, form: str) -> None:
    assert payload_text(payload) == (text, form)


def test_long_payloads_are_cut_and_say_so() -> None:
    text = shown(message(b"x" * (TEXT_CHARS_MAX + 1)))
    assert (len(text.text), text.truncated, text.size) == (TEXT_CHARS_MAX, True, TEXT_CHARS_MAX + 1)
    raw = shown(message(b"\xff" * (HEX_BYTES_MAX + 1)))
    assert (raw.form, raw.truncated) == ("bytes", True)
    assert not shown(message(b"x")).truncated


def test_values_are_decoded_and_what_is_not_json_in_them_is_text() -> None:
    found = shown(message(b"raw", value={"a": b"\x01", "b": [1, None]}))
    assert found.form == "decoded by its schema"
    assert '"a": "01"' in found.text


def test_a_payload_that_its_schema_does_not_fit_is_shown_raw_with_the_reason() -> None:
    found = shown(message(b"raw", value=SchemaError("no field x")))
    assert (found.text, found.form) == ("raw", "text; not decoded: no field x")


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(), True),
        (Filters(key="der-1"), True),
        (Filters(key="other"), False),
        (Filters(prop="color"), True),
        (Filters(prop="color=red"), True),
        (Filters(prop="color=blue"), False),
        (Filters(prop="size"), False),
        (Filters(text="WORLD"), True),
        (Filters(text="moon"), False),
        (Filters(key="order", prop="color", text="hello"), True),
    ],
)
def test_filters_let_pass_what_has_all_of_them(filters: Filters, passes: bool) -> None:
    found = message(b"hello world", key="order-1", properties={"color": "red"})
    assert filters.pass_(found) is passes


def test_ids_of_batches_have_the_number_in_the_batch() -> None:
    assert id_text(MessageId(7, 4)) == "7:4"
    assert id_text(MessageId(7, 4, -1, 2, 5)) == "7:4:-1:2"
