"""Definitions of Python classes and Protobuf messages are valid schemas of their types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.duration_pb2 import DESCRIPTOR as DURATION
from magnetar.cli.admin.schema_extraction import NotExtracted, avro_definition, protobuf_definition
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import validate

SOURCE = """
import datetime
import enum
from dataclasses import dataclass, field


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Item:
    price: float
    size: Size = Size.SMALL


@dataclass
class Order:
    number: int
    paid: bool
    customer: str
    signature: bytes
    day: datetime.date
    at: datetime.datetime
    items: list[Item]
    best: Item
    sizes: dict[str, Size]
    note: str | None = None
    count: int = 3
    extra: list[str] = field(default_factory=list)


class WithSchema:
    @classmethod
    def schema(cls):
        return {"type": "record", "name": "Own", "fields": []}


@dataclass
class Odd:
    part: complex


@dataclass
class OddDefault:
    part: "list[int]" = (1,)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "extracted_orders.py").write_text(SOURCE)
    return tmp_path


def test_a_dataclass_becomes_a_record(directory: Path) -> None:
    text = avro_definition("extracted_orders:Order", directory)
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        validate(SchemaDefinition(kind, text.encode()))
    found = json.loads(text)
    fields = {each["name"]: each for each in found["fields"]}
    size = {"type": "enum", "name": "Size", "symbols": ["SMALL", "LARGE"]}
    item = [{"name": "price", "type": "double"}, {"name": "size", "type": size, "default": "SMALL"}]
    assert found["name"] == "Order"
    assert fields["items"]["type"]["items"] == {"type": "record", "name": "Item", "fields": item}
    assert fields["best"]["type"] == "Item"
    assert fields["sizes"]["type"] == {"type": "map", "values": "Size"}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["count"] == {"name": "count", "type": "long", "default": 3}
    assert fields["at"]["type"]["logicalType"] == "timestamp-millis"
    assert "default" not in fields["extra"]


def test_a_class_with_a_schema_of_its_own_is_asked_for_it(directory: Path) -> None:
    assert json.loads(avro_definition("extracted_orders:WithSchema", directory))["name"] == "Own"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("extracted_orders", "MODULE:CLASS"),
        ("extracted_orders:", "MODULE:CLASS"),
        ("no_such_module_here:Order", "no_such_module_here"),
        ("extracted_orders:Nothing", "Nothing"),
        ("extracted_orders:Size", "neither a dataclass"),
        ("extracted_orders:Odd", r"Odd\.part has the type .*complex"),
        ("extracted_orders:OddDefault", r"default of OddDefault\.part"),
    ],
)
def test_what_has_no_schema_is_refused_with_the_reason(directory: Path, name: str, reason: str) -> None:
    with pytest.raises(NotExtracted, match=reason):
        avro_definition(name, directory)


def test_a_message_of_a_descriptor_set_becomes_a_native_schema() -> None:
    files = FileDescriptorSet()
    DURATION.CopyToProto(files.file.add())
    text = protobuf_definition(files.SerializeToString(), "google.protobuf.Duration")
    validate(SchemaDefinition(SchemaType.PROTOBUF_NATIVE, text.encode()))
    with pytest.raises(NotExtracted, match=r"it has google\.protobuf\.Duration"):
        protobuf_definition(files.SerializeToString(), "google.protobuf.Other")
    with pytest.raises(NotExtracted, match="protoc"):
        protobuf_definition(b"\xff\xff", "google.protobuf.Duration")
