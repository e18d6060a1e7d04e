"""Definitions by which a short Avro payload could crash or exhaust its reader.

Values nest without a limit in recursive types, and fastavro's compiled reader has no limit of its own: 30 kB
overflow the stack of the process. And an array of items without bytes, such as nulls, takes a few bytes for
billions of items.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.schemas.avro_types import Array, AvroType, Fixed, Record, parts, walk

NESTING_MAX: Final = 128
"""Levels of a value up to which the compiled reader is safe."""


def nests_deep(root: AvroType) -> bool:
    """Whether values may nest deeper than NESTING_MAX, as those of recursive types may."""
    level = {id(root): root}
    for _ in range(NESTING_MAX):
        level = {id(part): part for each in level.values() for part in parts(each)}
        if not level:
            return False
    return True


def has_items_without_bytes(root: AvroType) -> bool:
    """Whether an array's number of items is not bounded by the length of the payload."""
    return any(isinstance(each, Array) and _takes_no_bytes(each.items) for each in walk(root))


def _takes_no_bytes(avro_type: AvroType) -> bool:
    waiting, met = [avro_type], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        if isinstance(each, Record):
            waiting.extend(parts(each))
        elif each.kind != "null" and not (isinstance(each, Fixed) and each.size == 0):
            return False
    return True
