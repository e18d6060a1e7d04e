"""Generated classes register the descriptors that brokers and other clients read."""

from __future__ import annotations

import json

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.type_pb2 import Type
from magnetar.client.schemas.protobuf_native import ProtobufNative
from magnetar.client.schemas.schema import SchemaError
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.protobuf_native import root_message
from magnetar.common.schemas.rules import validate
from magnetar.common.wire.pulsar_pb2 import MessageIdData
from pulsar.schema import ProtobufNativeSchema


@pytest.mark.parametrize("message", [Timestamp, Type])
def test_the_definition_is_that_of_the_other_python_client(message: type[Message]) -> None:
    """Type imports three files, one of which imports another."""
    info = ProtobufNative(message).info
    assert info.type == SchemaType.PROTOBUF_NATIVE
    assert json.loads(info.data) == json.loads(ProtobufNativeSchema(message).schema_info().schema())
    assert b'": ' not in info.data
    validate(info.definition())
    assert root_message(info.data) == message.DESCRIPTOR.full_name


def test_values_are_read_by_and_from_the_other_python_client() -> None:
    ours, others = ProtobufNative(Timestamp), ProtobufNativeSchema(Timestamp)
    value = Timestamp(seconds=7, nanos=9)
    assert others.decode(ours.encode(value)) == value
    assert ours.decode(memoryview(others.encode(value))) == value


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(SchemaError, match="not a class that protoc generated"):
        ProtobufNative(dict)  # type: ignore[type-var]
    with pytest.raises(SchemaError, match="not a class that protoc generated"):
        ProtobufNative(Message)
    with pytest.raises(SchemaError, match="is not a Timestamp; send one"):
        ProtobufNative(Timestamp).encode(Type())  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"cannot be encoded: .*ledgerId"):
        ProtobufNative(MessageIdData).encode(MessageIdData())
    with pytest.raises(SchemaError, match="a payload of 1 bytes is not a Timestamp"):
        ProtobufNative(Timestamp).decode(b"\xff")
