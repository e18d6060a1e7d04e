"""Login at an OpenID Connect issuer, of which each answer can be wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from magnetar.console.browser_safety import LOGIN_COOKIE, TOKEN_BYTES_MAX, TOKEN_COOKIE
from magnetar.console.oidc_config import OidcConfig
from magnetar.console.oidc_login import NEXT_CHARS_MAX, OidcLogin, PendingLogin

from tests.unit.console.stage import Browser, FakeAdmin, Page, on_stage

KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
PUBLIC_URL = "http://localhost:8090"
CLIENT = "the-console"


class Issuer(FakeAdmin):
    """The admin API and the issuer at one address; `wrong` changes what the issuer answers."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(answers={("GET", "/admin/v2/clusters"): ["test"]}, tokens={"granted-token"})
        self.wrong = wrong
        self.exchanged: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.nonce = ""
        self.keys_asked = 0

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/.well-known/openid-configuration":
            description = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "end_session_endpoint": f"{self.url}/end",
            }
            return web.json_response(description | self.wrong.get("description", {}))
        if request.path == "/keys":
            self.keys_asked += 1
            key = json.loads(RSAAlgorithm.to_jwk(KEY.public_key())) | {
                "kid": "1",
                "use": "sig",
                "alg": "RS256",
            }
            return web.json_response({"keys": [key]})
        if request.path == "/token":
            self.exchanged.append({name: str(value) for name, value in (await request.post()).items()})
            self.authorizations.append(request.headers.get("Authorization"))
            answer = {"access_token": "granted-token", "expires_in": 60, "id_token": self.id_token()}
            status, change = self.wrong.get("token", (200, {}))
            return web.json_response(answer | change, status=status)
        return await super().handle(request)

    def id_token(self) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "ann",
            "iat": now,
            "exp": now + 60,
            "nonce": self.nonce,
        }
        claims |= self.wrong.get("claims", {})
        key = OTHER_KEY if self.wrong.get("signed_by_other") else KEY
        return jwt.encode(claims, key, "RS256", {"kid": self.wrong.get("kid", "1")})


def staged(
    body: Callable[[Issuer, Browser], Awaitable[None]],
    issuer: Issuer | None = None,
    url: str = "",
    **more: Any,
) -> None:
    """Run a test with an issuer, which is the admin API too, and a console that logs in there."""
    made = issuer or Issuer()

    def login(api_url: str) -> OidcLogin:
        made.url = api_url
        settings: dict[str, Any] = {
            "issuer": url or api_url,
            "client_id": CLIENT,
            "public_url": PUBLIC_URL,
        } | more
        return OidcLogin(OidcConfig(**settings), time.monotonic)

    async def run(fake: FakeAdmin, browser: Browser) -> None:
        await body(made, browser)

    on_stage(run, made, login=login)


async def begun(issuer: Issuer, browser: Browser, next_path: str = "/brokers") -> dict[str, str]:
    """Begin a login; returns the parameters that the issuer gets."""
    page = await browser.get(f"/login/oidc?{urlencode({'next': next_path})}")
    assert page.status == 303, page.text
    parts = urlsplit(page.headers["Location"])
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{issuer.url}/authorize"
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    issuer.nonce = query["nonce"]
    return query


async def back(browser: Browser, **answer: str) -> Page:
    return await browser.get(f"/login/callback?{urlencode(answer)}")


def logged_in(browser: Browser) -> bool:
    return any(cookie.key == TOKEN_COOKIE and cookie.value for cookie in browser.session.cookie_jar)


