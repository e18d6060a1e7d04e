"""Avro payloads are those of other clients, and each is read by the definition it was written with."""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest
from magnetar.client.schemas.auto import AutoConsume
from magnetar.client.schemas.avro import Avro, generic_reader
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.records import AvroField, Float, Int
from magnetar.client.schemas.schema import SchemaError, SchemaInfo, VersionedSchema
from magnetar.client.schemas.versions import VERSIONS_MAX, WriterVersions
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.rules import same, validate
from pulsar.schema import AvroSchema, Integer, Record, String

from tests.unit.client.schemas.orders import MODEL, ORDER, PYPI, Order, OrderModel, PypiOrder

FIRST, SECOND, THIRD = (number.to_bytes(8, "big") for number in range(3))


def pypi_info(schema: Any) -> SchemaInfo:
    return SchemaInfo("AVRO", SchemaType.AVRO, schema.schema_info().schema().encode())


@pytest.mark.parametrize(("cls", "value"), [(Order, ORDER), (OrderModel, MODEL)])
def test_a_class_is_read_by_and_from_the_other_python_client(cls: Any, value: Any) -> None:
    """Both name their records differently, and the optional limit has its branches in another order."""
    ours, others = Avro(cls), AvroSchema(PypiOrder)
    ours.add_version(FIRST, pypi_info(others))
    assert ours.decode(others.encode(PYPI), FIRST) == value
    others_reading_ours = AvroSchema(None, json.loads(ours.info.data))
    assert others_reading_ours.decode(ours.encode(value))["line"] == {"sku": "one", "count": 1}
    assert ours.decode(memoryview(ours.encode(value))) == value


def test_the_definition_is_the_same_as_that_of_the_other_python_client() -> None:
    """So a topic keeps one version for both."""

    @dataclass
    class Same:
        number: Int
        name: Annotated[str | None, AvroField()]

    class PypiSame(Record):  # type: ignore[misc]
        number = Integer(required=True)
        name = String()

    theirs = pypi_info(AvroSchema(PypiSame))
    renamed = SchemaInfo("", theirs.type, theirs.data.replace(b"PypiSame", b"Same"))
    assert same(Avro(Same).info.definition(), renamed.definition())


def test_the_definition_of_a_class_is_registered() -> None:
    info = Avro(Order, namespace="com.example", properties={"owner": "sales"}).info
    assert (info.type, info.properties) == (SchemaType.AVRO, {"owner": "sales"})
    assert json.loads(info.data)["namespace"] == "com.example"
    validate(info.definition())
    assert Avro(Order, namespace="com.example").decode(Avro(Order).encode(ORDER)) == ORDER


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Before:
    name: str
    count: Int
    size: Size
    gone: list[int]


@dataclass
class After:
    label: Annotated[str, AvroField(aliases=("name",))]
    count: float
    size: Size | None
    added: dict[str, str]
    note: str | None = None
    limit: int | None = 7

    def __post_init__(self) -> None:
        assert isinstance(self.count, float)


@dataclass
class Reader:
    label: Annotated[str, AvroField(aliases=("name",))]
    count: float
    size: Size | None
    note: str | None = None
    limit: int | None = 7


@dataclass
class One:
    a: int = 0


@dataclass
class Two:
    a: int = 0
    b: int = 0


@dataclass
class Choice:
    value: Size | str | bytes | bool | int | float | One | Two | list[int] | dict[str, int] | None


def before(name: str) -> SchemaInfo:
    """The earlier definition under the reader's name: aliases of fields count among records of one name."""
    return SchemaInfo("", SchemaType.AVRO, Avro(Before).info.data.replace(b"Before", name.encode()))


def test_a_payload_of_an_earlier_version_becomes_the_reader_s_class() -> None:
    reader = Avro(Reader)
    assert isinstance(reader, VersionedSchema)
    assert reader.needs(FIRST)
    assert not reader.needs(b"")
    reader.add_version(FIRST, before("Reader"))
    assert not reader.needs(FIRST)
    assert not reader.needs(FIRST + bytes(56)), "old clients send 64 bytes, of which 8 count"
    payload = Avro(Before).encode(Before("n", 3, Size.LARGE, [1]))
    for version in (FIRST, FIRST + bytes(56)):
        found = reader.decode(payload, version)
        assert found == Reader("n", 3.0, Size.LARGE)
        assert isinstance(found.count, float)
    assert reader.decode(reader.encode(Reader("own", 1.5, None))) == Reader("own", 1.5, None)


