"""Figures as a Markdown table, to be put into a page as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def shown(value: object) -> str:
    """A figure as a reader wants it: about three digits that say something."""
    if isinstance(value, float):
        return (
            f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


def lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table of which all columns but the first hold figures."""
    rule = ["---", *("---:" for _ in headings[1:])]
    return [f"| {' | '.join(map(shown, row))} |" for row in (headings, rule, *rows)]


def markdown(path: Path, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write the table to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines(headings, rows)) + "\n", encoding="utf-8")


def into_page(page: Path, part: str, text: Sequence[str]) -> None:
    """Put lines between the marks of a part of a page, in the place of what was there.

    Raises ValueError when the page has no such marks.
    """
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise ValueError(f"{page} has no part between {begin} and {end}")
    page.write_text("\n".join([before + begin, *text, end + after]), encoding="utf-8")