def test_a_visitor_logs_in_and_goes_on_to_the_page_that_was_asked_for() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        asked = await browser.get("/login?next=/brokers")
        assert 'href="/login/oidc?next=/brokers"' in asked.text
        query = await begun(issuer, browser)
        assert query["redirect_uri"] == f"{PUBLIC_URL}/login/callback"
        assert (query["scope"], query["response_type"]) == ("openid", "code")
        page = await back(browser, code="the-code", state=query["state"], iss=issuer.url)
        assert page.status == 200, page.text
        assert '<meta http-equiv="refresh" content="0; url=/brokers">' in page.text
        assert logged_in(browser)
        [exchange] = issuer.exchanged
        challenge = hashlib.sha256(exchange["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(challenge).decode().rstrip("=") == query["code_challenge"]
        assert (exchange["code"], exchange["client_id"]) == ("the-code", CLIENT)
        assert exchange["redirect_uri"] == query["redirect_uri"]
        assert issuer.authorizations == [None]
        assert (await browser.get("/tenants")).status != 303

    staged(body)


def test_a_confidential_client_sends_its_secret_as_the_issuer_wants_it() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        query = await begun(issuer, browser)
        assert (await back(browser, code="c", state=query["state"])).status == 200
        if "description" in issuer.wrong:
            assert issuer.exchanged[0]["client_secret"] == "s3cret"
            assert issuer.authorizations == [None]
        else:
            assert issuer.authorizations == [f"Basic {base64.b64encode(b'the-console:s3cret').decode()}"]
            assert "client_secret" not in issuer.exchanged[0]

    posts = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    staged(body, client_secret="s3cret")
    staged(body, Issuer(description=posts), client_secret="s3cret")


def test_an_answer_is_taken_once_and_only_from_the_browser_that_began() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        page = await back(browser, code="c", state="s")
        assert page.status == 401
        assert "no login in progress" in page.text
        first = await begun(issuer, browser)
        second = await begun(issuer, browser)
        page = await back(browser, code="c", state=first["state"])
        assert "another login than the last one" in page.text
        assert not issuer.exchanged
        page = await back(browser, code="c", state=second["state"])
        assert "no login in progress" in page.text, "a failed one has ended it"
        third = await begun(issuer, browser)
        assert (await back(browser, code="c", state=third["state"])).status == 200
        page = await back(browser, code="c", state=third["state"])
        assert "no login in progress" in page.text
        assert len(issuer.exchanged) == 1

    staged(body)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"claims": {"nonce": "another"}}, "another login (nonce)"),
        ({"claims": {"iss": "https://elsewhere"}}, "InvalidIssuerError"),
        ({"claims": {"aud": "another-client"}}, "InvalidAudienceError"),
        ({"claims": {"azp": "another-client"}}, "another client (azp)"),
        ({"claims": {"exp": 1000}}, "ExpiredSignatureError"),
        ({"claims": {"sub": None}}, "not valid"),
        ({"signed_by_other": True}, "InvalidSignatureError"),
        ({"kid": "2"}, "publishes no key with the id"),
        ({"token": (200, {"id_token": "a.b.c"})}, "not valid"),
        ({"token": (200, {"id_token": None})}, "granted no id token"),
        ({"token": (200, {"access_token": None})}, "granted no access_token"),
        ({"token": (200, {"access_token": "x" * (TOKEN_BYTES_MAX + 1)})}, "with fewer claims"),
        ({"token": (200, {"access_token": "unknown-to-the-cluster"})}, "openIDAllowedAudiences"),
        ({"token": (400, {"error": "invalid_grant", "error_description": "used"})}, "invalid_grant - used"),
        ({"description": {"issuer": "https://elsewhere"}}, "calls itself"),
        ({"description": {"token_endpoint": "ftp://elsewhere"}}, "no usable token_endpoint"),
    ],
)
def test_what_an_issuer_gets_wrong_is_said_and_ends_the_login(wrong: dict[str, Any], says: str) -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        page = await browser.get("/login/oidc")
        if page.status == 303:
            issuer.nonce = parse_qs(urlsplit(page.headers["Location"]).query)["nonce"][0]
            state = parse_qs(urlsplit(page.headers["Location"]).query)["state"][0]
            page = await back(browser, code="c", state=state)
        assert page.status in (401, 502)
        assert says in page.text.replace("&#39;", "'")
        assert not logged_in(browser)

    staged(body, Issuer(**wrong))


def test_a_key_that_is_not_known_is_asked_for_once_more() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        for kid in ("1", "1", "2"):
            issuer.wrong["kid"] = kid
            query = await begun(issuer, browser)
            await back(browser, code="c", state=query["state"])
        assert issuer.keys_asked == 2

    staged(body)


def test_a_refusal_of_the_issuer_and_a_mix_up_of_issuers_are_said() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        query = await begun(issuer, browser)
        page = await back(
            browser,
            error="access_denied",
            error_description="<script>alert(1)</script>",
            state=query["state"],
        )
        assert "access_denied - &lt;script&gt;" in page.text
        query = await begun(issuer, browser)
        page = await back(browser, code="c", state=query["state"], iss="https://elsewhere")
        assert "comes from another issuer" in page.text
        query = await begun(issuer, browser)
        assert "has no code" in (await back(browser, state=query["state"])).text
        assert not issuer.exchanged

    staged(body)


