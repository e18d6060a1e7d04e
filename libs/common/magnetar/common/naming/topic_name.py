"""Topic names: `{persistent|non-persistent}://tenant/namespace/topic`, their short forms and partitions."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import (
    DEFAULT_NAMESPACE,
    SYSTEM_NAMESPACE,
    NamespaceName,
    check_entity,
)

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
DOMAINS: Final = (PERSISTENT, NON_PERSISTENT)

TOPIC_NAME_BYTES_MAX: Final = 4096
"""Maximum length of a full name in UTF-8 bytes; limits what a client can make the broker store."""

_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.DOTALL)
_PARTITION_INDEX_MAX: Final = 2**31 - 1
_HEARTBEAT_NAMESPACE: Final = re.compile(r".+:[0-9]+")
_HEARTBEAT: Final = "healthcheck"
_BRACKETS: Final = str.maketrans("", "", "[]")
_TRANSACTION_BUFFER_SNAPSHOT: Final = "__transaction_buffer_snapshot"
_RESERVED_LOCAL_NAMES: Final = frozenset(
    {
        "__change_events",
        _TRANSACTION_BUFFER_SNAPSHOT,
        f"{_TRANSACTION_BUFFER_SNAPSHOT}_segments",
        f"{_TRANSACTION_BUFFER_SNAPSHOT}_indexes",
    }
)
_PENDING_ACK_SUFFIX: Final = "__transaction_pending_ack"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic's full name, in its parts. `local_name` is free text without '/'.

    Made by `parse` or `of`; `full` is the text form that is stored, hashed and shown. A partition is a topic
    of its own whose local name ends in `-partition-<digits>`: `partition_index` is that number (-1 for any
    other topic), `base` the partitioned topic's name.
    """

    domain: str
    namespace: NamespaceName
    local_name: str
    full: str
    partition_index: int
    base_local_name: str

    @staticmethod
    def parse(text: str) -> TopicName:
        """Parse a full or short name; equal texts give the same object. Raises InvalidName with the reason.

        Short forms: `topic` is persistent://public/default/topic and `tenant/namespace/topic` is persistent.
        """
        return _parse(text)

    @staticmethod
    def of(domain: str, namespace: NamespaceName, local_name: str) -> TopicName:
        """Returns the topic with these parts; raises InvalidName if a part is invalid."""
        return _parse(f"{domain}://{namespace}/{local_name}")

    @staticmethod
    def heartbeat(broker_id: str) -> TopicName:
        """Returns the health-check topic of the broker with this id (host:port of its HTTP port).

        Same as Pulsar's, without the brackets of an IPv6 address, which are invalid in a namespace.
        """
        namespace = NamespaceName(SYSTEM_NAMESPACE.tenant, broker_id.translate(_BRACKETS))
        return TopicName.of(PERSISTENT, namespace, _HEARTBEAT)

    @property
    def tenant(self) -> str:
        return self.namespace.tenant

    @property
    def persistent(self) -> bool:
        return self.domain == PERSISTENT

    @property
    def base(self) -> TopicName:
        """Returns the partitioned topic of a partition; any other topic is returned unchanged."""
        if self.partition_index < 0:
            return self
        return _parse(f"{self.domain}://{self.namespace}/{self.base_local_name}")

    def partition(self, index: int) -> TopicName:
        """The name of this topic's partition `index`; this must not be a partition itself."""
        if self.partition_index >= 0:
            raise InvalidName(f"{self.full!r} is a partition and cannot have partitions")
        if not 0 <= index <= _PARTITION_INDEX_MAX:
            raise InvalidName(f"{index} is not a partition index")
        return _parse(f"{self.full}-partition-{index}")

    @property
    def hash(self) -> int:
        """Returns the topic's hash on its namespace's 32-bit ring: zlib's CRC-32 of the full name in
        UTF-8.
        """
        return zlib.crc32(self.full.encode())

    def __str__(self) -> str:
        return self.full


@lru_cache(maxsize=65_536)
def _parse(text: str) -> TopicName:
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = PERSISTENT, text
        if text and "/" not in text:
            rest = f"{DEFAULT_NAMESPACE}/{text}"
    elif domain not in DOMAINS:
        raise InvalidName(
            f"topic {text!r} has the unknown domain {domain!r}; it is one of {', '.join(DOMAINS)}"
        )
    parts = rest.split("/")
    if len(parts) > 3:
        raise InvalidName(
            f"topic {text!r} has too many '/': old names with a cluster in them "
            "(property/cluster/namespace/topic) are not supported, and a local name has no '/'; "
            "use tenant/namespace/topic"
        )
    if len(parts) != 3:
        raise InvalidName(
            f"{text!r} is not a topic name; it has the form {{persistent|non-persistent}}://"
            "tenant/namespace/topic, tenant/namespace/topic or topic"
        )
    namespace = NamespaceName(check_entity("tenant", parts[0]), check_entity("namespace", parts[1]))
    local_name = parts[2]
    if not local_name or local_name.isspace():
        raise InvalidName(f"topic {text!r} has an empty local name")
    full = f"{domain}://{namespace}/{local_name}"
    try:
        length = len(full.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"topic {text!r} is not valid Unicode text") from error
    if length > TOPIC_NAME_BYTES_MAX:
        raise InvalidName(f"the topic name has {length} bytes, at most {TOPIC_NAME_BYTES_MAX} are allowed")
    index, base = -1, local_name
    found = _PARTITION.fullmatch(local_name)
    if found is not None and int(found[2]) <= _PARTITION_INDEX_MAX and not found[1].isspace():
        index, base = int(found[2]), found[1]
    return TopicName(domain, namespace, local_name, full, index, base)


def is_system_topic(name: TopicName) -> bool:
    """Returns whether the name is reserved for the system: clients cannot create it, and lists hide it by
    default.

    The names are reserved whether this version uses them or not.
    """
    if name.namespace == SYSTEM_NAMESPACE:
        return True
    local = name.base_local_name
    if local in _RESERVED_LOCAL_NAMES or local.endswith(_PENDING_ACK_SUFFIX):
        return True
    return local == _HEARTBEAT and is_heartbeat_namespace(name.namespace)


def is_heartbeat_namespace(namespace: NamespaceName) -> bool:
    """Returns whether the namespace is named after a broker, for the topic of its health checks."""
    return (
        namespace.tenant == SYSTEM_NAMESPACE.tenant
        and _HEARTBEAT_NAMESPACE.fullmatch(namespace.namespace) is not None
    )


def is_heartbeat_topic(name: TopicName) -> bool:
    """Returns whether the topic is for a broker's health checks."""
    return name.local_name == _HEARTBEAT and is_heartbeat_namespace(name.namespace)
