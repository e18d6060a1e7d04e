"""Derives the target of an HTTP request from its path: the owner of a topic, or any broker."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import DOMAINS, PERSISTENT, TopicName

REDIRECTED: Final = ("admin", "lookup", "topics")
"""First path segments that brokers serve."""

_LISTS: Final = ("partitioned",)
"""Path segments in the place of a topic that are not topics."""


def topic_of(parts: list[str]) -> TopicName | None:
    """Return the topic in the path; None without one. Raises InvalidName.

    /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}...
    /admin/v2/{domain}/{tenant}/{namespace}/{topic}...
    /admin/v2/schemas/{tenant}/{namespace}/{topic}/...
    /admin/magnetar/v1/{domain}/{tenant}/{namespace}/{topic}...
    /topics/{domain}/{tenant}/{namespace}/{topic}...
    """
    match parts:
        case ["admin", "v2", "schemas", tenant, namespace, topic, _, *_]:
            return TopicName.of(PERSISTENT, NamespaceName(tenant, namespace), topic)
        case (
            ["lookup", "v2", "topic", domain, tenant, namespace, topic, *rest]
            | ["admin", "v2", domain, tenant, namespace, topic, *rest]
            | ["admin", "magnetar", "v1", domain, tenant, namespace, topic, *rest]
            | ["topics", domain, tenant, namespace, topic, *rest]
        ) if domain in DOMAINS and topic:
            if not rest and (topic in _LISTS or _is_bundle(topic)):
                return None
            return TopicName.of(domain, NamespaceName(tenant, namespace), topic)
    return None


def _is_bundle(text: str) -> bool:
    return text.startswith("0x") and "_0x" in text
