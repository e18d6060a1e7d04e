"""What docs/spark.md lists is what there is: columns, options of reading and of writing."""

from __future__ import annotations

import re
from pathlib import Path

from magnetar.ledger.cold.columns import COLUMNS
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.source_options import OPTIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs/spark.md").read_text(encoding="utf-8")


def listed(text: str) -> list[tuple[str, str]]:
    """Name and second column of each row whose first column is a name in backticks."""
    return re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.MULTILINE)


def between(what: str) -> str:
    """The part of the page that marks enclose."""
    return PAGE.split(f"<!-- {what}: begin -->")[1].split(f"<!-- {what}: end -->")[0]


def test_every_column_is_listed_with_its_type_and_in_order() -> None:
    section = PAGE.split("\n## What is written\n")[1].split("\n## ")[0]
    assert listed(section) == [(column.name, column.type.value) for column in COLUMNS]


def test_every_option_of_reading_is_listed_as_its_code_describes_it() -> None:
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in OPTIONS.items())
    assert between("options of reading").strip().splitlines()[2:] == rows.splitlines()


def test_every_option_of_writing_is_listed() -> None:
    there = [name.replace("_", ".") for name in SinkOptions.__dataclass_fields__]
    assert [name for name, _ in listed(between("options of writing"))] == there
