"""Size limits of names and properties from clients: the broker keeps them in memory, stores some and shows
them in statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.common.errors import InvalidName, NotAllowed
from magnetar.common.wire.pulsar_pb2 import KeyValue

NAME_BYTES_MAX: Final = 4096
"""Maximum UTF-8 bytes of a subscription, producer or consumer name, as of a topic name."""

PROPERTIES_BYTES_MAX: Final = 65_536
"""Maximum UTF-8 bytes of all keys and values of one producer, consumer, subscription, topic or namespace."""


def checked_name(kind: str, name: str) -> str:
    """Returns the name. Raises InvalidName when it is too long."""
    length = len(name.encode())
    if length > NAME_BYTES_MAX:
        raise InvalidName(f"the {kind} name has {length} bytes, at most {NAME_BYTES_MAX} are allowed")
    return name


def checked_properties(kind: str, properties: Iterable[KeyValue]) -> dict[str, str]:
    """Returns the properties as a dict, with the last value of each key. Raises NotAllowed when they are too
    large.
    """
    found = {each.key: each.value for each in properties}
    check_properties(kind, found)
    return found


def check_properties(kind: str, properties: Mapping[str, str]) -> None:
    """Raises NotAllowed when the properties are too large."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > PROPERTIES_BYTES_MAX:
        raise NotAllowed(
            f"the properties of the {kind} have {size} bytes, at most {PROPERTIES_BYTES_MAX} are allowed"
        )
