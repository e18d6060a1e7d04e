"""Bookies with space, state and recovery, as the admin API tells them."""

from __future__ import annotations

from typing import Any

from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, active_parts, on_stage

BOOKIES = "/admin/magnetar/v1/bookies"


def _bookie(name: str, state: str, **more: Any) -> dict[str, Any]:
    figures = {"rack": "", "address": "", "freeBytes": -1, "started": 0, "ledgersToMove": 0}
    return {"bookieId": name, "state": state, **figures, **more}


def _cluster(name: str = "bk1:3181") -> FakeAdmin:
    report = {
        "bookies": [
            _bookie(name, "up", freeBytes=5 << 30, rack="/own", started=1_700_000_000_000, address=name),
            _bookie("bk2:3181", "down"),
            _bookie("bk3:3181", "decommissioning", ledgersToMove=42),
        ],
        "auditor": name,
        "auditorSince": 1_700_000_000_000,
        "underReplicated": 1_234,
        "inProgress": 5,
        "underReplicatedLedgers": [
            {"ledgerId": 77, "missing": ["bk2:3181", name], "since": 1, "copiedBy": name},
            {"ledgerId": 78, "missing": [], "since": 1, "copiedBy": ""},
        ],
    }
    counts = {"ledgers": 9_000, "fragments": 9_001, "openFragments": 3, "gaps": 2}
    answers: dict[tuple[str, str], Any] = {
        ("GET", BOOKIES): report,
        ("GET", f"{BOOKIES}/ledgers"): {"ledgers": 10_000, "complete": False, "bookies": {name: counts}},
        ("GET", "/admin/v2/bookies/racks-info"): {"default": {name: {"rack": f"/set/{name}"}}},
    }
    return FakeAdmin(answers)


def test_bookies_are_shown_with_space_state_and_recovery() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = (await browser.get("/bookies")).text
        for text in (
            "5.0 GiB",
            "1 down",
            "decommissioning",
            "42",
            "/set/bk1:3181",
            "1,234",
            "5 being copied",
        ):
            assert text in page, text
        assert "gaps in its metadata" in page
        assert "The first 2 of 1,234." in page
        part = (await browser.get("/bookies/part", {"HX-Request": "true"})).text
        assert "<html" not in part
        counted = (await browser.get("/bookies/ledgers")).text
        assert "10,000 ledgers read, not all of them" in counted
        assert "9,001" in counted

    on_stage(body, _cluster())


def test_a_standalone_has_no_bookies() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        admin.answers["GET", BOOKIES] = {"bookies": [], "auditor": ""}
        assert "has no bookies" in (await browser.get("/bookies")).text

    on_stage(body, _cluster())


def test_names_of_bookies_do_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for path in ("/bookies", "/bookies/part", "/bookies/ledgers"):
            page = await browser.get(path)
            assert page.status == 200
            assert active_parts(page.text) == []
            assert "&lt;script&gt;" in page.text

    on_stage(body, _cluster(HOSTILE))
