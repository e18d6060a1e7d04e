"""The compiled protocol against the table of facts about Pulsar's (wire_facts.tsv)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from magnetar.common.wire import pulsar_pb2

FACTS = Path(__file__).with_name("wire_facts.tsv")
FILE = pulsar_pb2.DESCRIPTOR
WITHOUT_FIELDS = {"CommandPing", "CommandPong"}

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_DOUBLE: "double",
}

Row = tuple[str, ...]


def facts() -> set[Row]:
    lines = FACTS.read_text().splitlines()
    return {tuple(line.split("\t")) for line in lines if not line.startswith("#")}


def enum_rows(enum: EnumDescriptor) -> Iterator[Row]:
    for value in enum.values:
        yield "enum", local_name(enum), value.name, str(value.number), "", "", ""


def field_row(field: FieldDescriptor) -> Row:
    kind = field.message_type or field.enum_type
    type_name = local_name(kind) if kind is not None else SCALARS[field.type]
    label = "repeated" if field.is_repeated else "required" if field.is_required else "optional"
    default = ""
    if field.has_default_value:
        default = str(field.default_value)
        if field.enum_type is not None:
            default = field.enum_type.values_by_number[field.default_value].name
    assert field.containing_type is not None
    owner = local_name(field.containing_type)
    return "field", owner, field.name, str(field.number), type_name, label, default


def local_name(described: Descriptor | EnumDescriptor) -> str:
    return described.full_name.removeprefix("pulsar.proto.")


def compiled() -> set[Row]:
    rows = {row for enum in FILE.enum_types_by_name.values() for row in enum_rows(enum)}
    for message in FILE.message_types_by_name.values():
        rows.update(field_row(field) for field in message.fields)
        rows.update(row for enum in message.enum_types for row in enum_rows(enum))
        assert not message.nested_types
    return rows


def test_every_message_field_and_enum_value_is_as_pulsar_has_it_and_there_is_no_other() -> None:
    assert len(facts()) > 500
    assert compiled() == facts()


def test_only_ping_and_pong_are_empty() -> None:
    assert {
        name for name, message in FILE.message_types_by_name.items() if not message.fields
    } == WITHOUT_FIELDS


def test_the_package_is_the_one_that_reflection_shows_for_pulsar() -> None:
    assert FILE.package == "pulsar.proto"


def test_each_command_has_the_number_of_its_type() -> None:
    types = pulsar_pb2.BaseCommand.Type.DESCRIPTOR.values_by_number
    commands = {field.number for field in pulsar_pb2.BaseCommand.DESCRIPTOR.fields if field.number > 1}
    assert commands == set(types)
