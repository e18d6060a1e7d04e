"""A schema as the registry keeps it: the wire's type number, the definition's bytes, and properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

DEFINITION_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of a definition: what fits into one value of the metadata store."""

_SHOWN_MAX: Final = 80
"""Characters of a client's text in an error."""


class SchemaType(IntEnum):
    """Schema types by their number on the wire, under the names of the admin API."""

    NONE = 0
    """Plain bytes: no schema. In a topic's history it marks a deletion."""
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    """Consumers that take every schema; never stored."""


AVRO_TYPES: Final = frozenset({SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO})
"""Types whose definition is Avro's JSON."""


@dataclass(frozen=True, slots=True)
class SchemaDefinition:
    """A schema of a topic, without its name, which is only a label."""

    type: int
    """A number of SchemaType; another number is an invalid schema."""
    data: bytes
    """The definition in the form of its type."""
    properties: Mapping[str, str] = field(default_factory=dict)


_TYPE_NAMES: Final = {each.value: each.name for each in SchemaType}


def type_name(number: int) -> str:
    """Returns the admin API's name of a type number, or the number itself for an unknown type."""
    return _TYPE_NAMES.get(number, str(number))


def shown(text: object) -> str:
    """Returns a client's text quoted for an error: printable, and shortened."""
    quoted = repr(text)
    return quoted if len(quoted) <= _SHOWN_MAX else quoted[:_SHOWN_MAX] + "..."
