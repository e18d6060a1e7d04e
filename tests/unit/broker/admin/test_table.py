"""Every route has its class of operations, and it is the one that Apache Pulsar 4.0 has for it."""

from __future__ import annotations

import re
from unittest.mock import MagicMock

import pytest
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.table import routes
from magnetar.common.security.authorization.operations import Operation

from tests.security.route_classes import ADMITTED, REFUSED, RULES, class_of


@pytest.fixture(scope="module")
def table() -> list[Route]:
    return routes(MagicMock())


def test_every_route_has_the_class_of_the_contract(table: list[Route]) -> None:
    assert len(table) >= 500
    wrong = [
        (route.method, route.path, route.operation.letter, class_of(route.method, route.path))
        for route in table
        if route.operation.letter != class_of(route.method, route.path)
    ]
    assert wrong == []


def test_every_class_admits_somebody_and_has_the_status_of_its_refusals() -> None:
    assert {each.letter for each in Operation} == set(ADMITTED) == set(REFUSED) | {"open"}
    assert {each.letter: each.status for each in Operation if each is not Operation.OPEN} == REFUSED


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


def test_a_route_that_looks_for_a_tenant_says_that_there_may_be_none(table: list[Route]) -> None:
    """With authorization on, the check of the right is what finds none."""
    for route in table:
        if route.operation.letter not in ("open", "any", "S") and not route.names_in_body:
            assert route.errors.keys() >= {404, 412}, f"{route.method} {route.path}"
