"""Single values in metadata, changed by compare-and-set: concurrent changes of different fields all take
effect.
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
    """Reads a value; None when the key does not exist. Raises MetadataError."""
    found = await metadata.get(key)
    return None if found is None else _decode(kind, found.value)


async def create_value(metadata: MetadataStore, key: str, value: Value) -> bool:
    """Creates a value; returns False when it already exists. Raises MetadataError."""
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
    """Applies `edit` to the current value; retried after conflicting changes.

    Without a value, `edit` gets an empty one if `create` is set; otherwise False is returned. Errors of
    `edit` are raised, and nothing is written. Raises VersionMismatch when conflicts exhaust the retries,
    MetadataError.
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
            # After an unknown outcome, the next attempt finds the change written, or writes it.
            if last:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


async def delete_value(metadata: MetadataStore, key: str) -> bool:
    """Deletes a value; returns False when it does not exist. Raises MetadataError."""
    if await metadata.get(key) is None:
        return False
    await metadata.delete(key)
    return True


def _decode(kind: type[V], data: bytes) -> V:
    found: Any = decode(kind, data)  # type: ignore[type-var]
    return found  # type: ignore[no-any-return]
