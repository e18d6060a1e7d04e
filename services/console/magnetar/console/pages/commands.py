"""The `magnetar` command that does the same as a page, quoted for a shell. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

_ADMIN: Final = ("magnetar", "admin")
LINE_BYTES_MAX: Final = 8_192
"""Longest payload that a command has."""


def admin_command(*words: str) -> str:
    """Return `magnetar admin ...`. Write options that take a name as --option=value: it may begin with -."""
    return shlex.join((*_ADMIN, *words))


def topics_command(verb: str, topic: str, *words: str) -> str:
    return admin_command("topics", verb, topic, *words)


def subscription_command(verb: str, topic: str, subscription: str, *words: str) -> str:
    return topics_command(verb, topic, f"--subscription={subscription}", *words)


def produce_command(topic: str, payload: bytes, key: str, properties: Mapping[str, str]) -> str:
    """Return the command that publishes a message; empty if no command can: names and values of properties
    that have commas, payloads that are too long.
    """
    if len(payload) > LINE_BYTES_MAX or any("," in f"{name}{value}" for name, value in properties.items()):
        return ""
    words = ["magnetar", "produce", topic, "--files=-"]
    if key:
        words.append(f"--key={key}")
    words += [f"--properties={name}={value}" for name, value in properties.items()]
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"echo {payload.hex()} | xxd -r -p | {shlex.join(words)}"
    return f"printf %s {shlex.quote(text)} | {shlex.join(words)}"


def browse_command(
    topic: str, start: str, count: int, *, position: tuple[int, int] | None, time_ms: int
) -> str:
    """Return the command that shows messages from a start of the messages page, without its filters."""
    if start == "earliest":
        words = ["-s", "copied", "-m", "nondurable", "-p", "earliest", "-n", str(count), "--json"]
        return shlex.join(("magnetar", "consume", topic, *words))
    if start == "time":
        return topics_command("get-message-id", topic, "-d", str(time_ms))
    if start == "id" and position is not None:
        return message_command(topic, *position)
    return topics_command("examine-messages", topic, "-i", "latest", "-m", "1")


def message_command(topic: str, ledger_id: int, entry_id: int) -> str:
    return topics_command("get-message-by-id", topic, "-l", str(ledger_id), "-e", str(entry_id))
