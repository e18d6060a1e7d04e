"""Bounds on what clients name and attach: the broker keeps it, stores some of it and shows it on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.common.errors import InvalidName, NotAllowed
from magnetar.common.wire.pulsar_pb2 import KeyValue

NAME_BYTES_MAX: Final = 4096
"""Longest name of a subscription, producer or consumer in UTF-8, as of a topic."""

PROPERTIES_BYTES_MAX: Final = 65_536
"""Keys and values of one producer, consumer, subscription, topic or namespace together, in UTF-8."""


def checked_name(kind: str, name: str) -> str:
    """The name. Raises InvalidName when it is too long."""
    length = len(name.encode())
    if length > NAME_BYTES_MAX:
        raise InvalidName(f"the {kind} name has {length} bytes, at most {NAME_BYTES_MAX} are allowed")
    return name


def checked_properties(kind: str, properties: Iterable[KeyValue]) -> dict[str, str]:
    """The properties as a dict, the last one of a key. Raises NotAllowed when they are too large."""
    found = {each.key: each.value for each in properties}
    check_properties(kind, found)
    return found


def check_properties(kind: str, properties: Mapping[str, str]) -> None:
    """Raises NotAllowed when they are too large."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > PROPERTIES_BYTES_MAX:
        raise NotAllowed(
            f"the properties of the {kind} have {size} bytes, at most {PROPERTIES_BYTES_MAX} are allowed"
        )