def test_an_issuer_that_does_not_answer_leaves_the_login_by_token() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        page = await browser.get("/login/oidc")
        assert page.status == 502
        assert "cannot be reached" in page.text
        assert 'name="token"' in page.text
        assert (await browser.get("/login?ended=1")).status == 200

    staged(body, url="http://127.0.0.1:1")


def test_a_console_without_an_issuer_says_so() -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        assert (await browser.get("/login/oidc")).status == 404
        assert (await browser.get("/login/callback?code=c&state=s")).status == 401
        assert "/login/oidc" not in (await browser.get("/login")).text

    on_stage(body)


def test_logging_out_offers_to_end_the_session_at_the_issuer() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        query = await begun(issuer, browser)
        await back(browser, code="c", state=query["state"])
        page = await browser.get("/login")
        out = await browser.post("/logout", {"form_token": page.form_token})
        assert out.headers["Location"] == "/login?ended=1"
        assert not logged_in(browser)
        shown = (await browser.get("/login?ended=1")).text
        assert f'href="{issuer.url}/end?client_id={CLIENT}' in shown

    staged(body)


def test_a_path_of_another_site_or_a_long_one_is_not_gone_on_to() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        for path in ("https://elsewhere/", "//elsewhere/", "/" + "x" * (NEXT_CHARS_MAX + 1)):
            query = await begun(issuer, browser, path)
            page = await back(browser, code="c", state=query["state"])
            assert 'content="0; url=/"' in page.text

    staged(body)


def test_the_cookies_of_a_login_are_kept_from_scripts_and_the_browser_keeps_its_number() -> None:
    async def body(issuer: Issuer, browser: Browser) -> None:
        async with browser.session.get(f"{browser.url}/login/oidc", allow_redirects=False) as response:
            [cookie] = [c for c in response.headers.getall("Set-Cookie") if c.startswith(LOGIN_COOKIE)]
            parts = urlsplit(response.headers["Location"])
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Path=/login/callback" in cookie
        query = parse_qs(parts.query)
        issuer.nonce = query["nonce"][0]
        visit = [c.value for c in browser.session.cookie_jar if c.key == "magnetar_console_visit"]
        url = f"{browser.url}/login/callback?{urlencode({'code': 'c', 'state': query['state'][0]})}"
        async with browser.session.get(url) as response:
            set_cookies = response.headers.getall("Set-Cookie")
        assert any(
            c.startswith(f"{TOKEN_COOKIE}=granted-token") and "SameSite=Strict" in c for c in set_cookies
        )
        assert any(c.startswith(f'{LOGIN_COOKIE}=""') for c in set_cookies)
        assert not any("magnetar_console_visit" in c for c in set_cookies)
        assert visit == [c.value for c in browser.session.cookie_jar if c.key == "magnetar_console_visit"]

    staged(body)


@pytest.mark.parametrize(
    "text", ["", "%%%", "e30", "W10", base64.b64encode(b'{"state": 1}').decode(), "x" * 9000]
)
def test_a_cookie_that_is_no_login_is_none(text: str) -> None:
    assert PendingLogin.read(text) is None


def test_a_login_survives_its_cookie() -> None:
    pending = PendingLogin("state", "nonce", "verifier", "/topics?namespace=a/b")
    assert PendingLogin.read(pending.cookie()) == pending


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"issuer": "http://login.example.org"}, "magnetarConsoleOidcIssuer"),
        ({"issuer": "login.example.org"}, "magnetarConsoleOidcIssuer"),
        ({"public_url": ""}, "magnetarConsoleUrl"),
        ({"public_url": "http://console.example.org"}, "magnetarConsoleUrl"),
        ({"client_id": ""}, "magnetarConsoleOidcClientId is empty"),
        ({"scopes": "profile"}, "lacks 'openid'"),
        ({"client_secret": "file:/nonexistent/secret"}, "cannot read /nonexistent/secret"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(changed: dict[str, str], says: str) -> None:
    good = {
        "issuer": "https://login.example.org",
        "client_id": CLIENT,
        "public_url": "https://console.example.org",
    }
    assert OidcConfig(**good).problems() == []
    [problem] = OidcConfig(**(good | changed)).problems()
    assert says in problem
    assert OidcConfig(**(good | changed | {"issuer": ""})).problems() == []
