"""Authentication of HTTP requests: which paths need it, what a refusal is, and whom a request is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from magnetar.broker.admin.edge.call import PRINCIPAL
from magnetar.broker.config import BrokerConfig
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.config import AuthenticationConfig
from magnetar.common.security.principal import Principal

from tests.unit.common.security.authentication.test_authenticator import TOKEN, Provider

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

REQUIRED = (401, {"reason": "Authentication required"})

CLUSTERS = "/admin/v2/clusters"


def secure(http: Http, anonymous: str = "", *, metrics: bool = False) -> None:
    providers = (Provider("Token", "token"), Provider("Proxy", "basic", b"u:p"))
    http.broker.authenticator = Authenticator(
        providers, anonymous_role=anonymous, monotonic=lambda: 0.0, failure_delay_s=0
    )
    http.broker.config = BrokerConfig(authentication=AuthenticationConfig(metrics_endpoint=metrics))


async def ask(http: Http, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Any:
    async with http.client.request(method, f"{http.base}{path}", headers=headers) as response:
        assert "WWW-Authenticate" not in response.headers
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


def test_everything_but_probes_and_metrics_needs_credentials(serving: Serving) -> None:
    async def body(http: Http) -> None:
        secure(http)
        for path in (CLUSTERS, "/lookup/v2/topic/persistent/a/b/c", "/nothing", "/metrics/x"):
            assert await ask(http, path) == REQUIRED
        for path in ("/livez", "/readyz", "/health", "/metrics", "/docs", "/"):
            assert (await ask(http, path))[0] == 200
        assert (await ask(http, CLUSTERS, TOKEN))[0] == 200
        assert await ask(http, CLUSTERS, {"Authorization": "Bearer bad"}) == REQUIRED
        assert await ask(http, f"{CLUSTERS}?token=good") == REQUIRED

    serving(body)


def test_metrics_need_credentials_where_they_are_told_to(serving: Serving) -> None:
    async def body(http: Http) -> None:
        secure(http, metrics=True)
        assert await ask(http, "/metrics") == REQUIRED
        assert await ask(http, "/metrics/") == REQUIRED
        assert (await ask(http, "/metrics", TOKEN))[0] == 200

    serving(body)


def test_a_refused_body_is_not_read(serving: Serving) -> None:
    async def body(http: Http) -> None:
        secure(http)

        async with http.client.put(
            f"{http.base}/admin/v2/tenants/new",
            data=b"x" * 900_000,
        ) as response:
            assert response.status == 401
            assert response.headers["Connection"] == "close"

    serving(body)


@pytest.mark.parametrize(
    ("proxy_roles", "headers", "expected"),
    [
        (None, {}, ("role of Token", None)),
        (None, {"X-Original-Principal": "x"}, ("role of Token", None)),
        ((), {}, ("role of Token", None)),
        ((), {"X-Original-Principal": "role of Token"}, ("role of Token", None)),
        ((), {"X-Original-Principal": "x"}, None),
        (("role of Token",), {"X-Original-Principal": "x"}, ("role of Token", "x")),
        (("role of Token",), {}, None),
        (("role of Token", "x"), {"X-Original-Principal": "x"}, None),
    ],
)
def test_the_principal_is_kept_with_the_request_and_impossible_roles_are_refused(
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
    proxy_roles: tuple[str, ...] | None,
    headers: dict[str, str],
    expected: tuple[str, str | None] | None,
) -> None:
    found: list[Principal] = []

    async def body(http: Http) -> None:
        secure(http)
        http.broker.proxy_roles = None if proxy_roles is None else frozenset(proxy_roles)

        status, answer = await ask(http, CLUSTERS, {**TOKEN, **headers})
        if expected is None:
            assert (status, answer) == (401, {"reason": "Invalid roles."})
        else:
            assert status == 200

    kept = web.Request.__setitem__

    def note(request: web.Request, key: Any, value: Any) -> None:
        if key == PRINCIPAL:
            found.append(value)
        kept(request, key, value)

    monkeypatch.setattr(web.Request, "__setitem__", note)
    serving(body)
    assert [(each.role, each.original) for each in found] == ([] if expected is None else [expected])


def test_an_error_of_a_provider_is_no_way_in_and_tells_nothing(serving: Serving) -> None:
    async def body(http: Http) -> None:
        secure(http)

        async def fail(*_: Any) -> None:
            raise RuntimeError("a secret")

        http.broker.authenticator.authenticate_http = fail  # type: ignore[union-attr, method-assign]
        status, answer = await ask(http, CLUSTERS, TOKEN)
        assert (status, "a secret" in str(answer)) == (500, False)

    serving(body)


def test_anonymous_is_for_requests_without_credentials_only(serving: Serving) -> None:
    async def body(http: Http) -> None:
        secure(http, "anyone")
        assert (await ask(http, CLUSTERS))[0] == 200
        assert await ask(http, CLUSTERS, {"Authorization": "Bearer bad"}) == REQUIRED

    serving(body)


def test_without_authentication_headers_are_not_looked_at(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert (await ask(http, CLUSTERS, {"Authorization": "Bearer bad", "X-Original-Principal": "x"}))[
            0
        ] == 200

    serving(body)
