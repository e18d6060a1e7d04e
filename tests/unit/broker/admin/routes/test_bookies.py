"""Bookies and their racks over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from magnetar.common.metadata.values import BookieCookie, BookieRegistration, encode

from tests.unit.broker.admin.fake_broker import KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

RACKS = "/bookies/racks-info"
R1 = {"rack": "/r1", "hostname": "bk1"}


def test_every_bookie_is_listed_up_or_not(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask("/bookies/all") == {"bookies": []}
        await http.store.put(KEYS.cookie("bk2:3181"), encode(BookieCookie(bookie_id="bk2:3181")))
        await http.store.put(KEYS.bookie("bk1:3181"), encode(BookieRegistration(address="10.0.0.1:3181")))
        await http.store.put(KEYS.cookie("bk1:3181"), encode(BookieCookie(bookie_id="bk1:3181")))
        ids = [{"bookieId": "bk1:3181"}, {"bookieId": "bk2:3181"}]
        assert await http.ask("/bookies/all") == {"bookies": ids}

    serving(body)


def test_the_rack_of_a_bookie_is_said_changed_and_taken_back(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(RACKS) == {}
        one = f"{RACKS}/bk1:3181"
        reason = await http.reason(404, "GET", f"{RACKS}/nope:1")
        assert reason == "Bookie rack placement configuration not found: nope:1"
        assert await http.send("POST", f"{one}?group=default", R1) == (204, "")
        assert await http.ask(RACKS) == {"default": {"bk1:3181": R1}}
        assert await http.ask(one) == R1
        assert await http.send("POST", f"{one}?group=fast", {"rack": "/r2"}) == (204, "")
        assert await http.ask(RACKS) == {"fast": {"bk1:3181": {"rack": "/r2"}}}, "it is in one group"
        assert await http.send("DELETE", one) == (204, "")
        assert await http.ask(RACKS) == {}
        assert await http.reason(404, "DELETE", one) == "Bookie address not found: bk1:3181"

    serving(body)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("bk1:3181", R1, 412, "'group' parameters is missing"),
        ("bk1:3181?group=", R1, 412, "'group' parameters is missing"),
        ("bk1:3181?group=g", [], 400, "object"),
        ("bk1:3181?group=g", {"rack": ["/r"]}, 400, "rack must be a string"),
        ("bk1:3181?group=g", {"hostname": "h"}, 412, "rack name is invalid"),
        ("bk1:3181?group=g", {"rack": "/"}, 412, "rack name is invalid"),
        ("bk1:3181?group=g", {"rack": "r" * 2000}, 412, "at most"),
        ("bk%2F1?group=g", R1, 412, "not a valid bookie id"),
    ],
)
def test_invalid_bookie_rack_is_refused(
    serving: Serving, path: str, body: object, status: int, reason: str
) -> None:
    async def asked(http: Http) -> None:
        assert reason in await http.reason(status, "POST", f"{RACKS}/{path}", body)
        assert await http.ask(RACKS) == {}

    serving(asked)
