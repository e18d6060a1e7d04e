"""Structured values: what JSON and Avro schemas share, made of a class or of an explicit Avro definition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.client.schemas.records import definition_of_class, is_record
from magnetar.client.schemas.schema import SchemaError
from magnetar.client.schemas.values import Form, ValueCodec, codec_of
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_types import Union
from magnetar.common.schemas.definition import SchemaType, shown
from magnetar.common.schemas.parsed_definitions import ParsedDefinition, parsed_definition


@dataclass(frozen=True, slots=True)
class Structure:
    """A definition and the conversion of its values."""

    name: str
    """Name of the class or of the definition's root, for errors."""
    text: bytes
    """The definition as it is registered."""
    parsed: ParsedDefinition
    codec: ValueCodec


def structure_of(source: Any, number: SchemaType, form: Form, namespace: str = "") -> Structure:
    """Returns the structure of a dataclass, a pydantic model, or a definition as a dict or as JSON text.

    `number` is its schema type; `namespace` is that of a class's definition. Raises SchemaError.
    """
    bindings = None
    if isinstance(source, type):
        if not is_record(source):
            raise SchemaError(
                f"{source.__name__} is neither a dataclass nor a pydantic model; make it one, or give an "
                "Avro definition"
            )
        made = definition_of_class(source, namespace)
        text, bindings = made.text, made.bindings
    elif isinstance(source, Mapping | str | bytes):
        text = _definition_text(source)
    else:
        raise SchemaError(f"{shown(source)} is not a class or an Avro definition; give one of them")
    try:
        parsed = parsed_definition(text)
    except InvalidSchema as error:
        raise SchemaError(f"the Avro definition is invalid: {error}") from None
    if number == SchemaType.AVRO and isinstance(parsed.root, Union):
        raise SchemaError(
            "the Avro definition is a union, which topics refuse; put it into a field of a record"
        )
    if parsed.default_problem:
        raise SchemaError(f"the Avro definition is invalid: {parsed.default_problem}")
    name = source.__name__ if isinstance(source, type) else getattr(parsed.root, "name", parsed.root.kind)
    return Structure(str(name), text, parsed, codec_of(parsed.root, form, bindings))


def _definition_text(source: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str):
        return source.encode()
    try:
        return json.dumps(source, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the Avro definition is not JSON: {error}") from None
