"""Schemas extracted from code: Avro definitions of Python classes, and descriptors of Protobuf messages.

A class is a dataclass, whose annotations become fields, or has a class method `schema()` that returns its
Avro definition, as records of Pulsar's Python client have.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import importlib
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

_PRIMITIVES: Final[dict[Any, Any]] = {
    bool: "boolean",
    bytes: "bytes",
    float: "double",
    int: "long",
    str: "string",
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.datetime: {"type": "long", "logicalType": "timestamp-millis"},
}
"""Avro types of Python types."""


class NotExtracted(Exception):
    """The class or message does not exist or has no schema; the message says why."""


def avro_definition(name: str, search_path: Path) -> str:
    """Returns the Avro definition of a class named as MODULE:CLASS, as JSON.

    Imports the module, from `search_path` first. Raises NotExtracted.
    """
    found = _class(name, search_path)
    own = getattr(found, "schema", None)
    if callable(own):
        definition = own()
    elif dataclasses.is_dataclass(found) and isinstance(found, type):
        definition = _record(found, {})
    else:
        raise NotExtracted(f"{name} is neither a dataclass nor a class with a class method schema()")
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def protobuf_definition(descriptors: bytes, message: str) -> str:
    """Returns the PROTOBUF_NATIVE definition of a message, by its full name, in a file descriptor set.

    The set must contain the imports of its files (protoc --include_imports). Raises NotExtracted.
    """
    try:
        files = FileDescriptorSet.FromString(descriptors)
    except DecodeError as error:
        raise NotExtracted(
            "the file is not a descriptor set: write it with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from error
    for file in files.file:
        prefix = f"{file.package}." if file.package else ""
        if message in _messages(prefix, file.message_type):
            definition = {
                "fileDescriptorSet": base64.b64encode(descriptors).decode(),
                "rootMessageTypeName": message,
                "rootFileDescriptorName": file.name,
            }
            return json.dumps(definition, separators=(",", ":"))
    names = [name for file in files.file for name in _messages(f"{file.package}.", file.message_type)]
    raise NotExtracted(
        f"no message {message} in the descriptor set; it has {', '.join(names[:20]) or 'none'}"
    )


def _messages(prefix: str, types_: typing.Iterable[DescriptorProto]) -> list[str]:
    """Returns the full names of messages and of those inside them."""
    found: list[str] = []
    for each in types_:
        found += [prefix + each.name, *_messages(f"{prefix}{each.name}.", each.nested_type)]
    return found


def _class(name: str, search_path: Path) -> Any:
    module, separator, path = name.partition(":")
    if not separator or not module or not path:
        raise NotExtracted(f"{name!r} does not name a class: write MODULE:CLASS")
    sys.path.insert(0, str(search_path))
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotExtracted(f"{name} was not found: {error}") from error
    finally:
        sys.path.remove(str(search_path))
    return found


def _record(record: type, known: dict[type, str]) -> Any:
    """Returns the definition of a dataclass, or its name where it was defined before."""
    if record in known:
        return known[record]
    known[record] = record.__name__
    hints = typing.get_type_hints(record)
    fields = []
    for each in dataclasses.fields(typing.cast(Any, record)):
        place = f"{record.__name__}.{each.name}"
        field: dict[str, Any] = {"name": each.name, "type": _avro_type(hints[each.name], known, place)}
        if each.default is not dataclasses.MISSING:
            field["default"] = _default(each.default, place)
        fields.append(field)
    return {"type": "record", "name": record.__name__, "fields": fields}


def _avro_type(hint: Any, known: dict[type, str], place: str) -> Any:
    primitive = _PRIMITIVES.get(hint) if isinstance(hint, type) else None
    if primitive is not None:
        return primitive
    arguments = typing.get_args(hint)
    match typing.get_origin(hint):
        case typing.Union | types.UnionType:
            branches = [_avro_type(each, known, place) for each in arguments if each is not type(None)]
            # A union's default is one of its first branch, and optional fields are null by default.
            return ["null", *branches] if type(None) in arguments else branches
        case origin if origin is list:
            return {"type": "array", "items": _avro_type(arguments[0], known, f"{place}[]")}
        case origin if origin is dict and arguments[0] is str:
            return {"type": "map", "values": _avro_type(arguments[1], known, f"{place}{{}}")}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enumeration(hint, known)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _record(hint, known)
    raise NotExtracted(
        f"{place} has the type {hint}: use bool, bytes, float, int, str, date, datetime, list, dict with str "
        "keys, an enum, a dataclass, or an optional one of these"
    )


def _enumeration(enumeration: type[enum.Enum], known: dict[type, str]) -> Any:
    if enumeration in known:
        return known[enumeration]
    known[enumeration] = enumeration.__name__
    return {"type": "enum", "name": enumeration.__name__, "symbols": [each.name for each in enumeration]}


def _default(value: Any, place: str) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NotExtracted(
        f"the default of {place} cannot be written in Avro; leave it out, or use a plain value"
    )
