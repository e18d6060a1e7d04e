"""One BaseCommand from its bytes, checked as far as the protocol's definition goes.

Handlers may rely on it: the command that the type names is there, so is every required field, and every
string is text (but in the properties of an Ack). The C runtime of protobuf checks neither for proto2: a
string that is not UTF-8 would come back as `bytes`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import MalformedFrame, UnknownCommand
from magnetar.common.wire.pulsar_pb2 import BaseCommand


class _TextPlan(NamedTuple):
    """Where a message type has text."""

    strings: tuple[tuple[str, bool], ...]
    """Own fields: (field, repeated)."""

    messages: tuple[tuple[str, bool, _TextPlan], ...]
    """In messages below it: (field, repeated, their plan)."""


_UNREAD: Final = ("KeyLongValue",)
"""Not checked, since brokers do not read it: the only text of an Ack, and Acks may come once per message."""


def _repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _plan(descriptor: Descriptor, above: tuple[str, ...] = ()) -> _TextPlan | None:
    """The plan of a message type; None when it has no text. No type with text contains itself."""
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
    """Name of the field of BaseCommand; typed so since the generated stubs know only literals."""

    text: _TextPlan | None


_COMMAND_TYPES: Final = {
    field.number: _CommandType(field.name, _plan(field.message_type))
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def parse_command(encoded: bytes) -> BaseCommand:
    """The command of a frame. Raises UnknownCommand for a type not in the protocol, else MalformedFrame."""
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
    """The required fields that a message does not have (the stubs of protobuf do not know the method)."""
    return ", ".join(message.FindInitializationErrors())


def command_field(command: BaseCommand) -> str:
    """The name of the field that holds the command, e.g. "subscribe"."""
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
