"""Namespace isolation policies over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from magnetar.broker.admin.routes.clusters import isolation_policies

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ALL = "/clusters/standalone/namespaceIsolationPolicies"
ISO1: dict[str, Any] = {
    "namespaces": ["zzz/.*"],
    "primary": ["b1.*"],
    "secondary": ["b2.*"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}


def test_the_life_of_a_policy(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(ALL) == {}
        assert await http.send("POST", f"{ALL}/iso1", ISO1) == (204, "")
        assert await http.ask(ALL) == {"iso1": ISO1}
        changed = {**ISO1, "secondary": [], "unload_scope": "none"}
        assert await http.send("POST", f"{ALL}/iso1", changed) == (204, "")
        assert await http.ask(f"{ALL}/iso1") == changed
        assert await http.send("DELETE", f"{ALL}/iso1") == (204, "")
        assert "Cannot find" in await http.reason(404, "GET", f"{ALL}/iso1")
        assert "Cannot find" in await http.reason(404, "DELETE", f"{ALL}/iso1")

    serving(body)


def test_brokers_of_isolation_policies_are_shown(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("POST", f"{ALL}/iso1", ISO1) == (204, "")
        nothing = {"namespaceRegex": [], "primary": False}
        assert await http.ask(f"{ALL}/brokers") == [{"brokerName": "localhost:8080", **nothing}]
        own = {**ISO1, "primary": ["x"], "secondary": ["local.*", "y"]}
        assert await http.send("POST", f"{ALL}/iso2", own) == (204, "")
        said = {"policyName": "iso2", "namespaceRegex": ["zzz/.*"], "primary": False}
        assert await http.ask(f"{ALL}/brokers") == [{"brokerName": "localhost:8080", **said}]
        assert await http.ask(f"{ALL}/brokers/b1.example:8080") == {
            "brokerName": "b1.example:8080",
            "policyName": "iso1",
            "namespaceRegex": ["zzz/.*"],
            "primary": True,
        }
        assert await http.ask(f"{ALL}/brokers/nob1") == {"brokerName": "nob1", **nothing}
        assert await http.send("POST", f"{ALL}/iso2", {**own, "primary": ["c1"]}) == (204, "")
        said = {"policyName": "iso2", "namespaceRegex": ["zzz/.*"], "primary": True}
        assert await http.ask(f"{ALL}/brokers/c1:8080") == {"brokerName": "c1:8080", **said}, "by its host"

    serving(body)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"namespaces": []}, "each have at least one"),
        ({"primary": None}, "each have at least one"),
        ({"secondary": "b"}, "list of strings"),
        ({"auto_failover_policy": None}, "auto_failover_policy"),
        ({"auto_failover_policy": {"policy_type": "best"}}, "min_available"),
        ({"auto_failover_policy": {"policy_type": "min_available", "parameters": {}}}, "min_limit"),
        (
            {"auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "x"}}},
            "min_limit",
        ),
        ({"auto_failover_policy": {"policy_type": "min_available", "parameters": []}}, "min_limit"),
        ({"unload_scope": "some"}, "unload_scope"),
        ({"primary": ["(b"]}, "not a valid regular expression"),
        ({"primary": [f"b{n}" for n in range(101)]}, "at most 100"),
        ({"primary": ["b" * 513]}, "regular expressions"),
    ],
)
def test_invalid_policy_is_refused_with_the_reason(
    serving: Serving, change: dict[str, Any], reason: str
) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(400, "POST", f"{ALL}/iso1", {**ISO1, **change})
        assert await http.ask(ALL) == {}

    serving(body)


def test_policies_of_an_unknown_cluster_and_too_many_are_refused(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation_policies, "POLICIES_MAX", 1)

    async def body(http: Http) -> None:
        nowhere = "/clusters/c9/namespaceIsolationPolicies"
        assert await http.reason(404, "GET", nowhere) == "Cluster does not exist"
        for method, path in [
            ("GET", "/brokers"),
            ("GET", "/brokers/b"),
            ("GET", "/x"),
            ("POST", "/x"),
            ("DELETE", "/x"),
        ]:
            await http.reason(412, method, nowhere + path, ISO1 if method == "POST" else None)
        assert await http.send("POST", f"{ALL}/iso1", ISO1) == (204, "")
        assert "at most 1" in await http.reason(412, "POST", f"{ALL}/iso2", ISO1)
        assert await http.send("POST", f"{ALL}/iso1", ISO1) == (204, "")

    serving(body)


def test_a_regular_expression_cannot_stop_the_broker(serving: Serving) -> None:
    async def body(http: Http) -> None:
        hungry = {**ISO1, "primary": ["(a*)*(a*)*b"]}
        assert await http.send("POST", f"{ALL}/iso1", hungry) == (204, "")
        assert (await http.ask(f"{ALL}/brokers/{'a' * 3000}"))["primary"] is False

    serving(body)