def test_a_version_that_cannot_be_read_fails_its_own_payloads_alone() -> None:
    reader = Avro(After)
    reader.add_version(FIRST, before("After"))
    reader.add_version(SECOND, SchemaInfo("", SchemaType.STRING, b""))
    reader.add_version(THIRD, SchemaInfo("", SchemaType.AVRO, b"{"))
    payload = Avro(Before).encode(Before("n", 3, Size.LARGE, []))
    with pytest.raises(
        SchemaError, match=r"version 0 cannot be read as After: added: the writer has no such field, and"
    ):
        reader.decode(payload, FIRST)
    with pytest.raises(SchemaError, match=r"version 1 .* it is STRING, not AVRO"):
        reader.decode(payload, SECOND)
    with pytest.raises(SchemaError, match=r"version 2 .* is invalid: the definition is not JSON"):
        reader.decode(payload, THIRD)
    assert not any(reader.needs(each) for each in (FIRST, SECOND, THIRD)), "they are fetched once"
    value = After("l", 1.0, None, {"a": "b"})
    assert reader.decode(reader.encode(value)) == value


def test_a_version_that_was_never_added_is_an_error() -> None:
    with pytest.raises(SchemaError, match="version 1 is not known; fetch it"):
        Avro(After).decode(b"", SECOND)


def test_versions_of_topics_are_apart() -> None:
    one = Avro(After)
    one.add_version(FIRST, one.info)
    other = one.for_topic()
    assert other.needs(FIRST)
    assert other.info == one.info
    other.add_version(SECOND, one.info)
    assert one.needs(SECOND)
    assert not one.needs(FIRST)


def test_a_symbol_that_the_reader_lacks_fails_only_where_it_comes() -> None:
    definition = json.loads(Avro(Before).info.data)
    definition["fields"][2]["type"]["symbols"].append("HUGE")
    writer = Avro(definition)
    reader = Avro(Before)
    reader.add_version(FIRST, writer.info)
    value = {"name": "n", "count": 1, "size": "SMALL", "gone": []}
    assert reader.decode(writer.encode(value), FIRST) == Before("n", 1, Size.SMALL, [])
    with pytest.raises(SchemaError, match="size: the symbol 'HUGE' is not one of enum Size"):
        reader.decode(writer.encode(value | {"size": "HUGE"}), FIRST)


def test_a_symbol_that_the_reader_lacks_is_the_default_of_its_enum() -> None:
    writer = Avro('{"type": "enum", "name": "E", "symbols": ["A", "B"]}')
    reader = Avro('{"type": "enum", "name": "E", "symbols": ["UNKNOWN", "A"], "default": "UNKNOWN"}')
    reader.add_version(FIRST, writer.info)
    payloads = [writer.encode(each) for each in ("A", "B")]  # type: ignore[arg-type]
    assert [str(reader.decode(each, FIRST)) for each in payloads] == ["A", "UNKNOWN"]


def test_dicts_follow_an_explicit_definition() -> None:
    schema = Avro(json.loads(Avro(Order).info.data))
    value = schema.decode(Avro(Order).encode(ORDER))
    assert value["line"] == {"sku": "one", "count": 1}
    assert value["color"] == "GREEN"
    assert schema.encode(value) == Avro(Order).encode(ORDER)
    del value["limit"]
    assert schema.decode(schema.encode(value))["limit"] == 7


def test_roots_other_than_records_are_taken() -> None:
    schema = Avro('{"type": "array", "items": "long"}')
    assert schema.decode(schema.encode([1, -2])) == [1, -2]  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(SchemaError, match="is a union, which topics refuse"):
        Avro('["null", "string"]')


def test_each_branch_of_a_union_keeps_its_type() -> None:
    """A text is not written as the enum or the bytes of another branch, nor a record as another one."""
    schema = Avro(Choice)
    values = [Size.SMALL, "SMALL", b"SMALL", True, 1, 1.0, One(3), Two(3), [1], {"a": 1}, None]
    for value in values:
        found = schema.decode(schema.encode(Choice(value)))  # type: ignore[arg-type]
        assert found.value == value
        assert type(found.value) is type(value)
    with pytest.raises(SchemaError, match=r"value: .* is not of a union of null"):
        schema.encode(Choice(object()))  # type: ignore[arg-type]
    generic = generic_reader(schema.info)
    assert generic(schema.encode(Choice(Two(1, 2)))) == {"value": {"a": 1, "b": 2}}


