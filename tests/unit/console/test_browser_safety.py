"""Protection of browsers: headers, cookies, and forms that only this console's pages can send."""

from __future__ import annotations

import re

import pytest
from magnetar.console.browser_safety import clean_token

from tests.unit.console.stage import Browser, FakeAdmin, on_stage

TOKEN = "aaa.bbb-_.ccc"


def _cluster() -> FakeAdmin:
    return FakeAdmin(
        {("GET", "/admin/v2/clusters"): ["eu"], ("GET", "/admin/v2/tenants"): ["t"]}, tokens={TOKEN}
    )


def test_no_page_executes_or_loads_what_is_not_the_console_s_own() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        for path in ("/", "/login", "/nosuch", "/static/console.css", "/tenants"):
            page = await browser.get(path)
            parts = page.headers["Content-Security-Policy"].split(";")
            policy = dict(each.strip().split(" ", 1) for each in parts)
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == "'self'"
            assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            kept = "immutable" if path.startswith("/static/") else "no-store"
            assert kept in page.headers["Cache-Control"]

    on_stage(body)


def test_without_a_token_a_cluster_with_authentication_shows_the_login_only() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = await browser.get("/tenants?q=a")
        assert (page.status, page.headers["Location"]) == (303, "/login?next=%2Ftenants%3Fq%3Da")
        part = await browser.get("/tenants", {"HX-Request": "true"})
        assert (part.status, part.headers["HX-Redirect"]) == (204, "/login?next=")

    on_stage(body, _cluster())


def test_a_login_keeps_the_token_where_scripts_and_other_sites_do_not_reach_it() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        fields = {"form_token": (await browser.get("/login?next=/tenants")).form_token, "next": "/tenants"}
        wrong = await browser.post("/login", {**fields, "token": "other"})
        assert (wrong.status, "refused this token" in wrong.text) == (401, True)
        done = await browser.post("/login", {**fields, "token": f" {TOKEN}\n"})
        assert (done.status, done.headers["Location"]) == (303, "/tenants")
        cookie = done.headers["Set-Cookie"]
        assert cookie.startswith(f"magnetar_console_token={TOKEN};")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        page = await browser.get("/tenants")
        assert page.status == 200
        left = await browser.post("/logout", {"form_token": page.form_token})
        assert left.status == 303
        assert (await browser.get("/tenants")).status == 303

    on_stage(body, _cluster())


def test_a_login_goes_on_within_the_console_only() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        form_token = (await browser.get("/login")).form_token
        for target in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\n/evil", ""):
            fields = {"form_token": form_token, "next": target, "token": TOKEN}
            done = await browser.post("/login", fields)
            assert (done.status, done.headers["Location"]) == (303, "/"), target

    on_stage(body, _cluster())


def test_forms_of_other_pages_change_nothing() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        own = (await browser.get("/login")).form_token
        for fields in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": "ü"}):
            assert (await browser.post("/logout", fields)).status == 403
        foreign = {"Origin": "https://evil.example"}
        assert (await browser.post("/logout", {"form_token": own}, foreign)).status == 403
        browser.session.cookie_jar.clear()
        assert (await browser.post("/logout", {"form_token": own})).status == 403
        assert (await browser.get("/logout")).status == 404

    on_stage(body)


def test_each_browser_has_its_own_form_token() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        first = (await browser.get("/login")).form_token
        assert first == (await browser.get("/login")).form_token
        browser.session.cookie_jar.clear()
        assert first != (await browser.get("/login")).form_token

    on_stage(body)


@pytest.mark.parametrize("text", ["", "a b", "a;b", 'a"b', "a\r\nSet-Cookie: x=y", "é", "a" * 4000])
def test_what_cannot_be_a_token_is_not_kept(text: str) -> None:
    assert clean_token(text) == ""


@pytest.mark.parametrize("text", ["token:a.b.c", "Bearer a.b.c", " a.b.c \n"])
def test_a_token_is_found_as_tools_print_it(text: str) -> None:
    assert clean_token(text) == "a.b.c"


def test_no_template_has_a_script_or_a_style_in_it() -> None:
    from magnetar.console.rendering import environment

    made = environment()
    assert made.autoescape is True
    assert made.loader is not None
    for name in made.list_templates():
        source, _, _ = made.loader.get_source(made, name)
        assert not re.search(
            r"<script(?![^>]* src=)|<style| style=| on\w+=|javascript:|\|\s*safe|Markup", source
        ), name
