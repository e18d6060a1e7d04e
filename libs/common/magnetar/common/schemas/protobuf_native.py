"""PROTOBUF_NATIVE definitions: JSON with a FileDescriptorSet and the names of its root file and message."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_parser import parse_json
from magnetar.common.schemas.definition import shown


def root_message(data: bytes) -> str:
    """Returns the full name of the root message, after building all descriptors. Raises InvalidSchema."""
    return root_descriptor(data).full_name


def root_descriptor(data: bytes) -> Descriptor:
    """Returns the descriptor of the root message, with all others in a pool of their own.

    Raises InvalidSchema when the set does not hold the root file, or that file not the root message.
    """
    definition = parse_json(data)
    if not isinstance(definition, dict):
        raise InvalidSchema("the PROTOBUF_NATIVE definition is not a JSON object")
    message, file = (_text(definition, key) for key in ("rootMessageTypeName", "rootFileDescriptorName"))
    try:
        encoded = base64.b64decode(_text(definition, "fileDescriptorSet"), validate=True)
        files = {each.name: each for each in FileDescriptorSet.FromString(encoded).file}
    except (ValueError, DecodeError) as error:
        raise InvalidSchema(f"fileDescriptorSet is not a FileDescriptorSet in base64: {error}") from None
    if file not in files:
        raise InvalidSchema(
            f"fileDescriptorSet does not hold the file {shown(file)} of rootFileDescriptorName"
        )
    pool = _pool(files)
    try:
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        found = None
    if found is None or found.file.name != file:
        raise InvalidSchema(
            f"file {shown(file)} does not hold the message {shown(message)} of rootMessageTypeName"
        )
    return found


def _pool(files: dict[str, FileDescriptorProto]) -> DescriptorPool:
    """Returns a pool with all files; a file comes after those that it imports."""
    pool = DescriptorPool()
    waiting, added = list(files), set[str]()
    while waiting:
        later = []
        for name in waiting:
            if all(imported in added for imported in files[name].dependency):
                _add(pool, files[name])
                added.add(name)
            else:
                later.append(name)
        if len(later) == len(waiting):
            lacking = [each for each in files[later[0]].dependency if each not in added]
            raise InvalidSchema(
                f"file {shown(later[0])} imports {shown(lacking[0])}, which fileDescriptorSet does not hold, "
                "or which imports it in turn"
            )
        waiting = later
    return pool


def _add(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidSchema(f"file {shown(file.name)} of fileDescriptorSet is invalid: {error}") from None


def _text(definition: dict[str, Any], key: str) -> str:
    found = definition.get(key)
    if not isinstance(found, str):
        raise InvalidSchema(f"the PROTOBUF_NATIVE definition has no text {key}")
    return found
