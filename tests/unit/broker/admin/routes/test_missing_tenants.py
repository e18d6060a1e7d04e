"""Where a tenant is missing, some calls say so, and others that the namespace is, as in Pulsar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

TENANT_FIRST = [
    ("GET", "/namespaces/{}/properties"),
    ("PUT", "/namespaces/{}/properties"),
    ("DELETE", "/namespaces/{}/properties"),
    ("GET", "/namespaces/{}/property/a"),
    ("PUT", "/namespaces/{}/property/a/b"),
    ("DELETE", "/namespaces/{}/property/a"),
    ("POST", "/namespaces/{}/allowedClusters"),
    ("GET", "/persistent/{}/t/maxMessageSize"),
    ("POST", "/persistent/{}/t/maxMessageSize"),
    ("DELETE", "/non-persistent/{}/t/maxMessageSize"),
    ("GET", "/persistent/{}/t/permissions"),
    ("POST", "/persistent/{}/t/permissions/r"),
    ("DELETE", "/non-persistent/{}/t/permissions/r"),
    ("POST", "/schemas/{}/t/compatibility"),
    ("DELETE", "/schemas/{}/t/schema"),
]
BODIES = {"maxMessageSize": 1, "permissions/r": ["produce"], "compatibility": {"type": "STRING"}}
"""What is posted; a list elsewhere."""
NAMESPACE_FIRST = [
    ("GET", "/namespaces/{}"),
    ("GET", "/namespaces/{}/retention"),
    ("GET", "/namespaces/{}/permissions"),
    ("GET", "/persistent/{}"),
    ("GET", "/persistent/{}/t/partitions"),
    ("GET", "/persistent/{}/t/retention"),
]


@pytest.mark.parametrize(("method", "path"), TENANT_FIRST)
def test_a_tenant_that_is_missing_is_told_before_its_namespace(
    serving: Serving, method: str, path: str
) -> None:
    async def body(http: Http) -> None:
        body = {"POST": BODIES.get(path.rpartition("t/")[2], []), "PUT": {}}.get(method)
        assert await http.reason(404, method, path.format("nope/ns"), body) == "Tenant does not exist"
        assert (await http.reason(404, method, path.format("acme/nope"), body)).startswith("Namespace ")

    serving(body)


@pytest.mark.parametrize(("method", "path"), NAMESPACE_FIRST)
def test_other_calls_tell_the_namespace(serving: Serving, method: str, path: str) -> None:
    async def body(http: Http) -> None:
        for missing in ("nope/ns", "acme/nope"):
            assert (await http.reason(404, method, path.format(missing))).startswith("Namespace ")

    serving(body)
