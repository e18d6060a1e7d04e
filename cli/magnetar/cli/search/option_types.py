"""Options that say which messages are meant (times, message ids, properties), and how they are shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
from magnetar.cli.option_values import SECONDS
from magnetar.ledger.cold.search.condition import MessagePosition

_AGE: Final = re.compile(r"[0-9]+[smhdwy]", re.IGNORECASE)
_ID: Final = re.compile(r"([0-9]+):([0-9]+)(?::(-1|[0-9]+)(?::([0-9]+))?)?")


class Moment(click.ParamType[int]):
    """A time: ISO 8601 (UTC unless it says otherwise), milliseconds since 1970, or an age such as 3h."""

    name = "time"

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            return int(text)
        if _AGE.fullmatch(text):
            return self._now_ms() - SECONDS.convert(text, param, ctx) * 1000
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"invalid time {text!r}; write it as 2026-11-21T19:30:00Z, as milliseconds since 1970, or as "
                "an age such as 90s, 10m, 3h or 2d",
                param,
                ctx,
            )
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class GivenId:
    """A message id of the command line."""

    position: MessagePosition
    """With batch index -1 if none was given."""
    partition: int | None
    """-1 outside a partitioned topic; None if it was not given."""


class GivenMessageId(click.ParamType[GivenId]):
    """A message id as commands print it: LEDGER:ENTRY[:PARTITION[:BATCH]]."""

    name = "message id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> GivenId:
        if isinstance(value, GivenId):
            return value
        found = _ID.fullmatch(str(value))
        if found is None:
            self.fail(
                f"invalid message id {value!r}; write it as commands print it, LEDGER:ENTRY:PARTITION:BATCH, "
                "or as LEDGER:ENTRY",
                param,
                ctx,
            )
        ledger, entry, partition, batch = found.groups()
        position = MessagePosition(int(ledger), int(entry), -1 if batch is None else int(batch))
        return GivenId(position, None if partition is None else int(partition))


class WantedProperty(click.ParamType[tuple[str, str | None]]):
    """A property as NAME=VALUE, or NAME for any value."""

    name = "property"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        if isinstance(value, tuple):
            return value
        name, has_value, text = str(value).partition("=")
        if not name:
            self.fail(
                f"invalid property {value!r}; write it as NAME=VALUE, or NAME for any value", param, ctx
            )
        return name, text if has_value else None


MOMENT: Final = Moment()
MESSAGE_ID: Final = GivenMessageId()
PROPERTY: Final = WantedProperty()

HEX: Final = click.option("--hex", "as_hex", is_flag=True, help="With --json: content in hexadecimal.")
CHARS: Final = click.option(
    "--chars",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Characters of the content that are shown; 0: all.",
)


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --key, --property and --text as `key`, `properties` and `text`: all given ones must hold."""
    for option in reversed(
        (
            click.option("--key", "-k", default=None, metavar="TEXT", help="The whole key of messages."),
            click.option(
                "--property",
                "-p",
                "properties",
                type=PROPERTY,
                multiple=True,
                metavar="NAME=VALUE",
                help="Property of messages; NAME alone for any value; repeat for several.",
            ),
            click.option(
                "--text",
                "-t",
                default="",
                metavar="TEXT",
                help="Text anywhere in the content, as the application sent it (bytes of UTF-8).",
            ),
        )
    ):
        command = option(command)
    return command


def id_text(position: MessagePosition, partition: int) -> str:
    """Returns the id of a message as commands print it."""
    text = f"{position.ledger_id}:{max(position.entry_id, 0)}:{partition}"
    return f"{text}:{position.batch_index}" if position.batch_index >= 0 else text
