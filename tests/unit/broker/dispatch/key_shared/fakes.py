"""Consumers as the selectors see them."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.dispatch.key_shared.selector import Selector


@dataclass(eq=False)
class Fake:
    name: str
    hash_ranges: tuple[tuple[int, int], ...] = ()


def layout(selector: Selector[Fake]) -> list[tuple[int, int, str | None]]:
    """(first, last, owner's name) of each range, left to right."""
    ranges = []
    first = 0
    for last, owner in zip(selector.bounds, selector.owners, strict=True):
        ranges.append((first, last, None if owner is None else owner.name))
        first = last + 1
    return ranges
