"""Every code of an explanation has its row in docs/explain.md, with a test that exists and produces it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Final

import pytest
from magnetar.broker.admin.stats.bookie_explanation import BookieCode
from magnetar.broker.admin.stats.client_explanation import ClientCode
from magnetar.broker.admin.stats.ledger_explanation import LedgerCode
from magnetar.broker.admin.stats.publish_explanation import PublishCode
from magnetar.broker.admin.stats.storage_explanation import StorageCode
from magnetar.broker.client_endings import EndCode
from magnetar.broker.dispatch.eligibility import Code
from magnetar.broker.load.explanation import PlacementCode
from magnetar.broker.topics.publish.slow_publishes import PublishStep

from tests.repository.test_docs import ROOT

PAGE: Final = (ROOT / "docs/explain.md").read_text(encoding="utf-8")

PLACES: Final = "Why a topic is at its broker + Why a bundle is at its broker"
"""Two sections with one enumeration of codes."""

SECTIONS: Final[dict[str, tuple[type[StrEnum], ...]]] = {
    "Why a subscription delivers nothing": (Code,),
    "What keeps the ledgers": (StorageCode,),
    "Why a publish was slow": (PublishStep, PublishCode),
    PLACES: (PlacementCode,),
    "Why a client was refused or closed": (EndCode, ClientCode),
    "Why a ledger lacks copies": (LedgerCode,),
    "Why a bookie gets no entries": (BookieCode,),
}
"""Sections of the page, each with the codes that its tables have to name."""

_NO_REASONS: Final = {"CompactionStatus", "ClientKind"}
"""String enums of the broker that are no codes of reasons."""

_TEST: Final = re.compile(r"`(?:tests/)?((?:unit|integration|ledger)/[\w/]+\.py)(?:::(test_\w+))?`")


def section(title: str) -> str:
    """The text below a heading, or below several."""
    return "\n".join(PAGE.split(f"## {each}\n", 1)[1].split("\n## ", 1)[0] for each in title.split(" + "))


def rows(title: str) -> dict[str, str]:
    """The rows of a section by code; one row may have several."""
    found = {}
    for line in section(title).splitlines():
        if line.startswith("| `"):
            first = line.split("|")[1]
            found.update(dict.fromkeys(re.findall(r"`(\w+)`", first), line))
    return found


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))


def all_codes() -> Iterator[tuple[str, str]]:
    for title, enums in SECTIONS.items():
        for kind in enums:
            for code in kind:
                yield title, str(code)


@pytest.mark.parametrize(("title", "code"), list(all_codes()))
def test_every_code_has_a_row_with_a_test_that_exists(title: str, code: str) -> None:
    row = rows(title).get(code)
    assert row is not None, f"docs/explain.md has no row for {code} below {title!r}"
    named = _TEST.findall(row)
    assert named, f"{code}: its row names no test"
    for path, name in named:
        assert not name or name in functions_of(path), f"{code}: {path} has no test {name}"
    sources = [(ROOT / "tests" / path).read_text(encoding="utf-8") for path, _ in named]
    assert any(code in source or code.upper() in source for source in sources), (
        f"{code} does not occur in {sorted({path for path, _ in named})}"
    )


@pytest.mark.parametrize("title", SECTIONS)
def test_no_row_is_of_a_code_that_does_not_exist(title: str) -> None:
    known = {str(code) for kind in SECTIONS[title] for code in kind}
    assert set(rows(title)) <= known


def test_no_enumeration_of_codes_is_forgotten() -> None:
    known = {kind.__name__ for enums in SECTIONS.values() for kind in enums}
    defined = {
        name
        for path in (ROOT / "services/broker").rglob("*.py")
        for name in re.findall(r"^class (\w+)\(StrEnum\)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert defined == known | _NO_REASONS
