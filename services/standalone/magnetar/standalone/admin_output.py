"""How answers to an operator look: a table on a terminal, tab-separated or JSON for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.store import MetadataStore

if TYPE_CHECKING:
    from magnetar.standalone.admin import Target

Row = dict[str, Any]


def with_metadata(target: Target, work: Callable[[MetadataStore, Keys], Awaitable[int]]) -> None:
    """Run `work` and end the process with its exit code; errors become one line."""

    async def run() -> int:
        metadata = await open_metadata_store(target.metadata_url)
        try:
            return await work(metadata, Keys(target.cluster))
        finally:
            await metadata.close()

    try:
        code = asyncio.run(run())
    except MagnetarError as error:
        raise click.ClickException(f"{target.metadata_url}: {error}") from error
    sys.exit(code)


def on_terminal(target: Target) -> bool:
    """Whether to draw."""
    return target.output == "table" or (target.output == "auto" and sys.stdout.isatty())


def show_rows(target: Target, title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Several things of one kind."""
    if target.output == "json":
        print(json.dumps(rows, indent=2))
    elif on_terminal(target):
        draw_rows(title, columns, rows)
    else:
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_text(row[column]) for column in columns))


def show_facts(target: Target, title: str, facts: Row) -> None:
    """One thing."""
    if target.output == "json":
        print(json.dumps(facts, indent=2))
    elif on_terminal(target):
        draw_facts(title, facts)
    else:
        for name, value in facts.items():
            print(f"{name}\t{_text(value)}")


def draw_rows(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """A table on a terminal; numbers rounded, and to the right."""
    if not rows:
        print(f"{title}: none")
        return
    from rich.table import Table

    table = Table()
    for column in columns:
        numbers = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_human(row[column]) for column in columns), style=_style(row))
    _draw(title, table)


def draw_facts(title: str, facts: Row) -> None:
    """One thing on a terminal; numbers rounded."""
    if not facts:
        print(f"{title}: none")
        return
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _human(value), style=_style({"state": value}) if name == "state" else None)
    _draw(title, table)


def _draw(title: str, table: object) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(title, style="bold", soft_wrap=True)
    console.print(table)


def time_text(time_ms: int) -> str:
    """A moment, for people and programs; empty for none."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else ""


def moment_text(time_ms: int) -> str:
    """A moment to the second, for people, without the date when that is today's; UTC. Empty for none."""
    if not time_ms:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S")


def _human(value: Any) -> str:
    """A number as far as anybody reads it: two places behind the point."""
    if not isinstance(value, float):
        return _text(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _style(row: Row) -> str | None:
    return {"down": "red", "read-only": "yellow", "decommissioning": "cyan"}.get(str(row.get("state")))
