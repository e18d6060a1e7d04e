"""Paths of fields in definitions, for errors: `Order.items[].price`, `Order.prices{}.amount`.

A path is built for every field that is compared and read only for the one that fails, so it is a linked list.
"""

from __future__ import annotations

from typing import Final, TypeAlias

FieldPath: TypeAlias = "tuple[FieldPath, str] | None"
"""The path of the enclosing part, and this part's own text; None: the definition itself."""

ITEMS: Final = "[]"
VALUES: Final = "{}"

_SHOWN_MAX: Final = 200
"""Characters of a path in an error; the end of a longer one is shown."""


def rendered(path: FieldPath) -> str:
    """Returns the path as text; "the definition" for the whole."""
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part)
    text = "".join(reversed(parts)).removeprefix(".")
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return (text if len(text) <= _SHOWN_MAX else "..." + text[-_SHOWN_MAX:]) or "the definition"
