"""The schema of JSON, with an Avro definition for what is in it, as Pulsar's clients register it.

Null fields are left out where a reader fills in null, as Java's client does. Other clients' additional fields
are ignored, so payloads need no version to be read. Dates and times are the numbers of their logical type.
Decimals are written as text, and read from numbers too, which Java's client writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast, overload

from magnetar.client.schemas.logical_types import is_text_decimal
from magnetar.client.schemas.schema import Payload, SchemaError, SchemaInfo, shown_version
from magnetar.client.schemas.structure import structure_of
from magnetar.client.schemas.value_misfit import ValueMisfit
from magnetar.client.schemas.values import Form
from magnetar.common.schemas.avro_types import walk
from magnetar.common.schemas.definition import SchemaType

T = TypeVar("T")


class Json(Generic[T]):
    """The schema of a dataclass, of a pydantic model, or of dicts with an explicit Avro definition."""

    @overload
    def __init__(
        self,
        source: type[T],
        *,
        namespace: str = "",
        bytes_as_text: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Json[dict[str, Any]],
        source: Mapping[str, Any] | str | bytes,
        *,
        namespace: str = "",
        bytes_as_text: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        source: Any,
        *,
        namespace: str = "",
        bytes_as_text: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`source` is a class, or a definition as a dict or as JSON text; `namespace` is that of a class's
        definition. Bytes are base64 as in Java's client, or text as in the PyPI client with `bytes_as_text`.

        Raises SchemaError.
        """
        form = Form.TEXT_JSON if bytes_as_text else Form.JSON
        self._structure = structure_of(source, SchemaType.JSON, form, namespace)
        self._has_decimals = any(map(is_text_decimal, walk(self._structure.parsed.root)))
        self._info = SchemaInfo("", SchemaType.JSON, self._structure.text, dict(properties or {}))

    @property
    def info(self) -> SchemaInfo:
        """The definition of the class, or the one given."""
        return self._info

    def encode(self, value: T) -> bytes:
        """Returns the value as JSON in UTF-8. Raises SchemaError."""
        try:
            plain = self._structure.codec.encode(value)
            return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (ValueMisfit, ValueError, RecursionError) as error:
            raise SchemaError(f"the value does not fit {self._structure.name}: {error}") from None

    def decode(self, payload: Payload, version: bytes = b"") -> T:
        """Returns the value of a payload. Raises SchemaError."""
        try:
            return cast(T, self._structure.codec.decode(parsed_json(payload, exact=self._has_decimals)))
        except (ValueMisfit, RecursionError) as error:
            raise SchemaError(
                f"a payload of schema version {shown_version(version)} cannot be read as "
                f"{self._structure.name}: {error}"
            ) from None


def parsed_json(payload: Payload, *, exact: bool = False) -> Any:
    """Returns the parsed JSON of a payload, numbers with a point as Decimal if they have to be `exact`.

    Raises SchemaError.
    """
    try:
        return json.loads(bytes(payload), parse_float=Decimal if exact else None)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise SchemaError(
            f"a payload of {len(payload):,} bytes is not JSON: {error}; consume the topic with the schema it "
            "was written with"
        ) from None
