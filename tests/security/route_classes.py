"""Classes of the routes of the admin API, by path, and the roles that each class admits.

They are the contract's, written apart from the code's own table: the first rule that matches counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

_NS: Final = r"/admin/v2/namespaces/{tenant}/{namespace}"
_DOMAIN: Final = r"/admin/v2/(persistent|non-persistent)/{tenant}/{namespace}"
_TOPIC: Final = _DOMAIN + r"/{topic}"
_SCHEMAS: Final = r"/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP: Final = r"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_OWN: Final = r"/admin/magnetar/v1"

RULES: Final = (
    ("GET", r"/livez|/readyz|/health|/status\.html|/metrics/?|/openapi\.json|/docs|/", "open"),
    ("GET", r"/admin/v2/clusters|/admin/v2/brokers/(ready|version)", "any"),
    ("*", r"/admin/v2/(clusters|brokers|broker-stats|bookies|resource-quotas|resourcegroups)(/.*)?", "S"),
    ("GET", r"/admin/v2/tenants", "S"),
    ("GET", r"/admin/v2/tenants/{tenant}", "T"),
    ("*", r"/admin/v2/tenants/{tenant}", "S"),
    ("POST", r"/admin/v2/namespaces/(grant|revoke)PermissionsOnTopics", "T"),
    ("GET", r"/admin(/v2)?/namespaces/{cluster}/antiAffinity/{group}", "T"),
    ("GET", r"/admin/v2/namespaces/{tenant}", "T"),
    ("PUT DELETE", _NS, "T"),
    ("GET", _NS, "P"),
    ("*", _NS + r"/permissions(/.*)?", "N"),
    ("DELETE", _NS + r"/{bundle}", "N"),
    ("GET", _NS + r"/(topics|bundles)", "Ncp"),
    ("*", _NS + r"/(unload|{bundle}/(unload|split|merge)|persistence/bookieAffinity|migration)", "S"),
    ("*", _NS + r"/({bundle}/)?(clearBacklog|unsubscribe)(/.*)?", "Nc"),
    ("*", _NS + r"/propert(y|ies)(/.*)?", "T"),
    ("*", _NS + r"/.+", "P"),
    ("GET", _DOMAIN + r"(/partitioned|/{bundle})?", "Ncp"),
    ("*", _TOPIC + r"/permissions(/.*)?", "T"),
    ("PUT DELETE", _TOPIC + r"(/partitions)?", "N"),
    ("POST", _TOPIC + r"/createMissedPartitions", "N"),
    ("POST", _TOPIC + r"/partitions", "P"),
    ("GET", _TOPIC + r"/(partitions|stats|internalStats|internal-info|properties)", "L"),
    ("GET", _TOPIC + r"/partitioned-(stats|internalStats)", "L"),
    ("PUT DELETE", _TOPIC + r"/properties", "A"),
    ("*", _TOPIC + r"/(unload|terminate(/partitions)?|compaction|offload|trim)", "A"),
    ("*", _TOPIC + r"/(truncate|maxMessageSize)", "T"),
    ("*", _TOPIC + r"/(subscriptions|subscription/.*|all_subscription/.*|backlog|backlogSize)", "C"),
    ("*", _TOPIC + r"/(examinemessage|ledger/.*|messageid/.*|lastMessageId)", "C"),
    ("*", _TOPIC + r"/.+", "P"),
    ("GET", _SCHEMAS + r"/(schema|schema/{version}|schemas|metadata)", "L"),
    ("POST", _SCHEMAS + r"/version", "L"),
    ("POST", _SCHEMAS + r"/schema", "produce"),
    ("DELETE", _SCHEMAS + r"/schema", "T"),
    ("POST", _SCHEMAS + r"/compatibility", "T"),
    ("GET", _LOOKUP, "L"),
    ("GET", _LOOKUP + r"/bundle", "Ncp"),
    ("POST", r"/topics/.*", "produce"),
    ("*", r"/admin/v3/transactions/.*{topic}.*", "L"),
    ("*", r"/admin/v3/transactions/.*", "S"),
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}/clients", "L"),
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}/(compaction|offload)", "A"),
    ("GET", _OWN + r"/namespaces/{tenant}/{namespace}/offload", "P"),
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}/explain", "C"),
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}(/storage|/publishes|/clients)?/explain", "L"),
    ("GET", _OWN + r"/connections/explain", "S"),
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}/policies/explain", "P"),
    ("GET", _OWN + r"/namespaces/{tenant}/{namespace}/topics/stats", "Ncp"),
    ("GET", _OWN + r"/namespaces/{tenant}/{namespace}/top", "Ncp"),
    ("GET", _OWN + r"/brokers/tasks", "S"),
    ("GET", _OWN + r"/namespaces/{tenant}/{namespace}/{bundle}/explain", "S"),
    ("GET", _OWN + r"/(ledgers/{ledger}|bookies/{bookie})/explain", "S"),
    ("GET", _OWN + r"/broker-stats/top", "S"),
    ("*", _OWN + r"/orphans", "S"),
    ("GET", _OWN + r"/brokers|" + _OWN + r"/bookies(/ledgers)?", "S"),
)
"""(methods, pattern of the path, class)"""

_ADMINS: Final = {"admin", "root"}
_CONSUMERS: Final = _ADMINS | {"consumer"}
_USERS: Final = _CONSUMERS | {"producer"}
_ANY: Final = _USERS | {"anonymous", "unknown", "stranger"}

ADMITTED: Final[Mapping[str, Collection[str]]] = {
    "open": _ANY,
    "any": _ANY,
    "S": {"root"},
    "T": _ADMINS,
    "N": _ADMINS,
    "Nc": _CONSUMERS,
    "Ncp": _USERS,
    "P": _ADMINS,
    "C": _CONSUMERS,
    "L": _USERS,
    "A": _ADMINS,
    "produce": _ADMINS | {"producer"},
}
"""Roles by class: root is a super user, admin has the tenant, stranger another one; consumer and producer are
granted these actions on the namespace; anonymous and unknown are granted nothing.
"""

REFUSED: Final = {
    "any": 401,
    "S": 401,
    "T": 401,
    "N": 403,
    "Nc": 403,
    "Ncp": 403,
    "P": 403,
    "C": 401,
    "L": 401,
    "A": 401,
    "produce": 401,
}
"""The status of a refusal, by class."""


def class_of(method: str, path: str) -> str | None:
    """Return the class of a route; None when no rule is for it."""
    for methods, pattern, letter in RULES:
        if (methods == "*" or method in methods.split()) and re.fullmatch(pattern, path):
            return letter
    return None
