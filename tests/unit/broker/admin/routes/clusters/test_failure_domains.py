"""Failure domains over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ALL = "/clusters/standalone/failureDomains"


def test_the_life_of_a_failure_domain(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(ALL) == {}
        assert await http.send("POST", f"{ALL}/fd1", {"brokers": ["b1", "b2"]}) == (204, "")
        assert await http.send("POST", f"{ALL}/fd1", {"brokers": ["b1", "b2"]}) == (204, "")
        assert await http.ask(ALL) == {"fd1": {"brokers": ["b1", "b2"]}}
        assert await http.ask(f"{ALL}/fd1") == {"brokers": ["b1", "b2"]}
        assert await http.send("POST", f"{ALL}/fd1", {"brokers": ["b1"]}) == (204, "")
        assert await http.ask(f"{ALL}/fd1") == {"brokers": ["b1"]}
        assert await http.send("DELETE", f"{ALL}/fd1") == (200, "")
        assert "does not exist" in await http.reason(404, "GET", f"{ALL}/fd1")
        assert "does not exist" in await http.reason(404, "DELETE", f"{ALL}/fd1")

    serving(body)


def test_a_broker_is_in_one_domain_only(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("POST", f"{ALL}/fd1", {"brokers": ["b1"]}) == (204, "")
        reason = await http.reason(409, "POST", f"{ALL}/fd2", {"brokers": ["b0", "b1"]})
        assert reason == "b1 already exists in fd1"
        assert list(await http.ask(ALL)) == ["fd1"]

    serving(body)


def test_malformed_domain_or_unknown_cluster_is_refused(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert "object" in await http.reason(400, "POST", f"{ALL}/fd1", ["b1"])
        assert "brokers" in await http.reason(400, "POST", f"{ALL}/fd1", {"brokers": "b1"})
        nowhere = "/clusters/c9/failureDomains"
        for method, path in [
            ("GET", nowhere),
            ("GET", f"{nowhere}/x"),
            ("POST", f"{nowhere}/x"),
            ("DELETE", f"{nowhere}/x"),
        ]:
            reason = await http.reason(412, method, path, {"brokers": []} if method == "POST" else None)
            assert reason == "Cluster c9 does not exist."

    serving(body)
