"""Offload runs by topic and by ledger, with the reason of what failed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

ROOT = "/admin/magnetar/v1"
TOPIC = "persistent://acme/shop/orders"
NAMESPACE = f"{ROOT}/namespaces/acme/shop/offload"
ONE = f"{ROOT}/persistent/acme/shop/orders/offload"


def _row(topic: str, error: str = "", **more: int) -> dict[str, Any]:
    counts = {"ledgers": 9, "waiting": 0, "running": 0, "failed": 0, "complete": 0, "unreadable": 0}
    return {"topic": topic, **counts, "offloadedBytes": 3 << 30, "lastCompleted": 0, "error": error, **more}


def _ledger(state: str, **more: Any) -> dict[str, Any]:
    figures = {
        "ledgerId": 77,
        "entries": 5,
        "bytes": 10,
        "closed": 1,
        "location": "",
        "wanted": 1,
        "begun": 0,
        "heard": 0,
        "completed": 0,
        "leftBookies": 0,
        "objectBytes": 0,
        "rows": 0,
        "failures": 0,
        "error": "",
    }
    return {**figures, "state": state, **more}


def _cluster(text: str = "no such bucket") -> FakeAdmin:
    topics = [_row("persistent://acme/shop/a", complete=9), _row(TOPIC, text, failed=2, running=1)]
    states = [
        _ledger("failed", error=text, failures=3, location=text),
        _ledger("running", ledgerId=78, begun=1_700_000_000_000),
        _ledger("none", ledgerId=79),
        _ledger("complete", ledgerId=80, leftBookies=5),
    ]
    answers: dict[tuple[str, str], Any] = {
        ("GET", NAMESPACE): {"topics": topics, "read": 700, "next": f"persistent://acme/shop/{text}"},
        ("GET", ONE): {**_row(TOPIC, text, failed=1), "states": states},
    }
    return FakeAdmin(answers)


def test_topics_where_a_job_failed_come_first_with_the_reason() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = (await browser.get("/offloads?namespace=acme/shop")).text
        assert "no such bucket" in page
        assert page.index(">orders</a>") < page.index(">a</a>")
        assert "Topics with closed ledgers that were read: 700." in page
        assert "after=persistent" in page
        assert "Choose a namespace" in (await browser.get("/offloads")).text

    on_stage(body, _cluster())


def test_the_ledgers_of_a_topic_have_their_states() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = (await browser.get(f"/topic/offload?{urlencode({'topic': TOPIC})}")).text
        for text in ("no such bucket (3 failures)", "heard of", "not offloaded", "complete, left bookies"):
            assert text in page, text
        assert "The first 4 of 9" in page

    on_stage(body, _cluster())


def test_reasons_and_locations_do_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for path in ("/offloads?namespace=acme/shop", f"/topic/offload?{urlencode({'topic': TOPIC})}"):
            page = await browser.get(path)
            assert page.status == 200
            assert active_parts(page.text) == []
            assert "&lt;script&gt;" in page.text
        assert (await browser.get(f"/offloads?{urlencode({'namespace': HOSTILE})}")).status == 400

    on_stage(body, _cluster(HOSTILE))
