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
        from rich.console import Console
        from rich.table import Table

        table = Table(*columns, title=title)
        for row in rows:
            table.add_row(*(_text(row[column]) for column in columns), style=_style(row))
        Console().print(table)
    else:
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_text(row[column]) for column in columns))


def show_facts(target: Target, title: str, facts: Row) -> None:
    """One thing."""
    if target.output == "json":
        print(json.dumps(facts, indent=2))
    elif on_terminal(target):
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, show_header=False)
        for name, value in facts.items():
            table.add_row(name, _text(value), style=_style({"state": value}) if name == "state" else None)
        Console().print(table)
    else:
        for name, value in facts.items():
            print(f"{name}\t{_text(value)}")


def time_text(time_ms: int) -> str:
    """A moment, for people and programs; empty for none."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _style(row: Row) -> str | None:
    return {"down": "red", "read-only": "yellow", "decommissioning": "cyan"}.get(str(row.get("state")))
