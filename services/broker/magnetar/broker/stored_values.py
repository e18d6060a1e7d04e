"""Single values in metadata, changed by compare-and-set: of two operators who change two things, both have
their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from magnetar.common.errors import UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import Value, decode, encode

TRIES_MAX: Final = 10
"""Attempts of one change; after the last one, the caller gets the conflict."""

V = TypeVar("V", bound=Value)


async def read_value(metadata: MetadataStore, key: str, kind: type[V]) -> V | None:
    """None when the key is not there. Raises MetadataError."""
    found = await metadata.get(key)
    return None if found is None else _decode(kind, found.value)


async def create_value(metadata: MetadataStore, key: str, value: Value) -> bool:
    """False when there is one already. Raises MetadataError."""
    data = encode(value)
    try:
        await metadata.put(key, data, ABSENT)
    except VersionMismatch:
        return False
    except UnknownOutcome:
        found = await metadata.get(key)
        if found is None or found.value != data:
            raise
    return True


async def change_value(
    metadata: MetadataStore, key: str, kind: type[V], edit: Callable[[V], None], *, create: bool = True
) -> bool:
    """Apply `edit` to the value as it is; done again on what others made of it meanwhile.

    Without a value `edit` gets an empty one, or False is returned without `create`. What `edit` raises is
    raised, and nothing is written. Raises VersionMismatch when others are always faster, MetadataError.
    """
    for last in [*([False] * (TRIES_MAX - 1)), True]:
        found = await metadata.get(key)
        if found is None and not create:
            return False
        value = kind() if found is None else _decode(kind, found.value)
        edit(value)
        data = encode(value)
        if found is not None and data == found.value:
            return True
        try:
            await metadata.put(key, data, ABSENT if found is None else found.version)
        except (VersionMismatch, UnknownOutcome):
            # After an unknown outcome the next look finds it done, or does it.
            if last:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


async def delete_value(metadata: MetadataStore, key: str) -> bool:
    """False when it was not there. Raises MetadataError."""
    if await metadata.get(key) is None:
        return False
    await metadata.delete(key)
    return True


def _decode(kind: type[V], data: bytes) -> V:
    found: Any = decode(kind, data)  # type: ignore[type-var]
    return found  # type: ignore[no-any-return]
