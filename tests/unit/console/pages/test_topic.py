"""The pages of a topic and of a subscription, with figures, parts that come later, and hostile names."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from tests.unit.console.pages.test_changes import INTERNAL, PATH, TOPIC
from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

SCHEMAS = "/admin/v2/schemas/public/default/orders/schemas"
QUERY = urlencode({"topic": TOPIC})
OWN = PATH.replace("/admin/v2", "/admin/magnetar/v1")


def _policy(name: str, level: str = "broker", value: object = None) -> dict[str, Any]:
    return {"name": name, "level": level, "value": value, "withoutTopic": None, "withoutNamespace": "else"}


def busy(text: str = "plain") -> FakeAdmin:
    """A topic whose names are all this text."""
    consumer = {"consumerName": text, "address": f"/{text}", "availablePermits": 990, "unackedMessages": 17}
    subscription = {
        "type": "Shared",
        "msgBacklog": 4321,
        "unackedMessages": 17,
        "consumers": [consumer],
        "whyNotDispatching": f"why {text}",
        "earliestMsgPublishTimeInBacklog": 1,
    }
    stats = {
        "msgRateIn": 5.0,
        "msgInCounter": 7,
        "msgOutCounter": 3,
        "storageSize": 3 << 20,
        "publishers": [{"producerName": text, "address": "/10.0.0.7:4711", "clientVersion": text}],
        "subscriptions": {text: subscription},
    }
    internal = {
        **INTERNAL,
        "cursors": {text: {"markDeletePosition": "8:9", "individuallyDeletedMessages": text}},
    }
    reason = {
        "code": "no_permits",
        "text": f"because {text}",
        "next": f"do {text}",
        "stops": True,
        "since": "2026-01-01T00:00:00.000Z",
        "data": {"consumer": text, text: 7},
    }
    kept = {
        "ledgerId": 3,
        "bytes": 1000,
        "copies": ["bookies"],
        "code": "retention",
        "text": text,
        "next": text,
    }
    schemas = [
        {"version": 0, "type": "JSON", "timestamp": 1, "data": '{"fields": []}'},
        {"version": 1, "type": "JSON", "timestamp": 2, "data": json.dumps({"fields": [text]})},
    ]
    answers: dict[tuple[str, str], Any] = {
        ("GET", f"{PATH}/partitions"): {"partitions": 0},
        ("GET", f"{PATH}/stats"): stats,
        ("GET", f"{PATH}/internalStats"): internal,
        ("GET", f"{OWN}/policies/explain"): {
            "policies": [_policy("retention", "namespace", text), _policy(text)]
        },
        ("GET", f"{OWN}/storage/explain"): {"bytesByCode": {"retention": 1000, text: 5}, "ledgers": [kept]},
        ("GET", f"{OWN}/clients/explain"): {"reasons": [reason], "partitions": {"p": {"reasons": [reason]}}},
        ("GET", f"{OWN}/explain"): {"bundle": text, "broker": text, "reasons": [reason], "moves": [reason]},
        ("GET", f"{OWN}/subscription/{quote(quote(text, safe=''), safe='')}/explain"): {
            "topic": TOPIC,
            "moves": False,
            "reasons": [reason, {**reason, "stops": False}],
            "backlog": 5,
        },
        ("GET", SCHEMAS): {"getSchemaResponses": schemas},
    }
    return FakeAdmin(answers)


def test_a_topic_shows_its_clients_and_why_nothing_is_dispatched() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/topic?{QUERY}")
        assert page.status == 200
        for text in ("10.0.0.7:4711", "4,321", "why plain", "3.0 MiB", "Shared"):
            assert text in page.text, text
        one = await browser.get(f"/subscription?{urlencode({'topic': TOPIC, 'name': 'plain'})}")
        for text in ("990", "17", "8:9", "no_permits", "because plain", "do plain", "in part", "plain 7"):
            assert text in one.text, text

    on_stage(body, busy())


def test_parts_that_come_later_are_policies_schemas_and_ledgers() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        policies = (await browser.get(f"/topic/policies?{QUERY}")).text
        assert policies.index("retention") < policies.index(">plain<"), "the broker's own come last"
        assert "&#34;else&#34;" in policies
        ended = (await browser.get(f"/topic/ended?{QUERY}")).text
        assert ended.count("because plain") == 2, "those of the topic and of its partition"
        place = (await browser.get(f"/topic/place?{QUERY}")).text
        assert "because plain" in place
        schemas = (await browser.get(f"/topic/schemas?{QUERY}")).text
        assert schemas.index("Version 1") < schemas.index("Version 0")
        assert "+    &#34;plain&#34;" in schemas
        ledgers = (await browser.get(f"/topic/ledgers?{QUERY}")).text
        assert "100 entries" in ledgers
        assert "20 entries" in ledgers
        assert "retention: 1000 B" in ledgers
        for name in ("policies/explain", "storage/explain", "clients/explain", "explain"):
            admin.answers["GET", f"{OWN}/{name}"] = (403, {"reason": "needs an administrator"})
        for path in ("policies", "place", "ended", "ledgers"):
            assert "needs an administrator" in (await browser.get(f"/topic/{path}?{QUERY}")).text

    on_stage(body, busy())


PAGES = [
    "topic",
    "topic/clients",
    "topic/ended",
    "topic/policies",
    "topic/schemas",
    "topic/ledgers",
    "topic/place",
    "subscription",
    "subscription/explain",
    "change",
    "publish",
]


def test_names_and_texts_of_clients_do_nothing() -> None:
    fields = {"topic": TOPIC, "name": HOSTILE, "kind": "clear", "done": HOSTILE, "payload": HOSTILE}

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for path in PAGES:
            page = await browser.get(f"/{path}?{urlencode(fields)}")
            assert page.status == 200, page.text
            assert active_parts(page.text) == [], path
            assert "<script>alert" not in page.text

    on_stage(body, busy(HOSTILE))


def test_partitions_that_stand_still_are_explained_first() -> None:
    reason = {
        "code": "no_consumer",
        "text": "none",
        "next": "connect",
        "stops": True,
        "since": None,
        "data": {},
    }

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        path = f"{OWN}/subscription/plain/explain"
        admin.answers["GET", path] = {
            "partitions": {
                f"{TOPIC}-partition-0": {"moves": True, "reasons": [], "backlog": 50},
                f"{TOPIC}-partition-1": {"moves": False, "reasons": [reason], "backlog": 1},
            }
        }
        query = urlencode({"topic": TOPIC, "name": "plain"})
        page = (await browser.get(f"/subscription/explain?{query}", {"HX-Request": "true"})).text
        assert page.index("partition-1</a>") < page.index("partition-0</a>")
        admin.answers["GET", path] = (403, {"reason": "may not consume"})
        assert "may not consume" in (await browser.get(f"/subscription?{query}")).text

    on_stage(body, busy())


def test_a_partitioned_topic_shows_its_partitions() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        admin.answers["GET", f"{PATH}/partitions"] = {"partitions": 3}
        stats = admin.answers["GET", f"{PATH}/stats"]
        admin.answers["GET", f"{PATH}/partitioned-stats"] = {**stats, "partitions": {}}
        del admin.answers["GET", f"{PATH}/stats"]
        for path in ("topic", "messages"):
            assert "orders-partition-2" in (await browser.get(f"/{path}?{QUERY}")).text

    on_stage(body, busy())


def test_live_figures_come_as_events_with_the_reason_when_there_are_none() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        async with browser.session.get(f"{browser.url}/topic/live?{QUERY}") as response:
            assert response.content_type == "text/event-stream"
            event = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
            assert (event["in"], event["out"], event["backlog"]) == (7, 3, 4321)
        admin.answers.clear()
        async with browser.session.get(f"{browser.url}/topic/live?{QUERY}") as response:
            event = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
            assert "/partitions" in event["problem"]

    on_stage(body, busy())


def test_a_topic_or_subscription_that_does_not_exist_is_not_found() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        missing = urlencode({"topic": "persistent://public/default/nosuch"})
        assert (await browser.get(f"/topic?{missing}")).status == 404
        assert (await browser.get(f"/messages?{missing}")).status == 404
        assert (await browser.get(f"/subscription?{QUERY}&name=nosuch")).status == 404
        assert (await browser.get("/topic?topic=a://b/c/d")).status == 400
        assert (await browser.get("/topic")).status == 400

    on_stage(body, busy())
