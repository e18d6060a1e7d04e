"""Avro types written as a definition again, for libraries that decode by one."""

from __future__ import annotations

import json
from typing import Any

from magnetar.common.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)


def definition_of(root: AvroType) -> Any:
    """Returns the definition of types as JSON: full names, properties and defaults; no docs or aliases."""
    return _json(root, set())


def _json(avro_type: AvroType, defined: set[str]) -> Any:
    if isinstance(avro_type, Named):
        if avro_type.name in defined:
            return avro_type.name
        defined.add(avro_type.name)
    match avro_type:
        case Primitive(kind=kind, properties=properties):
            return {"type": kind, **json.loads(properties)} if properties else kind
        case Array(items=items, properties=properties):
            return {"type": "array", "items": _json(items, defined), **json.loads(properties or "{}")}
        case Map(values=values, properties=properties):
            return {"type": "map", "values": _json(values, defined), **json.loads(properties or "{}")}
        case Union(branches=branches):
            return [_json(branch, defined) for branch in branches]
        case Fixed(name=name, size=size, properties=properties):
            return {"type": "fixed", "name": name, "size": size, **json.loads(properties or "{}")}
        case Enumeration(name=name, symbols=symbols, properties=properties):
            return {"type": "enum", "name": name, "symbols": [*symbols], **json.loads(properties or "{}")}
        case Record(name=name, fields=fields, properties=properties):
            members = [_field(each, defined) for each in fields.values()]
            return {"type": "record", "name": name, "fields": members, **json.loads(properties or "{}")}


def _field(field: Field, defined: set[str]) -> Any:
    made = {"name": field.name, "type": _json(field.type, defined), **json.loads(field.properties or "{}")}
    if field.default is not None and not field.default_problem:
        made["default"] = json.loads(field.default)
    return made