def test_recursive_classes_are_read_in_every_version() -> None:
    schema = Avro(Tree)
    writer = json.loads(schema.info.data)
    writer["name"] = "OldTree"
    writer["fields"][1]["type"]["items"] = "OldTree"
    writer["fields"][0]["type"] = "int"
    schema.add_version(FIRST, SchemaInfo("", SchemaType.AVRO, json.dumps(writer).encode()))
    tree = Tree(1, [Tree(2, [Tree(3, [])]), Tree(4, [])])
    assert schema.decode(schema.encode(tree)) == tree
    assert schema.decode(schema.encode(tree), FIRST) == tree


@dataclass
class Tree:
    value: int
    children: list[Tree]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"count": 2**31}, r"count: 2147483648 is outside of -2\*\*31"),
        ({"number": 1.0}, "number: 1.0 of type float is not an integer"),
        ({"customer": None}, "customer: null is not text"),
        ({"color": "GREEN"}, "color: 'GREEN' of type str is not a Color"),
        ({"lines": [None]}, r"lines\[0\]: null is not a Line"),
        ({"weight": 1e39}, "weight: .* is too large for a float"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Avro(Order).encode(Order(**{**ORDER.__dict__, **change}))


def test_a_payload_that_is_not_of_the_definition_is_refused() -> None:
    payload = Avro(Order).encode(ORDER)
    with pytest.raises(SchemaError, match="bytes has 1 more than its Avro definition"):
        Avro(Order).decode(payload + b"\0")
    for length in range(len(payload)):
        with pytest.raises(SchemaError):
            Avro(Order).decode(payload[:length])


@dataclass
class Node:
    after: Node | None = None


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_payload_that_nests_without_end_is_refused_and_crashes_nothing(depth: int) -> None:
    payload = b"\x02" * depth + b"\x00"
    consumer = AutoConsume()
    consumer.add_version(FIRST, Avro(Node).info)
    with pytest.raises(SchemaError, match="maximum recursion depth exceeded"):
        Avro(Node).decode(payload)
    with pytest.raises(SchemaError, match="maximum recursion depth exceeded"):
        consumer.decode(payload, FIRST)
    with pytest.raises(SchemaError, match="recursion"):
        Json(Node).decode(b'{"after":' * depth + b"null" + b"}" * depth)
    node = Node()
    for _ in range(1_000):
        node = Node(node)
    for schema in (Avro(Node), Json(Node)):
        with pytest.raises(SchemaError, match="maximum recursion depth exceeded"):
            schema.encode(node)


def test_values_nest_as_deep_as_common_data_does() -> None:
    node = Node()
    for _ in range(100):
        node = Node(node)
    for schema in (Avro(Node), Json(Node)):
        found = schema.decode(schema.encode(node))
        for _ in range(100):
            assert found.after is not None
            found = found.after
        assert found == Node()


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "Empty", "fields": [{"name": "none", "type": "null"}]},
        {"type": "fixed", "name": "F", "size": 0},
    ],
)
def test_arrays_whose_length_no_payload_bounds_are_refused(items: Any) -> None:
    definition = json.dumps({"type": "array", "items": items}).encode()
    with pytest.raises(SchemaError, match="an array of items without bytes"):
        Avro(definition)
    consumer = AutoConsume()
    consumer.add_version(FIRST, SchemaInfo("", SchemaType.AVRO, definition))
    with pytest.raises(SchemaError, match="an array of items without bytes"):
        consumer.decode(bytes.fromhex("feffffffffffffff7f00"), FIRST)


def test_without_fastavro_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "fastavro":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SchemaError, match="pip install fastavro"):
        Avro(Order)


def test_a_schema_keeps_a_bounded_number_of_versions() -> None:
    versions = WriterVersions[int]()
    for number in range(VERSIONS_MAX + 1):
        versions.add(number.to_bytes(8, "big"), number)
        versions.add(number.to_bytes(8, "big"), number)
    assert not versions.has(FIRST)
    assert versions.get(SECOND) == 1
    assert versions.get(VERSIONS_MAX.to_bytes(8, "big")) == VERSIONS_MAX


def test_floats_of_four_bytes_are_rounded() -> None:
    @dataclass
    class Rounded:
        value: Float

    assert Avro(Rounded).decode(Avro(Rounded).encode(Rounded(0.1))).value == pytest.approx(0.1, rel=1e-7)
