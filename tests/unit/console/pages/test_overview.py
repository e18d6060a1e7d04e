"""The overview: what the brokers tell, and why something is missing."""

from __future__ import annotations

from typing import Any

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

V2 = "/admin/v2"


def _metrics(namespace: str, backlog: float) -> dict[str, Any]:
    metrics = {
        "brk_in_rate": 2.5,
        "brk_out_rate": 0.0,
        "brk_msg_backlog": backlog,
        "brk_storage_size": 2048.0,
    }
    return {"metrics": metrics, "dimensions": {"namespace": namespace}}


def _cluster(namespace: str) -> FakeAdmin:
    metrics = [
        {"metrics": {"brk_health": 1}, "dimensions": {}},
        {"metrics": {"brk_active_connections": 7}, "dimensions": {}},
        _metrics("public/default", 12.0),
        _metrics(namespace, 1_500_000.0),
    ]
    return FakeAdmin(
        {
            ("GET", f"{V2}/broker-stats/metrics"): metrics,
            ("GET", f"{V2}/broker-stats/load-report"): {"numTopics": 3, "webServiceUrl": "http://b:1"},
            ("GET", f"{V2}/brokers"): ["b:1", "a:1"],
            ("GET", f"{V2}/bookies/all"): {"bookies": [{}, {}, {}]},
        }
    )


def test_the_overview_adds_up_namespaces_the_longest_backlog_first() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get("/")
        for text in ("5/s", "1.5 M", "4.0 KiB", "2 brokers, 3 bookies", "a:1, b:1", "http://b:1"):
            assert text in page.text, text
        assert page.text.index("acme/shop") < page.text.index("public/default</a>")
        part = await browser.get("/overview", {"HX-Request": "true"})
        assert "<html" not in part.text
        assert "1.5 M" in part.text

    on_stage(body, _cluster("acme/shop"))


def test_figures_that_the_visitor_may_not_see_are_missing_with_the_reason() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        refused = (403, {"reason": "needs a super user"})
        for path in ("broker-stats/metrics", "broker-stats/load-report", "bookies/all"):
            admin.answers["GET", f"{V2}/{path}"] = refused
        page = await browser.get("/")
        assert page.status == 200
        assert page.text.count("needs a super user") == 1

    on_stage(body, _cluster("acme/shop"))


def test_names_of_namespaces_and_brokers_do_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        admin.answers["GET", f"{V2}/brokers"] = [HOSTILE, "b"]
        page = await browser.get("/")
        assert active_parts(page.text) == []
        assert "&lt;script&gt;" in page.text

    on_stage(body, _cluster(HOSTILE))
