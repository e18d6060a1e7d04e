"""Output of messages: raw bytes for programs, printable characters for terminals.

Message content is untrusted: control characters must not reach a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.client.messages import Message


def printable(text: str) -> str:
    """Replaces terminal control characters by a mark; line ends and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def head_text(key: str | None, properties: Mapping[str, str]) -> list[str]:
    """Return key and properties in pulsar-client's format."""
    given = ", ".join(f"{name}={value}" for name, value in properties.items())
    return [f"key:[{'null' if key is None else key}]", f"properties:[{given}]"]


def show_text(text: str, end: str = "\n") -> None:
    """Print the header lines before the content."""
    print(printable(text) if sys.stdout.isatty() else text, end=end)


def show_content(payload: bytes | memoryview) -> None:
    """Print the content and a line end."""
    if sys.stdout.isatty():
        print(printable(bytes(payload).decode(errors="replace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(bytes(payload) + b"\n")
    sys.stdout.flush()


def facts_of(message: Message, *, as_hex: bool, hide_content: bool) -> dict[str, Any]:
    """Return a message as a JSON object."""
    facts: dict[str, Any] = {
        "topic": message.topic,
        "messageId": str(message.id),
        "key": message.key,
        "properties": message.properties,
        "publishTime": message.publish_time_ms,
        "eventTime": message.event_time_ms,
        "producerName": message.producer_name,
        "sequenceId": message.sequence_id,
        "redeliveryCount": message.redelivery_count,
    }
    if message.encrypted is not None:
        facts["encrypted"] = list(message.encrypted.keys)
    if message.unreadable:
        facts["unreadable"] = message.unreadable
    elif not hide_content:
        facts["content"] = message.data.hex() if as_hex else message.data.decode(errors="replace")
    return facts
