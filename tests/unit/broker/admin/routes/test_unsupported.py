"""Routes of unsupported features return empty lists or refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http


def test_there_are_no_resource_groups_and_none_can_be_made(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/resourcegroups"
        assert await http.ask(path) == []
        assert await http.reason(404, "GET", f"{path}/rg1") == "ResourceGroup does not exist"
        assert await http.reason(404, "DELETE", f"{path}/rg1") == "ResourceGroup does not exist"
        assert "not supported yet" in await http.reason(405, "PUT", f"{path}/rg1", {"publishRateInMsgs": 1})
        assert await http.ask(path) == []

    serving(body)


def test_a_namespace_is_in_no_resource_group(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/namespaces/acme/demo/resourcegroup"
        assert await http.send("GET", path) == (200, "")
        assert "limit namespaces and topics by" in await http.reason(405, "POST", f"{path}/rg1")
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/rg1")):
            await http.reason(404, method, f"/namespaces/acme/nope/resourcegroup{rest}")

    serving(body)


def test_unsupported_namespace_call_is_named(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert "no version" in await http.reason(405, "GET", "/namespaces/acme/demo/configversion")
        await http.reason(404, "GET", "/namespaces/acme/nope/configversion")

    serving(body)
