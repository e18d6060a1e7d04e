"""A protocol as the next release would have it: the present one with more fields, made in the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor

ADDED_FIELD = 90
"""Number of the field that every message has more."""


def next_version(present: FileDescriptor) -> Mapping[str, Any]:
    """The message classes of a file, each with two fields more, and of one message more; by name.

    `added` is text, `added_parts` a repeated message; what an older release makes of them is nothing.
    """
    file = descriptor_pb2.FileDescriptorProto()
    present.CopyToProto(file)
    file.name = f"next/{file.name}"
    part = file.message_type.add(name="AddedPart")
    _add(part, "number", 1, descriptor_pb2.FieldDescriptorProto.TYPE_UINT64)
    for message in file.message_type:
        if message.name != "AddedPart":
            _add(message, "added", ADDED_FIELD, descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
            parts = _add(
                message, "added_parts", ADDED_FIELD + 1, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            )
            parts.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
            parts.type_name = f".{file.package}.AddedPart"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{file.package}.{message.name}")
        )
        for message in file.message_type
    }


def added(message: Any) -> Any:
    """The same message with everything set that is new in it."""
    message.added = "what the older release does not know"
    message.added_parts.add(number=2**63)
    return message


def _add(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: Any) -> Any:
    return message.field.add(
        name=name, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    )
