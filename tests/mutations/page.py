"""docs/mutations.md: what a whole run found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.mutations.mistakes import MISTAKES
from tests.mutations.running import CAUGHT, EQUIVALENT, Outcome

PAGE: Final = "docs/mutations.md"

_HEAD: Final = """# Planted mistakes

{caught} of {all} planted mistakes are caught by a test, {equivalent} equivalent to the code as it is,
{others}.

A mistake is planted in a copy of the tree, one at a time, and the tests that it names have to fail. One that
survives means that a rule of storage or security is not tested, or not needed. This page is written by the
run:

```sh
make mutations                      # all of them, in minutes
make mutations ARGS="--only fence"  # those whose name or file contains it; or security, transactions
make mutations ARGS=--check         # only whether each still fits the tree; a test does this, too
```

Where `--check` says that a text is not there, the code has changed: find the rule's new place and edit the
mistake in `tests/mutations`, or remove it with the rule.
"""

_PLANTED: Final = """
## One-line mistakes

`tests/mutations` says what each breaks, and names the tests that have to fail.

| file | caught |
| --- | --- |
"""

_PATCHED: Final = """
## Mutations of suites

Each is a test of its own: a function is patched, and the suite must notice within a stated number of seeds.

| file | caught |
| --- | --- |
"""

_NOT_CAUGHT: Final = """
## Not caught

| mistake | what is wrong then | outcome |
| --- | --- | --- |
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    counts = Counter(each.verdict for each in outcomes)
    others = len(outcomes) - counts[CAUGHT] - counts[EQUIVALENT]
    same = counts[EQUIVALENT]
    text = _HEAD.format(
        caught=counts[CAUGHT],
        all=len(outcomes),
        equivalent=f"{same} {'is' if same == 1 else 'are'}",
        others=f"{others} are not caught" if others else "none survives",
    )
    own = {mistake.name for mistake in MISTAKES}
    planted = [each._replace(path=_short(each.path)) for each in outcomes if each.name in own]
    text += (
        _PLANTED + _table(planted) + _PATCHED + _table([each for each in outcomes if each.name not in own])
    )
    left = [each for each in outcomes if each.verdict != CAUGHT]
    if left:
        text += _NOT_CAUGHT
        for each in left:
            text += f"| `{each.name}` | {_cell(each.what)} | {each.verdict}: {_cell(each.detail)} |\n"
    return text


def _table(outcomes: Sequence[Outcome]) -> str:
    by_path = groupby(sorted(outcomes, key=lambda each: each.path), key=lambda each: each.path)
    counts = ((path, Counter(each.verdict for each in group)) for path, group in by_path)
    return "".join(f"| `{path}` | {found[CAUGHT]} of {found.total()} |\n" for path, found in counts)


def _short(path: str) -> str:
    return str(Path(path[path.index("magnetar/") :]).relative_to("magnetar"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
