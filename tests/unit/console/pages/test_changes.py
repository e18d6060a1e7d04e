"""Changes ask first, and then make the call of the admin API that was named."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from magnetar.console.errors import BadRequest
from magnetar.console.pages.changes import position_of, time_ms_of

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

TOPIC = "persistent://public/default/orders"
PATH = "/admin/v2/persistent/public/default/orders"
SUB = f"{PATH}/subscription/audit"
INTERNAL = {
    "ledgers": [{"ledgerId": 3, "entries": 100, "size": 1000}, {"ledgerId": 8, "entries": 0, "size": 0}],
    "currentLedgerEntries": 20,
    "currentLedgerSize": 200,
    "cursors": {"audit": {"markDeletePosition": "8:9"}},
}


def orders(name: str = "audit", consumers: int = 0) -> FakeAdmin:
    stats = {
        "storageSize": 1200,
        "subscriptions": {name: {"msgBacklog": 10, "backlogSize": 2048, "consumers": [{}] * consumers}},
    }
    answers: dict[tuple[str, str], Any] = {
        ("GET", f"{PATH}/partitions"): {"partitions": 0},
        ("GET", f"{PATH}/stats"): stats,
        ("GET", f"{PATH}/internalStats"): INTERNAL,
        ("GET", f"{PATH}/messageid/1700000000000"): {"ledgerId": 3, "entryId": 95},
    }
    return FakeAdmin(answers)


SKIP = {"kind": "skip", "topic": TOPIC, "name": "audit", "count": "4"}
CHANGES = [
    (SKIP, ("POST", f"{SUB}/skip/4", None), "the first 4 are never delivered to this subscription; 6 remain"),
    ({**SKIP, "kind": "clear"}, ("POST", f"{SUB}/skip_all", None), "All 10 entries that wait (2.0 KiB)"),
    (
        {**SKIP, "kind": "reset-time", "time": "2023-11-14T22:13:20"},
        ("POST", f"{SUB}/resetcursor/1700000000000", None),
        "Then 25 entries wait, now 10: about 15 entries are delivered again.",
    ),
    (
        {**SKIP, "kind": "reset-id", "id": "8:15", "excluded": "true"},
        (
            "POST",
            f"{SUB}/resetcursor",
            {"ledgerId": 8, "entryId": 15, "partitionIndex": -1, "batchIndex": -1, "excluded": True},
        ),
        "Then 4 entries wait, now 10: about 6 entries are never delivered.",
    ),
    ({**SKIP, "kind": "delete-subscription"}, ("DELETE", SUB, None), "its backlog of 10 entries, are gone"),
    (
        {"kind": "create-subscription", "topic": TOPIC, "name": "new/one", "start": "earliest"},
        ("PUT", f"{PATH}/subscription/new%252Fone", "earliest"),
        "all messages that are stored wait for it",
    ),
    ({"kind": "unload", "topic": TOPIC}, ("PUT", f"{PATH}/unload", None), "No message is lost"),
    ({"kind": "delete-topic", "topic": TOPIC}, ("DELETE", f"{PATH}?force=true", None), "1.2 KiB of messages"),
]


@pytest.mark.parametrize(("fields", "call", "told"), CHANGES, ids=[each[0]["kind"] for each in CHANGES])
def test_a_change_is_named_and_made_only_when_it_was_confirmed(
    fields: dict[str, str], call: tuple[str, str, Any], told: str
) -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/change?{urlencode(fields)}")
        assert (page.status, told in page.text) == (200, True), page.text
        assert admin.asked == []
        assert (await browser.post("/change", fields)).status == 403
        assert admin.asked == []
        method, path, _ = call
        admin.answers[method, path.partition("?")[0]] = (204, None)
        done = await browser.post("/change", {**fields, "form_token": page.form_token})
        assert done.status == 303, done.text
        assert admin.asked == [call]
        assert done.headers["Location"].endswith(f"done={fields['kind']}")

    on_stage(body, orders())


def test_consumers_are_counted_and_a_subscription_with_them_is_deleted_by_force() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/change?{urlencode({**SKIP, 'kind': 'delete-subscription'})}")
        assert "2 consumers are disconnected" in page.text
        admin.answers["DELETE", SUB] = (204, None)
        await browser.post("/change", {**SKIP, "kind": "delete-subscription", "form_token": page.form_token})
        assert admin.asked == [("DELETE", f"{SUB}?force=true", None)]

    on_stage(body, orders(consumers=2))


def test_a_refused_change_says_why() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        token = (await browser.get(f"/change?{urlencode(SKIP)}")).form_token
        admin.answers["POST", f"{SUB}/skip/4"] = (403, {"reason": "role bob may not consume"})
        page = await browser.post("/change", {**SKIP, "form_token": token})
        assert (page.status, "role bob may not consume" in page.text) == (403, True)

    on_stage(body, orders())


def test_what_is_no_change_is_refused() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for fields in (
            {**SKIP, "kind": "explode"},
            {**SKIP, "count": "-1"},
            {**SKIP, "count": "many"},
            {**SKIP, "topic": "a://b"},
            {**SKIP, "kind": "reset-time", "time": "soon"},
            {**SKIP, "kind": "reset-id", "id": "soon"},
            {"kind": "create-subscription", "topic": TOPIC, "name": "x", "start": "middle"},
        ):
            assert (await browser.get(f"/change?{urlencode(fields)}")).status == 400, fields
        assert (await browser.get(f"/change?{urlencode({**SKIP, 'name': 'other'})}")).status == 404

    on_stage(body, orders())


def test_a_subscription_with_a_hostile_name_is_changed_and_does_nothing_else() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        fields = {**SKIP, "name": HOSTILE, "extra": HOSTILE}
        page = await browser.get(f"/change?{urlencode(fields)}")
        assert active_parts(page.text) == []
        assert "<script>alert" not in page.text
        path = f"{PATH}/subscription/{quote(quote(HOSTILE, safe=''), safe='')}/skip/4"
        admin.answers["POST", path] = (204, None)
        done = await browser.post("/change", {**fields, "form_token": page.form_token})
        assert (done.status, admin.asked) == (303, [("POST", path, None)])

    on_stage(body, orders(HOSTILE))


@pytest.mark.parametrize(("text", "position"), [("12:3", (12, 3)), (" 12:3:-1:0 ", (12, 3)), ("0:0", (0, 0))])
def test_message_ids_are_read_as_pages_show_them(text: str, position: tuple[int, int]) -> None:
    assert position_of(text) == position


@pytest.mark.parametrize("text", ["", "12", "12:", "a:b", "1:-1", "9" * 30 + ":1", "1:2:x"])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not a message id"):
        position_of(text)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T22:13", 1_699_999_980_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("1700000000000", 1_700_000_000_000),
        ("1969-01-01", 0),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, time_ms: int) -> None:
    assert time_ms_of(text) == time_ms
