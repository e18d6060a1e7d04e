"""Paths of the admin API, percent-encoded: names may hold any character."""

from __future__ import annotations

from urllib.parse import quote

from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

V2 = "/admin/v2"
MAGNETAR = "/admin/magnetar/v1"


def segment(text: str) -> str:
    """Return a name as one segment of a path."""
    return quote(text, safe="")


def tenant_path(tenant: str) -> str:
    return f"{V2}/tenants/{segment(tenant)}"


def namespaces_path(tenant: str) -> str:
    """Path of the namespaces of a tenant."""
    return f"{V2}/namespaces/{segment(tenant)}"


def namespace_path(name: NamespaceName, root: str = V2) -> str:
    return f"{root}/namespaces/{segment(name.tenant)}/{segment(name.namespace)}"


def topic_path(name: TopicName, root: str = V2) -> str:
    namespace = name.namespace
    parts = (name.domain, namespace.tenant, namespace.namespace, name.local_name)
    return f"{root}/{'/'.join(map(segment, parts))}"


def schemas_path(name: TopicName) -> str:
    namespace = name.namespace
    parts = (namespace.tenant, namespace.namespace, name.base.local_name)
    return f"{V2}/schemas/{'/'.join(map(segment, parts))}"


def subscription_path(topic: TopicName, subscription: str, root: str = V2) -> str:
    """Path of a subscription; the API requires its name to be encoded twice."""
    return f"{topic_path(topic, root)}/subscription/{segment(segment(subscription))}"
