"""The actions that roles are granted, as bits of one number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PRODUCE: Final = 1
CONSUME: Final = 2
FUNCTIONS: Final = 4
SOURCES: Final = 8
SINKS: Final = 16
PACKAGES: Final = 32
"""FUNCTIONS, SOURCES, SINKS and PACKAGES are stored and shown; no operation asks for them."""

BY_NAME: Final = {
    "consume": CONSUME,
    "functions": FUNCTIONS,
    "packages": PACKAGES,
    "produce": PRODUCE,
    "sinks": SINKS,
    "sources": SOURCES,
}
"""Bits by the names of the admin API."""


def actions_mask(names: Iterable[str]) -> int:
    """Return the bits of these actions; a name that this version does not know has none."""
    mask = 0
    for name in names:
        mask |= BY_NAME.get(name, 0)
    return mask
