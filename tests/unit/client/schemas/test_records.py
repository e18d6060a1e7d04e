"""The definition that a class makes, field by field, and what makes none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from magnetar.client.schemas.avro import Avro
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.records import AvroField, Float, Int, definition_of_class
from magnetar.client.schemas.schema import SchemaError
from magnetar.common.schemas.avro_resolution import PairBudget, misfit_of
from magnetar.common.schemas.parsed_definitions import parsed_definition
from pydantic import BaseModel, ConfigDict, Field, field_validator

Sku = NewType("Sku", str)


class Color(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Item:
    sku: Sku
    price: Annotated[
        Decimal, AvroField({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    ] = Decimal("0.50")


@dataclass(frozen=True)
class Everything:
    flag: bool
    small: Int
    large: int
    single: Float
    double: float
    text: str
    raw: bytes
    color: Color
    item: Item
    again: Item
    items: list[Item]
    pair: tuple[int, ...]
    names: frozenset[str]
    sequence: Sequence[Color]
    prices: Mapping[str, float | None]
    moment: datetime
    day: date
    clock: time
    local: Annotated[datetime, AvroField({"type": "long", "logicalType": "local-timestamp-millis"})]
    number: Decimal
    reference: UUID
    kind: Literal["a", "b"]
    maybe: int | None
    choice: int | str | None
    renamed: Annotated[str, AvroField(name="newName", aliases=("oldName",), doc="the name")]


@dataclass(frozen=True)
class Defaults:
    flag: bool = True
    large: int = 5
    text: str = "s"
    raw: bytes = b"\x00\xff"
    color: Color = Color.GREEN
    item: Item = Item(Sku("s"))
    items: list[Item] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    prices: dict[str, float] = field(default_factory=dict)
    moment: datetime = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    maybe: int | None = None
    set_to: int | None = 5
    choice: int | str | None = "c"
    number: Decimal = Decimal("1.5")
    made: list[int] = field(default_factory=lambda: [1])
    derived: int = field(init=False, default=3)


EVERYTHING = Everything(
    flag=True, small=1, large=2**40, single=0.5, double=0.1, text="t", raw=b"\xff", color=Color.RED,
    item=Item(Sku("a"), Decimal("-1.25")), again=Item(Sku("b")), items=[Item(Sku("c"))], pair=(1, 2),
    names=frozenset({"n"}), sequence=[Color.GREEN], prices={"EUR": 1.5, "USD": None},
    moment=datetime(2024, 1, 1, tzinfo=UTC), day=date(2024, 2, 29), clock=time(12, 30, 0, 5),
    local=datetime(2024, 1, 1, 5, 0, 0, 7_000), number=Decimal("1e-30"), reference=UUID(int=7), kind="b",
    maybe=None, choice="s", renamed="r",
)  # fmt: skip


def fields_of(cls: type) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(definition_of_class(cls).text)["fields"]}


def test_each_type_has_its_definition() -> None:
    fields = fields_of(Everything)
    item = {
        "type": "record",
        "name": "Item",
        "fields": [
            {"name": "sku", "type": "string"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                "default": "2",
            },
        ],
    }
    assert {name: each["type"] for name, each in fields.items()} == {
        "flag": "boolean",
        "small": "int",
        "large": "long",
        "single": "float",
        "double": "double",
        "text": "string",
        "raw": "bytes",
        "color": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]},
        "item": item,
        "again": "Item",
        "items": {"type": "array", "items": "Item"},
        "pair": {"type": "array", "items": "long"},
        "names": {"type": "array", "items": "string"},
        "sequence": {"type": "array", "items": "Color"},
        "prices": {"type": "map", "values": ["null", "double"]},
        "moment": {"type": "long", "logicalType": "timestamp-micros"},
        "day": {"type": "int", "logicalType": "date"},
        "clock": {"type": "long", "logicalType": "time-micros"},
        "local": {"type": "long", "logicalType": "local-timestamp-millis"},
        "number": {"type": "string", "java-class": "java.math.BigDecimal"},
        "reference": {"type": "string", "logicalType": "uuid"},
        "kind": "string",
        "maybe": ["null", "long"],
        "choice": ["null", "long", "string"],
        "newName": "string",
    }
    assert fields["newName"] == {
        "name": "newName",
        "type": "string",
        "aliases": ["oldName"],
        "doc": "the name",
    }


@pytest.mark.parametrize("schema", [Avro(Everything), Json(Everything)])
def test_each_type_is_written_and_read(schema: Any) -> None:
    found = schema.decode(schema.encode(EVERYTHING))
    assert found == EVERYTHING
    assert [type(each) for each in vars(found).values()] == [type(each) for each in vars(EVERYTHING).values()]


def test_defaults_are_in_the_definition() -> None:
    fields = fields_of(Defaults)
    assert {name: each["default"] for name, each in fields.items() if "default" in each} == {
        "flag": True,
        "large": 5,
        "text": "s",
        "raw": "\x00\xff",
        "color": "GREEN",
        "item": {"sku": "s", "price": "2"},
        "items": [],
        "names": [],
        "prices": {},
        "moment": 1_000_000,
        "maybe": None,
        "set_to": 5,
        "choice": "c",
        "number": "1.5",
    }
    assert fields["set_to"]["type"] == ["long", "null"]
    assert fields["choice"]["type"] == ["string", "null", "long"]
    assert "derived" not in fields


def test_a_class_whose_fields_all_have_defaults_reads_an_empty_record_of_any_writer() -> None:
    """So each of them may be added to a topic under every strategy."""
    reader = {
        **json.loads(definition_of_class(Defaults).text),
        "fields": [each for each in fields_of(Defaults).values() if each["name"] != "made"],
    }
    parsed = parsed_definition(json.dumps(reader).encode())
    empty = parsed_definition(b'{"type": "record", "name": "E", "fields": []}')
    assert parsed.default_problem == ""
    assert misfit_of(parsed, empty, PairBudget()) is None
    schema = Avro(reader)
    schema.add_version(bytes(8), Avro('{"type": "record", "name": "E", "fields": []}').info)
    found = schema.decode(b"", bytes(8))
    assert found["raw"] == b"\x00\xff"
    assert found["moment"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert found["item"] == {"sku": "s", "price": Decimal("0.50")}
    assert Json(Defaults).decode(b"{}") == Defaults()


def test_a_default_set_has_one_order_in_every_process() -> None:
    """Texts hash differently in each process, and another default would be another version of the schema."""

    @dataclass
    class Tagged:
        tags: frozenset[str] = frozenset("bdacfe")

    assert fields_of(Tagged)["tags"]["default"] == sorted("abcdef")


def test_a_namespace_is_that_of_all_names() -> None:
    schema = Avro(Everything, namespace="com.example")
    definition = json.loads(schema.info.data)
    assert list(definition)[:3] == ["type", "name", "namespace"]
    assert schema.decode(schema.encode(EVERYTHING)) == EVERYTHING


class Address(BaseModel):
    model_config = ConfigDict(frozen=True)
    street_name: str = Field(alias="streetName")
    zip_code: str = Field(default="0", serialization_alias="zip", min_length=1)


class Person(BaseModel):
    name: str
    age: Annotated[int, AvroField("int"), Field(ge=0)] = 1
    tags: set[str] = Field(default_factory=set)
    address: Address | None = None
    nested: Item | None = None

    @field_validator("name")
    @classmethod
    def not_empty(cls, value: str) -> str:
        if not value:
            raise ValueError("a name is not empty")
        return value


def test_pydantic_models_give_their_aliases_defaults_and_checks() -> None:
    fields = fields_of(Person)
    assert fields["age"] == {"name": "age", "type": "int", "default": 1}
    assert fields["tags"]["default"] == []
    assert [each["name"] for each in fields["address"]["type"][1]["fields"]] == ["streetName", "zip"]
    person = Person(name="Ada", tags={"a"}, address=Address(streetName="s"), nested=Item(Sku("s")))
    for schema in (Avro(Person), Json(Person)):
        found = schema.decode(schema.encode(person))
        assert found == person
        assert isinstance(found.nested, Item)
    assert json.loads(Json(Person).encode(person))["address"] == {"streetName": "s", "zip": "0"}
    with pytest.raises(SchemaError, match=r"Person refuses the values: .*a name is not empty"):
        Json(Person).decode(b'{"name": ""}')


class Bare:
    pass


@dataclass
class Unknown:
    inner: Bare


@dataclass
class AnyList:
    items: list[Any]


@dataclass
class Keyed:
    by_number: dict[int, str]


@dataclass
class BadDefault:
    count: Int = 2**40


@dataclass
class BadName:
    größe: Annotated[str, AvroField(name="no-name")]


@dataclass
class Twice:
    one: Item
    other: Other


class _Names:
    @dataclass
    class Item:
        pass


Other = _Names.Item


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Unknown, r"Unknown\.inner has the type Bare, which has no Avro definition"),
        (AnyList, r"AnyList\.items has the type Any"),
        (Keyed, r"Keyed\.by_number has the type dict\[int, str\]"),
        (BadDefault, r"the default of BadDefault\.count does not fit its type: 1099511627776 is outside of"),
        (BadName, "BadName makes no valid Avro definition: BadName: 'no-name' is not a name"),
        (Twice, r"Names\.Item and .*\.Item both become the Avro type Item; rename one"),
    ],
)
def test_a_class_that_makes_no_definition_is_refused(cls: type, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Avro(cls)


def test_types_that_python_cannot_look_up_are_refused() -> None:
    @dataclass
    class Local:
        inner: Inner

    @dataclass
    class Inner:
        pass

    with pytest.raises(
        SchemaError, match=r"the types of .*Local cannot be read: name 'Inner' is not defined"
    ):
        Json(Local)
