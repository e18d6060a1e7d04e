"""Authorization over HTTP: statuses, reasons, and the order in which a request is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from magnetar.broker.admin.edge import server
from magnetar.broker.admin.edge.call import PRINCIPAL
from magnetar.common.metadata.values import Namespace, Policies, Tenant, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.security import audit as audit_module
from magnetar.common.security.audit import open_audit_file
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.principal import Principal

from tests.unit.broker.admin.conftest import Serving
from tests.unit.broker.admin.fake_broker import KEYS, Http

NS = "/admin/v2/namespaces/acme/demo"
TOPIC = "/admin/v2/persistent/acme/demo/orders"


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> dict[str, Principal | None]:
    """Stands for authentication: whose requests they are."""
    now: dict[str, Principal | None] = {"principal": None}
    served = server._whole

    @web.middleware
    async def authenticated(request: web.Request, handler: Any) -> web.StreamResponse:
        if now["principal"] is not None:
            request[PRINCIPAL] = now["principal"]
        return await served(request, handler)

    monkeypatch.setattr(server, "_whole", authenticated)
    return now


async def secure(http: Http) -> None:
    """Switch authorization on: `root` is a super user, `admin` has the tenant, `alice` may consume."""
    store = http.store
    await store.put(
        KEYS.tenant("acme"), encode(Tenant(admin_roles=["admin"], allowed_clusters=["standalone"]))
    )
    policies = Policies()
    policies.permissions["alice"].names[:] = ["consume"]
    key = KEYS.namespace(NamespaceName("acme", "demo"))
    await store.put(key, encode(Namespace(bundle_count=4, policies=policies)))
    config = AuthorizationConfig(enabled=True, super_user_roles=("root",))
    http.broker.authorizer = Authorizer(config, store, KEYS)


def test_a_refusal_has_the_status_of_its_class_and_names_the_right(
    serving: Serving, caller: dict[str, Principal | None]
) -> None:
    async def body(http: Http) -> None:
        await secure(http)
        for role, path, method, status, needs in (
            ("alice", "/admin/v2/tenants", "GET", 401, "super user"),
            ("admin", "/admin/v2/brokers", "GET", 401, "super user"),
            ("alice", "/admin/v2/namespaces/acme", "GET", 401, "admin of the tenant"),
            ("alice", f"{NS}/permissions", "GET", 403, "admin of the tenant"),
            ("alice", f"{NS}/retention", "GET", 403, "admin of the tenant"),
            ("bob", f"{NS}/topics", "GET", 403, "produce or consume"),
            ("bob", f"{TOPIC}/stats", "GET", 401, "produce or consume"),
            ("bob", f"{TOPIC}/subscriptions", "GET", 401, "consume"),
            ("alice", f"{TOPIC}/unload", "PUT", 401, "admin of the tenant"),
            ("alice", "/topics/persistent/acme/demo/orders", "POST", 401, "produce granted"),
        ):
            caller["principal"] = Principal(role)
            found, answer = await http.json(path, method)
            assert (path, found) == (path, status)
            assert needs in answer["reason"]
            assert role in answer["reason"]

    serving(body)


def test_who_has_the_right_passes(serving: Serving, caller: dict[str, Principal | None]) -> None:
    async def body(http: Http) -> None:
        await secure(http)
        for role, path in (
            ("root", "/admin/v2/tenants"),
            ("admin", "/admin/v2/namespaces/acme"),
            ("admin", f"{NS}/permissions"),
            ("alice", f"{NS}/topics"),
            ("bob", "/admin/v2/clusters"),
        ):
            caller["principal"] = Principal(role)
            assert (await http.get(path))[0] == 200, path

    serving(body)


def test_probes_need_no_role_and_everything_else_does(
    serving: Serving, caller: dict[str, Principal | None]
) -> None:
    async def body(http: Http) -> None:
        await secure(http)
        assert (await http.get("/health"))[0] == 200
        assert (await http.get("/livez"))[0] == 200
        assert (await http.get("/admin/v2/clusters"))[0] == 401

    serving(body)


def test_a_caller_without_rights_does_not_learn_what_exists(
    serving: Serving, caller: dict[str, Principal | None]
) -> None:
    async def body(http: Http) -> None:
        await secure(http)
        caller["principal"] = Principal("bob")
        for name in ("demo", "nothing"):
            path = f"/admin/v2/persistent/acme/{name}/x/stats"
            status, answer = await http.json(path)
            assert (status, answer["reason"].replace(name, "?")) == (
                401,
                "role 'bob' may not do this (topic_lookup) on persistent://acme/?/x: this needs produce or "
                "consume granted on the topic or its namespace",
            )
        assert await http.json("/admin/v2/namespaces/nope") == (404, {"reason": "Tenant does not exist"})

    serving(body)


def test_permissions_on_topics_need_every_tenant_of_the_body(
    serving: Serving, caller: dict[str, Principal | None]
) -> None:
    async def body(http: Http) -> None:
        await secure(http)
        path = "/admin/v2/namespaces/grantPermissionsOnTopics"
        for role, topic, status in (
            ("alice", "persistent://acme/demo/orders", 401),
            ("admin", "persistent://public/default/orders", 401),
            ("admin", "persistent://acme/demo/orders", 404),  # it may; there is no such topic
        ):
            caller["principal"] = Principal(role)
            options = [{"topic": topic, "role": "bob", "actions": ["consume"]}]
            found, answer = await http.json(path, "POST", options)
            assert (role, topic, found) == (role, topic, status), answer

    serving(body)


def test_changes_and_shown_messages_are_in_the_audit_log(
    serving: Serving,
    caller: dict[str, Principal | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_module, "_bounds", {})
    file = tmp_path / "audit.log"
    open_audit_file(str(file))

    async def body(http: Http) -> None:
        await secure(http)
        caller["principal"] = Principal("admin", method="token", address="10.0.0.9:1")
        await http.json(f"{NS}/permissions/carol", "POST", ["consume"])
        await http.get(f"{NS}/permissions")
        caller["principal"] = Principal("bob")
        await http.get(f"{TOPIC}/examinemessage")

    try:
        serving(body)
    finally:
        open_audit_file("")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["event"], each["principal"], each.get("status")) for each in events] == [
        ("permissions changed", "admin", None),
        ("admin call", "admin", 204),
        ("authorization refused", "bob", None),
        ("messages read", "bob", 401),
    ]
    assert (events[0]["old"], events[0]["new"]) == ({}, {"carol": ["consume"]})
    assert events[1]["address"] == "10.0.0.9:1"
