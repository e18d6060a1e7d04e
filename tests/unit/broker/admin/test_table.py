"""Every route has its class of operations, and it is the one that Apache Pulsar 4.0 has for it.

RULES are the classes of the contract by path, written apart from the table: the first that matches counts.
"""

from __future__ import annotations

import re
from typing import Final
from unittest.mock import MagicMock

import pytest
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.table import routes
from magnetar.common.security.authorization.operations import Operation

_NS: Final = r"/admin/v2/namespaces/{tenant}/{namespace}"
_DOMAIN: Final = r"/admin/v2/(persistent|non-persistent)/{tenant}/{namespace}"
_TOPIC: Final = _DOMAIN + r"/{topic}"
_SCHEMAS: Final = r"/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP: Final = r"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_OWN: Final = r"/admin/magnetar/v1"

RULES: Final = (
    ("GET", r"/livez|/readyz|/health|/status\.html|/metrics/?|/openapi\.json|/docs", "open"),
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
    ("GET", _OWN + r"/{domain}/{tenant}/{namespace}/{topic}/compaction", "A"),
    ("GET", _OWN + r"/namespaces/{tenant}/{namespace}/topics/stats", "Ncp"),
    ("*", _OWN + r"/orphans", "S"),
)


def expected(route: Route) -> str | None:
    for methods, pattern, letter in RULES:
        if (methods == "*" or route.method in methods.split()) and re.fullmatch(pattern, route.path):
            return letter
    return None


@pytest.fixture(scope="module")
def table() -> list[Route]:
    return routes(MagicMock())


def test_every_route_has_the_class_of_the_contract(table: list[Route]) -> None:
    assert len(table) >= 500
    wrong = [
        (route.method, route.path, route.operation.letter, expected(route))
        for route in table
        if route.operation.letter != expected(route)
    ]
    assert wrong == []


def test_every_rule_has_a_route(table: list[Route]) -> None:
    for rule in RULES:
        methods, pattern, _ = rule
        assert any(
            (methods == "*" or route.method in methods.split()) and re.fullmatch(pattern, route.path)
            for route in table
        ), rule


def test_a_class_finds_what_it_decides_about_in_the_path(table: list[Route]) -> None:
    """Otherwise the check would fail at the first request."""
    for route in table:
        name = route.operation.name
        if name.startswith("TOPIC_"):
            assert "{topic}" in route.path, route.path
        elif name.startswith("NAMESPACE_") or route.operation is Operation.POLICY:
            assert "{namespace}" in route.path, route.path
        elif route.operation is Operation.TENANT_ADMIN and "{tenant}" not in route.path:
            in_query = {parameter.name for parameter in route.parameters} & {"tenant", "property"}
            assert route.names_in_body or in_query, route.path


def test_messages_are_shown_by_the_routes_that_say_so(table: list[Route]) -> None:
    shown = {route.path.rpartition("{topic}/")[2] for route in table if route.reads_messages}
    assert shown == {
        "subscription/{subscription}/position/{position}",
        "ledger/{ledger}/entry/{entry}",
        "examinemessage",
    }
