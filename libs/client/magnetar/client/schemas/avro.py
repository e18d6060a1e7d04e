"""The schema of Avro's binary form, written and read by fastavro, which `magnetar-client[avro]` installs.

A payload is read by the definition of its own version and made into what this schema's definition says, by
the rules of Avro that brokers check too. A payload without a version is read by this schema's own definition.
"""

from __future__ import annotations

import copy
import importlib
import io
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast, overload

from magnetar.client.schemas.payload_bounds import has_items_without_bytes, nests_deep
from magnetar.client.schemas.projection import projection_of
from magnetar.client.schemas.schema import Payload, SchemaError, SchemaInfo, is_version, shown_version
from magnetar.client.schemas.structure import structure_of
from magnetar.client.schemas.value_misfit import ValueMisfit
from magnetar.client.schemas.values import Convert, Form, branch_name, codec_of, same
from magnetar.client.schemas.versions import WriterVersions
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from magnetar.common.schemas.definition import SchemaType, shown
from magnetar.common.schemas.parsed_definitions import parsed_definition

T = TypeVar("T")

Reader = Callable[[Payload], Any]
"""Returns the plain value of a payload. Raises SchemaError and ValueMisfit."""


class Avro(Generic[T]):
    """The schema of a dataclass, of a pydantic model, or of dicts with an explicit Avro definition."""

    @overload
    def __init__(
        self, source: type[T], *, namespace: str = "", properties: Mapping[str, str] | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: Avro[dict[str, Any]],
        source: Mapping[str, Any] | str | bytes,
        *,
        namespace: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None: ...

    def __init__(
        self, source: Any, *, namespace: str = "", properties: Mapping[str, str] | None = None
    ) -> None:
        """`source` is a class, or a definition as a dict or as JSON text; `namespace` is that of a class's
        definition.

        Raises SchemaError, also where fastavro is not installed.
        """
        self._structure = structure_of(source, SchemaType.AVRO, Form.AVRO, namespace)
        self._info = SchemaInfo("", SchemaType.AVRO, self._structure.text, dict(properties or {}))
        self._write = _writer_of(self._structure.parsed.root)
        self._read_own = reader_of(self._structure.parsed.root)
        self._versions = WriterVersions[Reader]()

    @property
    def info(self) -> SchemaInfo:
        """The definition of the class, or the one given."""
        return self._info

    def encode(self, value: T) -> bytes:
        """Returns the value in Avro's binary form, without a header. Raises SchemaError."""
        try:
            return self._write(self._structure.codec.encode(value))
        except (ValueMisfit, RecursionError) as error:
            raise SchemaError(f"the value does not fit {self._structure.name}: {error}") from None

    def decode(self, payload: Payload, version: bytes = b"") -> T:
        """Returns the value of a payload. Raises SchemaError, also for a version that was not added."""
        read = self._versions.get(version) if is_version(version) else self._read_own
        try:
            return cast(T, self._structure.codec.decode(read(payload)))
        except (ValueMisfit, RecursionError) as error:
            raise SchemaError(
                f"a payload of schema version {shown_version(version)} cannot be read as "
                f"{self._structure.name}: {error}"
            ) from None

    def needs(self, version: bytes) -> bool:
        """Whether the writer's definition has to be fetched."""
        return is_version(version) and not self._versions.has(version)

    def add_version(self, version: bytes, info: SchemaInfo) -> None:
        """Keeps a writer's definition. If this schema cannot read it, `decode` raises for its payloads."""
        self._versions.add(version, self._reader(version, info))

    def for_topic(self) -> Avro[T]:
        """Returns the same schema without versions."""
        made = copy.copy(self)
        made._versions = WriterVersions[Reader]()
        return made

    def _reader(self, version: bytes, info: SchemaInfo) -> Reader:
        try:
            if info.type != SchemaType.AVRO:
                raise SchemaError(f"it is {info.type_name}, not AVRO; consume the topic with AutoConsume")
            root, project = projection_of(_parsed(info), self._structure.parsed)
            read = reader_of(root)
        except SchemaError as error:
            return _failure(f"schema version {shown_version(version)} of the topic cannot be read: {error}")
        return read if project is same else _projected(read, project)


def generic_reader(info: SchemaInfo) -> Callable[[Payload], Any]:
    """Returns the function that reads payloads of a definition into dicts and single values.

    It raises SchemaError. Raises SchemaError for an invalid definition, or where fastavro is not installed.
    """
    root = _parsed(info).root
    read, codec = reader_of(root), codec_of(root, Form.AVRO)

    def decode(payload: Payload) -> Any:
        try:
            return codec.decode(read(payload))
        except (ValueMisfit, RecursionError) as error:
            raise SchemaError(f"a payload cannot be read by its AVRO definition: {error}") from None

    return decode


def reader_of(root: AvroType) -> Reader:
    """Returns the function that reads payloads of a writer's types into plain values.

    Raises SchemaError, also for an array whose length no payload bounds.
    """
    fastavro = _fastavro()
    if has_items_without_bytes(root):
        raise SchemaError(
            "the definition has an array of items without bytes, so that a short payload could hold "
            "billions; give the items another type than null"
        )
    parsed = _parsed_by_fastavro(fastavro, root)
    # The reader in Python stops at the interpreter's limit of recursion, where the compiled one crashes.
    reading = importlib.import_module("fastavro._read_py") if nests_deep(root) else fastavro
    read_value = reading.schemaless_reader

    def read(payload: Payload) -> Any:
        source = io.BytesIO(payload)
        try:
            plain = read_value(source, parsed, None, return_named_type=True)
        except Exception as error:  # fastavro has no error of its own for bad bytes.
            raise SchemaError(
                f"a payload of {len(payload):,} bytes is not Avro of its definition: {type(error).__name__}: "
                f"{error}; consume the topic with the schema it was written with"
            ) from error
        if source.tell() != len(payload):
            raise SchemaError(
                f"a payload of {len(payload):,} bytes has {len(payload) - source.tell():,} more than its "
                "Avro definition; consume the topic with the schema it was written with"
            )
        return plain

    return read


def _writer_of(root: AvroType) -> Callable[[Any], bytes]:
    fastavro = _fastavro()
    parsed = _parsed_by_fastavro(fastavro, root)
    write_value = fastavro.schemaless_writer

    def write(plain: Any) -> bytes:
        sink = io.BytesIO()
        try:
            write_value(sink, parsed, plain)
        except Exception as error:  # fastavro has no error of its own for values that do not fit.
            raise SchemaError(f"the value does not fit its Avro definition: {error}") from error
        return sink.getvalue()

    return write


def bare_definition(root: AvroType) -> Any:
    """Returns the definition of types as fastavro reads and writes plain values by it: without logical types,
    defaults, aliases and docs.
    """
    return _bare(root, set())


def _bare(avro_type: AvroType, defined: set[str]) -> Any:
    if isinstance(avro_type, Named):
        if avro_type.name in defined:
            return branch_name(avro_type)
        defined.add(avro_type.name)
    match avro_type:
        case Primitive(kind=kind):
            return kind
        case Array(items=items):
            return {"type": "array", "items": _bare(items, defined)}
        case Map(values=values):
            return {"type": "map", "values": _bare(values, defined)}
        case Union(branches=branches):
            return [_bare(branch, defined) for branch in branches]
        case Fixed(size=size):
            return {"type": "fixed", "name": branch_name(avro_type), "size": size}
        case Enumeration(symbols=symbols):
            return {"type": "enum", "name": branch_name(avro_type), "symbols": list(symbols)}
        case Record(fields=fields):
            members = [{"name": each.name, "type": _bare(each.type, defined)} for each in fields.values()]
            return {"type": "record", "name": branch_name(avro_type), "fields": members}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise SchemaError(
            "schemas of type AVRO need a package that is not installed: pip install fastavro"
        ) from None
    return fastavro


def _parsed_by_fastavro(fastavro: Any, root: AvroType) -> Any:
    try:
        return fastavro.parse_schema(bare_definition(root))
    except Exception as error:  # Names that Java takes and fastavro does not, for example.
        raise SchemaError(f"fastavro refuses the definition: {error}") from error


def _parsed(info: SchemaInfo) -> Any:
    try:
        return parsed_definition(info.data)
    except InvalidSchema as error:
        raise SchemaError(f"the definition {shown(info.data)} is invalid: {error}") from None


def _projected(read: Reader, project: Convert) -> Reader:
    return lambda payload: project(read(payload))


def _failure(why: str) -> Reader:
    def read(payload: Payload) -> Any:
        raise SchemaError(why)

    return read
