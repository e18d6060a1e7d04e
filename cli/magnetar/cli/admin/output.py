"""Output of admin commands: a table on a terminal, tab-separated or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target
    from rich.console import Console

Row = dict[str, Any]

_TEXT_CHARS_MIN: Final = 16
"""Minimum width of a folded text column, in characters."""

_NOTHING: Final = (0, None, "", "no", "None")


def on_terminal(target: Target) -> bool:
    """Return whether to draw for a terminal."""
    return target.output == "table" or (target.output == "auto" and sys.stdout.isatty())


def show_rows(target: Target, title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a list of records."""
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


def draw_rows(title: str, columns: Sequence[str], rows: Sequence[Row], *, spare_zeros: bool = False) -> bool:
    """Draw a table on a terminal, numbers rounded and right-aligned. Returns True when columns were left out.

    On a narrow terminal, all-zero columns are left out if allowed, from the right and only as needed. If that
    is not enough, each row is drawn as a list of facts: headings are never wrapped.
    """
    if not rows:
        print(f"{title}: none")
        return False
    from rich.table import Table

    console = _console()
    shown = list(columns)
    zeros = [column for column in columns if all(row[column] in _NOTHING for row in rows)]
    while spare_zeros and zeros and len(shown) > 1 and not _fits(shown, rows, console.width):
        shown.remove(zeros.pop())
    if _fits(shown, rows, console.width):
        table = Table()
        for column in shown:
            numbers = _numbers(column, rows)
            table.add_column(column, justify="right" if numbers else "left", overflow="fold", no_wrap=numbers)
        for row in rows:
            table.add_row(*(_human(row[column]) for column in shown), style=_style(row))
    else:
        table = Table(show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for row in rows:
            for column in shown:
                table.add_row(column, _human(row[column]), style=_style(row), end_section=column == shown[-1])
    _draw(title, table)
    return len(shown) < len(columns)


def _numbers(column: str, rows: Sequence[Row]) -> bool:
    return all(isinstance(row[column], int | float) for row in rows)


def _fits(columns: Sequence[str], rows: Sequence[Row], width: int) -> bool:
    """Return whether headings and numbers fit unbroken, and texts are not folded too narrowly."""
    needed = 1
    for column in columns:
        longest = max(len(_human(row[column])) for row in rows)
        needed += max(len(column), longest if _numbers(column, rows) else min(longest, _TEXT_CHARS_MIN)) + 3
    return needed <= width


def draw_facts(title: str, facts: Row) -> None:
    """Draw one record on a terminal, numbers rounded."""
    if not facts:
        print(f"{title}: none")
        return
    from rich.table import Table

    longest = max(map(len, facts)), max(len(_human(value)) for value in facts.values())
    room = _console().width - 7
    table = Table(show_header=False)
    table.add_column(overflow="fold", no_wrap=longest[0] + min(longest[1], _TEXT_CHARS_MIN) <= room)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _human(value), style=_style({"state": value}) if name == "state" else None)
    _draw(title, table)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _draw(title: str, table: object) -> None:
    console = _console()
    console.print(title, style="bold", soft_wrap=True)
    console.print(table)


def time_text(time_ms: int) -> str:
    """Return a time as ISO 8601; empty for none."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else ""


def moment_text(time_ms: int) -> str:
    """Return a UTC time to the second, without the date if it is today; empty for none."""
    if not time_ms:
        return ""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S")


def _human(value: Any) -> str:
    """Formats a number with two decimals."""
    if not isinstance(value, float):
        return _text(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _style(row: Row) -> str | None:
    return {"down": "red", "read-only": "yellow", "decommissioning": "cyan"}.get(str(row.get("state")))
