"""One line for each message: for people, shortened, or JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from magnetar.cli.message_output import printable
from magnetar.cli.message_values import payload_text
from magnetar.cli.search.option_types import id_text
from magnetar.ledger.cold.search.condition import SearchedMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_line(message: SearchedMessage, chars: int, *, value: str | None = None, topic: str = "") -> str:
    """Returns time, id, key, properties and content of a message without control characters.

    `chars` bounds the content (0: all of it), `value` is what a schema made of the content, `topic` a name to
    begin with.
    """
    parts = [topic] if topic else []
    parts += [time_text(message.publish_time_ms), id_text(message.position, message.partition)]
    if message.key is not None:
        parts.append(f"key={message.key}")
    parts += [f"{name}={text}" for name, text in message.properties.items()]
    parts.append(_content(message, chars, value))
    return _one_line("  ".join(parts))


def message_facts(message: SearchedMessage, *, as_hex: bool = False) -> dict[str, Any]:
    """Returns a message as a JSON object, with the names of `magnetar consume --json`."""
    facts: dict[str, Any] = {
        "topic": message.topic,
        "messageId": id_text(message.position, message.partition),
        "key": message.key,
        "properties": message.properties,
        "publishTime": message.publish_time_ms,
        "eventTime": message.event_time_ms,
        "producerName": message.producer_name,
        "sequenceId": message.sequence_id,
    }
    if message.unreadable:
        return {**facts, "unreadable": message.unreadable}
    content = message.payload.hex() if as_hex else message.payload.decode(errors="replace")
    return {**facts, "content": None if message.is_null else content}


def time_text(time_ms: int) -> str:
    """Returns a time in UTC to the millisecond; the number itself outside of the calendar."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec='milliseconds')[:-6]}Z"
    except OverflowError:
        return str(time_ms)


def _content(message: SearchedMessage, chars: int, value: str | None) -> str:
    if message.unreadable:
        return f"({message.unreadable})"
    if message.is_null:
        return "(no value)"
    text = payload_text(message.payload) if value is None else value
    return f"{text[:chars]}..." if chars and len(text) > chars else text


def _one_line(text: str) -> str:
    return printable(text.replace("\n", " ").replace("\t", " "))
