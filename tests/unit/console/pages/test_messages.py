"""Messages: searched while one watches, and dead letters published again once that is confirmed."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from magnetar.client import MessageId
from magnetar.console.message_reading import Filters, Found, Letter, MessageReading, ShownMessage

from tests.unit.console.pages.test_changes import TOPIC, orders
from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

DLQ = f"{TOPIC}-audit-DLQ"
DLQ_PATH = "/admin/v2/persistent/public/default/orders-audit-DLQ"


def _shown(text: str) -> ShownMessage:
    return ShownMessage(
        message_id="1:2",
        key=text,
        size=3,
        publish_time_ms=1,
        event_time_ms=1,
        deliver_at_ms=0,
        producer=text,
        sequence_id=4,
        schema_version="",
        properties=[(text, text)],
        headers=[(text, text)],
        origin=text,
        text=text,
        form="text",
        truncated=False,
    )


async def _events(browser: Browser, **query: str) -> list[dict[str, Any]]:
    url = f"{browser.url}/messages/search?{urlencode({'topic': TOPIC, **query})}"
    async with browser.session.get(url) as response:
        assert response.status == 200
        lines = (await response.read()).splitlines()
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line]


def test_a_search_tells_its_progress_and_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def search(self: MessageReading, token: str, topic: str, start: Any, **more: Any) -> Any:
        asked.append((topic, start, more["inclusive"], more["filters"], more["count"]))
        yield Found([], 5_000, "1:9")
        yield Found([_shown(HOSTILE)], 7_000, "2:3:-1:0")

    monkeypatch.setattr(MessageReading, "search", search)

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        first, second, last = await _events(browser, start="id", id="1:2", text="needle", count="9")
        assert (first["looked"], first["found"], first["html"]) == (5_000, 0, "")
        assert (second["looked"], second["found"], last) == (7_000, 1, {"done": True})
        assert active_parts(second["html"]) == []
        assert "&lt;script&gt;" in second["html"]
        assert "text=needle" in second["next"]
        assert asked == [(TOPIC, MessageId(1, 2), True, Filters(text="needle"), 9)]
        for query in ("start=latest", "start=id", "start=time&time=soon", "count=0"):
            page = await browser.get(f"/messages/search?{urlencode({'topic': TOPIC})}&{query}")
            assert page.status == 400, query

    on_stage(body, orders())


def test_a_search_ends_when_the_browser_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def search(self: MessageReading, *_: Any, **__: Any) -> Any:
        try:
            while True:
                yield Found([], 1, "1:1")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(MessageReading, "search", search)

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        async with browser.session.get(
            f"{browser.url}/messages/search?{urlencode({'topic': TOPIC})}"
        ) as response:
            await response.content.readuntil(b"\n\n")
        async with asyncio.timeout(10):
            await ended.wait()

    on_stage(body, orders())


def test_a_search_that_cannot_begin_says_why() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        (only,) = await _events(browser)
        assert only["done"]
        assert only["problem"]

    on_stage(body, orders())


def _letters() -> FakeAdmin:
    admin = orders()
    admin.answers["GET", f"{DLQ_PATH}/partitions"] = {"partitions": 0}
    admin.answers["GET", f"{DLQ_PATH}/stats"] = {"subscriptions": {}}
    return admin


def _letter(monkeypatch: pytest.MonkeyPatch, **properties: str) -> list[tuple[str, Letter]]:
    """Makes 1:2 a letter with these properties; returns what is published."""
    sent: list[tuple[str, Letter]] = []
    found = Letter(payload=b"body", key="k", properties=properties, ordering_key=b"o", event_time_ms=7)

    async def letter(self: MessageReading, token: str, topic: str, at: MessageId) -> Letter | None:
        return found if (topic, at) == (DLQ, MessageId(1, 2)) else None

    async def publish(self: MessageReading, token: str, topic: str, letter: Letter) -> str:
        sent.append((topic, letter))
        return "9:9"

    monkeypatch.setattr(MessageReading, "letter", letter)
    monkeypatch.setattr(MessageReading, "publish", publish)
    return sent


LETTER = {
    "REAL_TOPIC": TOPIC,
    "REAL_SUBSCRIPTION": "audit",
    "ORIGIN_MESSAGE_ID": "5:6:-1",
    "ORIGIN_MESSAGE_IDY_TIME": "5:6:-1",
    "RECONSUMETIMES": "3",
    "color": "red",
}


def test_a_dead_letter_is_published_to_its_origin_once_that_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = _letter(monkeypatch, **LETTER)

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/resend?{urlencode({'topic': DLQ, 'id': '1:2'})}")
        for text in (
            f"to {TOPIC} again?",
            "5:6:-1",
            "All 1 subscriptions",
            "not only audit",
            "RECONSUMETIMES",
        ):
            assert text in page.text, text
        assert sent == []
        fields = {"topic": DLQ, "id": "1:2", "origin": TOPIC}
        assert (await browser.post("/resend", fields)).status == 403
        wrong = {**fields, "origin": "persistent://a/b/c", "form_token": page.form_token}
        assert (await browser.post("/resend", wrong)).status == 400
        assert sent == []
        done = await browser.post("/resend", {**fields, "form_token": page.form_token})
        assert (done.status, "done=resend" in done.headers["Location"]) == (303, True)
        again = Letter(
            payload=b"body", key="k", properties={"color": "red"}, ordering_key=b"o", event_time_ms=7
        )
        assert sent == [(TOPIC, again)]

    on_stage(body, _letters())


@pytest.mark.parametrize(
    ("properties", "position", "status"),
    [
        ({}, "1:2", 400),
        ({"REAL_TOPIC": HOSTILE}, "1:2", 400),
        ({"REAL_TOPIC": DLQ}, "1:2", 400),
        ({"REAL_TOPIC": "persistent://public/default/gone"}, "1:2", 404),
        (LETTER, "1:3", 404),
        (LETTER, "soon", 400),
    ],
)
def test_what_is_no_letter_is_not_published(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], position: str, status: int
) -> None:
    sent = _letter(monkeypatch, **properties)

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/resend?{urlencode({'topic': DLQ, 'id': position})}")
        assert page.status == status
        assert active_parts(page.text) == []
        assert sent == []

    on_stage(body, _letters())
