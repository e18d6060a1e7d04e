"""A planted mistake: one place of the code, written wrong, and the tests that have to fail then."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Mistake(NamedTuple):
    """One edit of one file. `old` stands there exactly once; with `new` in its place some test fails."""

    name: str
    what: str
    """What is wrong then, in one line."""
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files or tests as pytest names them; one that fails is enough."""
    equivalent: str = ""
    """Why no test can fail, if so: no promise depends on the code that is edited."""


class Bad(NamedTuple):
    """A mistake that does not fit the tree any more."""

    name: str
    why: str


def applied(mistake: Mistake, source: str) -> str:
    """The file with the mistake in it. Raises ValueError, with the reason, when it does not fit."""
    count = source.count(mistake.old)
    if count != 1:
        place = "is not there" if not count else f"is there {count} times"
        raise ValueError(f"{mistake.path}: the text to replace {place}: {mistake.old.strip()!r}")
    return source.replace(mistake.old, mistake.new)


def check(root: Path, mistakes: Iterable[Mistake]) -> list[Bad]:
    """Those that cannot be planted, would not compile, or whose tests are not there."""
    bad: list[Bad] = []
    names: set[str] = set()
    sources: dict[str, str] = {}

    def source(path: str) -> str:
        if path not in sources:
            sources[path] = (root / path).read_text(encoding="utf-8")
        return sources[path]

    for mistake in mistakes:
        if mistake.name in names:
            bad.append(Bad(mistake.name, "another mistake has the same name"))
        names.add(mistake.name)
        try:
            ast.parse(applied(mistake, source(mistake.path)))
        except (OSError, ValueError, SyntaxError) as error:
            bad.append(Bad(mistake.name, str(error)))
        if bool(mistake.tests) == bool(mistake.equivalent):
            bad.append(Bad(mistake.name, "it needs either tests that catch it or a reason why none can"))
        for test in mistake.tests:
            path, _, rest = test.partition("::")
            function = rest.partition("[")[0]
            try:
                found = (f"def {function}(" if function else "def test_") in source(path)
            except OSError:
                found = False
            if not found:
                bad.append(Bad(mistake.name, f"the test that has to catch it is not there: {test}"))
    return bad
