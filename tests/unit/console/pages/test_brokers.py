"""Brokers and bundles as a map, and the move of a bundle, which asks first."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from magnetar.console.pages.brokers import share_of_ring
from magnetar.console.pages.bundle_map import level_of

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

BROKERS = "/admin/magnetar/v1/brokers"
RANGE = "0x00000000_0x40000000"
NS = "/admin/v2/namespaces/acme/shop"


def _bundle(namespace: str = "acme/shop", bundle: str = RANGE, rate: float | None = 40.0) -> dict[str, Any]:
    known = rate is not None
    return {
        "namespace": namespace,
        "bundle": bundle,
        "since": 1_700_000_000_000,
        "msgRateIn": rate,
        "msgRateOut": rate,
        "topics": 12 if known else None,
        "producers": 3 if known else None,
        "consumers": 4 if known else None,
    }


def _cluster(*more: dict[str, Any], broker: str = "b1:8080", only: bool = False) -> FakeAdmin:
    first = {
        "brokerId": broker,
        "leader": True,
        "loadAgeMs": 2000,
        "cpuPercent": 55.5,
        "memoryBytes": 1 << 30,
        "memoryBytesMax": 4 << 30,
        "msgRateIn": 40.0,
        "topics": 12,
        "bundleCount": 300,
        "bundles": [_bundle(), *more],
    }
    others = [
        {"brokerId": "b2:8080", "leader": False, "loadAgeMs": None, "bundleCount": 0, "bundles": []},
        {"brokerId": "b3:8080", "draining": True, "loadAgeMs": 1, "bundleCount": 0, "bundles": []},
    ]
    return FakeAdmin({("GET", BROKERS): {"brokers": [first] if only else [first, *others]}})


def test_the_map_shows_brokers_with_load_and_their_bundles() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = (await browser.get("/brokers")).text
        for text in ("% of a core", "1.0 GiB", "leader", "draining", "2 s ago"):
            assert text in page, text
        assert "no load yet" in page
        assert 'class="load4"' in page
        assert "load not told" in page
        assert "The 2 busiest of 300." in page
        one = (await browser.get("/brokers/map?namespace=acme/shop", {"HX-Request": "true"})).text
        assert "<html" not in one
        assert "acme/other" not in one
        assert "No bundle of acme/shop." in one

    on_stage(body, _cluster(_bundle("acme/other", rate=None)))


def _fields(**more: str) -> dict[str, str]:
    return {"kind": "move-bundle", "namespace": "acme/shop", "bundle": RANGE, **more}


MOVES = [
    ({}, "", ["Unload bundle", "Broker b1:8080 has it; the leader chooses who gets it"]),
    (
        {"destination": "b2:8080"},
        "?destinationBroker=b2%3A8080",
        ["to b2:8080?", "b2:8080 gets it", "3 producers and 4 consumers of 12 topics"],
    ),
]


@pytest.mark.parametrize(("more", "query", "texts"), MOVES, ids=["leader's choice", "destination"])
def test_a_bundle_is_moved_once_that_is_confirmed(more: dict[str, str], query: str, texts: list[str]) -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        one = (await browser.get(f"/bundle?{urlencode(_fields())}")).text
        assert "<option>b2:8080</option>" in one
        assert "<option>b3:8080</option>" not in one, "it is draining"
        assert "25% " in one.replace("%<", "% <")
        page = await browser.get(f"/change?{urlencode(_fields(**more))}")
        for text in texts:
            assert text in page.text, text
        assert admin.asked == []
        path = f"{NS}/{RANGE}/unload"
        admin.answers["PUT", path] = (204, None)
        done = await browser.post("/change", {**_fields(**more), "form_token": page.form_token})
        assert (done.status, admin.asked) == (303, [("PUT", f"{path}{query}", None)])
        assert "unloaded" in (await browser.get(done.headers["Location"])).text

    on_stage(body, _cluster())


def test_a_bundle_goes_only_to_another_broker_that_takes_it() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for destination, why in (("b9:1", "not a broker"), ("b1:8080", "already"), ("b3:8080", "draining")):
            page = await browser.get(f"/change?{urlencode(_fields(destination=destination))}")
            assert (page.status, why in page.text) == (400, True), destination
        unowned = {**_fields(), "bundle": "0x40000000_0x80000000"}
        assert (await browser.get(f"/change?{urlencode(unowned)}")).status == 404
        assert "No broker owns it" in (await browser.get(f"/bundle?{urlencode(unowned)}")).text

    on_stage(body, _cluster())


def test_the_only_broker_closes_and_opens_the_topics() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get(f"/change?{urlencode(_fields())}")
        assert "closes the topics and opens them again" in page.text

    on_stage(body, _cluster(only=True))


def test_names_of_brokers_and_bundles_do_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        hostile = _fields(bundle=HOSTILE, namespace="acme/shop", destination="")
        for path in (
            "/brokers",
            "/brokers/map",
            f"/brokers?{urlencode({'namespace': HOSTILE})}",
            f"/bundle?{urlencode(hostile)}",
            f"/change?{urlencode(hostile)}",
        ):
            page = await browser.get(path)
            assert page.status == 200, page.text
            assert active_parts(page.text) == []
            assert "<script>alert" not in page.text
        token = page.form_token
        path = f"{NS}/{quote(HOSTILE, safe='')}/unload"
        admin.answers["PUT", path] = (204, None)
        assert (await browser.post("/change", {**hostile, "form_token": token})).status == 303
        assert admin.asked == [("PUT", path, None)]

    on_stage(body, _cluster(_bundle(bundle=HOSTILE), broker=HOSTILE))


def test_load_has_levels_beside_the_busiest_bundle() -> None:
    assert [level_of(rate, 100.0) for rate in (0.0, 0.1, 24.9, 25.0, 99.0, 100.0)] == [0, 1, 1, 2, 4, 4]
    assert level_of(0.0, 0.0) == 0


def test_a_range_is_a_part_of_the_ring() -> None:
    assert round(share_of_ring("0x00000000", "0x80000000")) == 50
    assert share_of_ring("x", "") == 0.0
