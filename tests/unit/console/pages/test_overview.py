"""The overview: what the brokers tell, and why something is missing."""

from __future__ import annotations

from typing import Any

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

V2 = "/admin/v2"
BROKERS = "/admin/magnetar/v1/brokers"
BOOKIES = "/admin/magnetar/v1/bookies"
STATES = ("up", "up", "down")


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
            ("GET", BROKERS): {"brokers": [{"brokerId": "a:1"}, {"brokerId": "b:1", "draining": True}]},
            ("GET", BOOKIES): {
                "bookies": [{"bookieId": f"bk{n}:3181", "state": state} for n, state in enumerate(STATES)],
                "underReplicated": 4,
            },
        }
    )


def test_the_overview_adds_up_namespaces_the_longest_backlog_first() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get("/")
        for text in (
            "5/s",
            "1.5 M",
            "4.0 KiB",
            "2 brokers, 3 bookies",
            "broker a:1: registered",
            "http://b:1",
        ):
            assert text in page.text, text
        assert page.text.index("acme/shop") < page.text.index("public/default</a>")
        part = await browser.get("/overview", {"HX-Request": "true"})
        assert "<html" not in part.text
        assert "1.5 M" in part.text

    on_stage(body, _cluster("acme/shop"))


def test_processes_are_shown_with_their_health_and_the_latencies_of_brokers() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        url = admin.url
        brokers = [{"brokerId": "a:1", "httpUrl": url}, {"brokerId": "b:1", "httpUrl": "http://127.0.0.1:1"}]
        admin.answers["GET", BROKERS] = {"brokers": brokers}
        admin.answers["GET", "/readyz"] = (503, "not ready: it is about to stop")
        admin.answers["GET", "/metrics"] = PAGE
        page = (await browser.get("/")).text
        assert "not ready: it is about to stop" in page
        assert "http://127.0.0.1:1/readyz does not answer" in page
        assert 'class="ill">bookie bk2:3181: down' in page
        assert "4 ledgers lack copies" in page
        assert "metadata store: answers" in page
        assert "Latency, publish" in page
        assert "since their start" in page
        assert "Bearer" not in str(admin.seen)

    on_stage(body, _cluster("acme/shop"))


PAGE = """# TYPE magnetar_publish_latency_seconds histogram
magnetar_publish_latency_seconds_bucket{cluster="c",le="0.001"} 50.0
magnetar_publish_latency_seconds_bucket{cluster="c",le="0.01"} 99.0
magnetar_publish_latency_seconds_bucket{cluster="c",le="+Inf"} 100.0
"""


def test_alerts_that_fire_are_told_by_a_prometheus() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        assert "No alert fires" in (await browser.get("/")).text
        alerts = [
            {
                "state": state,
                "labels": {"alertname": name, "severity": "critical"},
                "annotations": {"summary": HOSTILE},
            }
            for state, name in (("firing", "BrokerDown"), ("pending", "LaterMaybe"))
        ]
        admin.answers["GET", "/api/v1/alerts"] = {"status": "success", "data": {"alerts": alerts}}
        page = (await browser.get("/overview")).text
        assert "BrokerDown" in page
        assert "LaterMaybe" not in page
        assert active_parts(page) == []
        admin.answers["GET", "/api/v1/alerts"] = ["nonsense"]
        assert "not as a Prometheus does" in (await browser.get("/overview")).text
        admin.answers["GET", BROKERS] = (403, {"reason": "needs a super user"})
        assert "Prometheus" not in (await browser.get("/overview")).text, "alerts name topics of all tenants"

    admin = _cluster("acme/shop")
    admin.answers["GET", "/api/v1/alerts"] = {"status": "success", "data": {"alerts": []}}
    on_stage(body, admin, alerts=True)


def test_figures_that_the_visitor_may_not_see_are_missing_with_the_reason() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        refused = (403, {"reason": "needs a super user"})
        for path in (f"{V2}/broker-stats/metrics", f"{V2}/broker-stats/load-report", BROKERS, BOOKIES):
            admin.answers["GET", path] = refused
        page = await browser.get("/")
        assert page.status == 200
        assert page.text.count("needs a super user") == 1

    on_stage(body, _cluster("acme/shop"))


def test_names_of_namespaces_and_brokers_do_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        admin.answers["GET", BROKERS] = {"brokers": [{"brokerId": HOSTILE}]}
        admin.answers["GET", BOOKIES] = {"bookies": [{"bookieId": HOSTILE, "state": HOSTILE}]}
        page = await browser.get("/")
        assert active_parts(page.text) == []
        assert "&lt;script&gt;" in page.text

    on_stage(body, _cluster(HOSTILE))
