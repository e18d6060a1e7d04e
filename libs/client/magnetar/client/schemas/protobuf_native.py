"""The schema of generated Protobuf classes; the topic keeps their descriptors, as with Java's client."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message
from magnetar.client.schemas.schema import Payload, SchemaError, SchemaInfo
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.definition import SchemaType, shown

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

M = TypeVar("M", bound=Message)


class ProtobufNative(Generic[M]):
    """The schema of one message class."""

    def __init__(self, message: type[M]) -> None:
        """Raises SchemaError for a class that protoc did not generate."""
        if not (isinstance(message, type) and issubclass(message, Message)) or message is Message:
            raise SchemaError(
                f"{shown(message)} is not a class that protoc generated; give the class of a message"
            )
        self._message = message
        self._info = SchemaInfo(
            "", SchemaType.PROTOBUF_NATIVE, definition_of(cast("Descriptor", message.DESCRIPTOR))
        )

    @property
    def info(self) -> SchemaInfo:
        """The descriptors of the class and of all files that it imports."""
        return self._info

    def encode(self, value: M) -> bytes:
        """Returns the message in Protobuf's binary form. Raises SchemaError."""
        if not isinstance(value, self._message):
            raise SchemaError(f"{shown(value)} is not a {self._message.__name__}; send one")
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise SchemaError(f"a {self._message.__name__} cannot be encoded: {error}") from None

    def decode(self, payload: Payload, version: bytes = b"") -> M:
        """Returns the message; Protobuf reads every version. Raises SchemaError."""
        try:
            return self._message.FromString(bytes(payload))
        except DecodeError as error:
            raise SchemaError(
                f"a payload of {len(payload):,} bytes is not a {self._message.__name__}: {error}; consume "
                "the topic with the schema it was written with"
            ) from None


def definition_of(message: Descriptor) -> bytes:
    """Returns the definition that topics keep: all files, each after those that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet()
    _add_files(message.file, files, set())
    definition = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": message.full_name,
        "rootFileDescriptorName": message.file.name,
    }
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False).encode()


def message_reader(info: SchemaInfo) -> Callable[[Payload], Message]:
    """Returns the function that reads payloads of a topic's definition, into a class made of its descriptors.

    It raises SchemaError. Raises SchemaError for an invalid definition.
    """
    from google.protobuf.message_factory import GetMessageClass
    from magnetar.common.schemas.protobuf_native import root_descriptor

    try:
        message = GetMessageClass(root_descriptor(info.data))
    except InvalidSchema as error:
        raise SchemaError(f"the topic's PROTOBUF_NATIVE definition cannot be read: {error}") from None
    return ProtobufNative(message).decode


def _add_files(file: FileDescriptor, files: FileDescriptorSet, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for each in file.dependencies:
        _add_files(each, files, added)
    file.CopyToProto(files.file.add())
