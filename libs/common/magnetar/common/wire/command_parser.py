"""Parsing and validation of one BaseCommand.

Handlers may rely on it: the command named by the type is present, so is every required field, and every
string is text (except in the properties of an Ack). The C runtime of protobuf checks neither for proto2: a
string that is not UTF-8 would be returned as `bytes`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import MalformedFrame, UnknownCommand
from magnetar.common.wire.pulsar_pb2 import BaseCommand


class _TextPlan(NamedTuple):
    """The text fields of a message type."""

    strings: tuple[tuple[str, bool], ...]
    """Its own text fields: (field, repeated)."""

    messages: tuple[tuple[str, bool, _TextPlan], ...]
    """Nested messages with text: (field, repeated, their plan)."""


_UNREAD: Final = ("KeyLongValue",)
"""Fields excluded from the check because brokers do not read them: the only text of an Ack, of which there
may be one per message.
"""


def _repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _plan(descriptor: Descriptor, above: tuple[str, ...] = ()) -> _TextPlan | None:
    """Returns the plan of a message type; None without text. No type with text contains itself."""
    strings, messages = [], []
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            strings.append((field.name, _repeated(field)))
        elif field.message_type is not None and field.message_type.name not in (*above, *_UNREAD):
            below = _plan(field.message_type, (*above, descriptor.name))
            if below is not None:
                messages.append((field.name, _repeated(field), below))
    return _TextPlan(tuple(strings), tuple(messages)) if strings or messages else None


class _CommandType(NamedTuple):
    field: Any
    """Name of the field of BaseCommand; a literal type because the generated stubs accept only literals."""

    text: _TextPlan | None


_COMMAND_TYPES: Final = {
    field.number: _CommandType(field.name, _plan(field.message_type))
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def parse_command(encoded: bytes) -> BaseCommand:
    """Parses the command of a frame. Raises UnknownCommand for an unknown type, otherwise MalformedFrame."""
    command = BaseCommand()
    try:
        command.ParseFromString(encoded)
    except DecodeError as error:
        raise MalformedFrame("the bytes of a command are no protobuf message") from error
    if not command.IsInitialized():
        if not command.HasField("type"):
            raise UnknownCommand("a command without a type, or of a type this protocol version does not have")
        missing = missing_fields(command)
        raise MalformedFrame(f"a command without (or with an unknown value of) {missing}")
    field, text = _COMMAND_TYPES[command.type]
    if not command.HasField(field):
        raise MalformedFrame(f"a command of type {command.type} without its field {field!r}")
    if text is not None:
        _check_text(getattr(command, field), text)
    return command


def missing_fields(message: Any) -> str:
    """Returns the required fields that a message lacks (protobuf's stubs lack this method)."""
    return ", ".join(message.FindInitializationErrors())


def command_field(command: BaseCommand) -> str:
    """Returns the name of the field that holds the command, e.g. "subscribe"."""
    name: str = _COMMAND_TYPES[command.type].field
    return name


def _check_text(message: Message, plan: _TextPlan) -> None:
    for name, repeated in plan.strings:
        value = getattr(message, name)
        for text in value if repeated else (value,):
            if not isinstance(text, str):
                raise MalformedFrame(f"{message.DESCRIPTOR.name}.{name} is not UTF-8")
    for name, repeated, below in plan.messages:
        if repeated:
            for part in getattr(message, name):
                _check_text(part, below)
        elif message.HasField(name):
            _check_text(getattr(message, name), below)
