"""The rules of docs/style.md that a machine can check, with allowances that only shrink.

`python -m tests.repository.test_style` writes the current counts as the new allowances, after a rewrite,
a move or a merge; it refuses when a total would grow.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ALLOWANCES: Final = Path(__file__).with_name("style_allowances.tsv")
SLACK: Final = 10
"""Largest difference between an allowance and the count, so that allowances are lowered as texts improve."""

WORDS: Final = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever)\b", re.IGNORECASE)
DOCSTRING: Final = re.compile(r"(Of|Whose|What|As|Who)\b")
EXEMPT: Final = {"docs/style.md", "tests/repository/test_style.py"}
"""Files that name the forbidden words in order to forbid them."""
GENERATED: Final = re.compile(r"^(?:Written by `make docs`|Generated from).*", re.MULTILINE | re.DOTALL)
"""The part of a page that comes from the code, where it is counted."""

Counts = Counter[tuple[str, str]]


def committed_files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name and name not in EXEMPT and not name.endswith("_pb2.py") and path.exists():
            yield path


def directory(name: str) -> str:
    """The allowance a file counts against: a distribution, a page, or a directory of tests."""
    if name.endswith(".md"):
        return "*.md"
    parts = name.split("/")[:-1]
    depth = 3 if name.startswith("tests/unit/") else 2 if parts[0] in {"libs", "services", "tests"} else 1
    return "/".join(parts[:depth])


def docstrings(source: str) -> Iterator[str]:
    """Every bare string: docstrings of modules, classes and functions, and of constants and fields."""
    blocks: list[list[ast.stmt]] = [ast.parse(source).body]
    while blocks:
        for statement in blocks.pop():
            if isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value.strip()
                continue
            blocks += [getattr(statement, block, []) for block in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(statement, "handlers", [])]
            blocks += [case.body for case in getattr(statement, "cases", [])]


def counts() -> Counts:
    found: Counts = Counter()
    for path in committed_files():
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if name.endswith(".md"):
            text = GENERATED.sub("", text)
        else:
            found[directory(name), "docstrings"] += sum(
                bool(DOCSTRING.match(each)) for each in docstrings(text)
            )
        found[directory(name), "words"] += len(WORDS.findall(text))
    return +found


def allowances() -> Counts:
    """The allowances by directory and rule; of rows that a merge has doubled the larger one."""
    found: Counts = Counter()
    for where, kind, number in re.findall(
        r"^(\S+)\t(\w+)\t(\d+)$", ALLOWANCES.read_text("utf-8"), re.MULTILINE
    ):
        found[where, kind] = max(found[where, kind], int(number))
    return found


def explain(wrong: dict[tuple[str, str], tuple[int, int]]) -> str:
    return "\n".join(
        f"{where}: {count} {kind}, allowed {allowed}" for (where, kind), (count, allowed) in wrong.items()
    )


@cache
def compared() -> dict[tuple[str, str], tuple[int, int]]:
    """Count and allowance by directory and rule."""
    now, allowed = counts(), allowances()
    return {key: (now[key], allowed[key]) for key in sorted(now.keys() | allowed.keys())}


@pytest.mark.full
def test_no_directory_has_more_forbidden_words_or_docstrings_than_allowed() -> None:
    wrong = {key: pair for key, pair in compared().items() if pair[0] > pair[1]}
    assert not wrong, f"see docs/style.md\n{explain(wrong)}"


def test_allowances_are_lowered_as_texts_improve() -> None:
    wrong = {key: pair for key, pair in compared().items() if pair[1] > pair[0] + SLACK}
    assert not wrong, f"run `.venv/bin/python -m tests.repository.test_style`\n{explain(wrong)}"


@pytest.mark.parametrize(
    ("text", "words", "beginnings"),
    [
        ('"""Of a ledger."""', 0, 1),
        ('"""Offloads a ledger."""', 0, 0),
        ('x = 1\n"""Who asks: nobody."""', 1, 1),
        ('"""Collects reports."""\n# Somebody else may.', 1, 0),
    ],
)
def test_the_rules_find_what_they_forbid(text: str, words: int, beginnings: int) -> None:
    assert len(WORDS.findall(text)) == words
    assert sum(bool(DOCSTRING.match(each)) for each in docstrings(text)) == beginnings


def write() -> None:
    now, before = counts(), allowances() if ALLOWANCES.exists() else None
    for kind in ("docstrings", "words"):
        total = sum(number for (_, each), number in now.items() if each == kind)
        if before is not None:
            allowed = sum(number for (_, each), number in before.items() if each == kind)
            if total > allowed:
                sys.exit(f"{total} forbidden {kind}, allowed {allowed}: rewrite them; see docs/style.md")
    lines = [f"{where}\t{kind}\t{number}\n" for (where, kind), number in sorted(now.items())]
    ALLOWANCES.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
