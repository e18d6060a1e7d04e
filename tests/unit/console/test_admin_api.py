"""Calls of the admin API: the visitor's token goes with each, and nowhere else."""

from __future__ import annotations

import asyncio
import logging

import pytest
from magnetar.console.admin_api import AdminApi, Caller
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.errors import AdminUnreachable

from tests.unit.console.stage import Browser, FakeAdmin, on_stage

TENANTS = ("GET", "/admin/v2/tenants")


def test_the_token_of_the_visitor_goes_along_through_redirects() -> None:
    fake = FakeAdmin({TENANTS: (307, "/moved"), ("GET", "/moved"): ["acme"]}, tokens={"t-1"})

    async def body(admin: FakeAdmin, browser: Browser) -> None:
        browser.session.cookie_jar.update_cookies({"magnetar_console_token": "t-1"})
        page = await browser.get("/tenants")
        assert (page.status, "acme" in page.text) == (200, True)
        assert admin.seen == ["Bearer t-1", "Bearer t-1"]

    on_stage(body, fake)


def test_redirects_to_other_than_http_are_not_followed() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for location in ("ftp://elsewhere/", "file:///etc/passwd", "javascript:alert(1)"):
            admin.answers[TENANTS] = (307, location)
            page = await browser.get("/tenants")
            assert (page.status, "not followed" in page.text) == (502, True), location

    on_stage(body)


def test_redirects_without_end_end() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        admin.answers[TENANTS] = (307, "/admin/v2/tenants")
        page = await browser.get("/tenants")
        assert (page.status, "redirects more than 5 times" in page.text) == (502, True)

    on_stage(body)


def test_an_admin_api_that_does_not_answer_is_named() -> None:
    async def ask() -> None:
        api = AdminApi(ClusterAccess(admin_url="http://127.0.0.1:1", service_url=""))
        try:
            with pytest.raises(AdminUnreachable, match=r"http://127.0.0.1:1 does not answer"):
                await Caller(api, "").get("/admin/v2/tenants")
        finally:
            await api.close()

    asyncio.run(ask())


def test_a_token_is_in_no_log_line_and_no_page(caplog: pytest.LogCaptureFixture) -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        browser.session.cookie_jar.update_cookies({"magnetar_console_token": "secret-token"})
        admin.tokens = {"secret-token"}
        admin.answers[TENANTS] = (500, {"reason": "boom"})
        pages = [await browser.get("/tenants"), await browser.get("/"), await browser.get("/login")]
        assert not any("secret-token" in each.text for each in pages)

    with caplog.at_level(logging.DEBUG):
        on_stage(body)
    assert "secret-token" not in caplog.text
