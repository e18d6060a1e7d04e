"""Login at an OpenID Connect issuer of another site, in a real browser, for a cluster with authentication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from magnetar.testing.free_ports import free_ports

from tests.clients.secured import CLIENT_ID, SecuredService, secured_standalone
from tests.integration.browser import (
    VIEWS,
    barriers,
    clean_page,
    fits,
    picture,
    screen,
    shows,
    started_chromium,
)
from tests.integration.harness import HERE, MagnetarProcess, temporary_directory

if TYPE_CHECKING:  # loaded where a browser starts
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

TOPIC = "persistent://public/default/orders"
EXPECTED = r"status of (401|403|404) "
"""Pages that refuse, and the icon that the issuer does not have."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A cluster, and a console that logs in at its issuer."""

    service: SecuredService
    url: str


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    directory = temporary_directory()
    with secured_standalone(directory) as service:
        service.admin("PUT", "/persistent/public/default/orders")
        secret = service.credentials.directory / "client.secret"
        secret.write_text(service.credentials.client_secret + "\n")
        (port,) = free_ports(1)
        url = f"http://{HERE.address}:{port}"
        settings = {
            "webServicePort": str(port),
            "webServiceUrl": service.http_url,
            "brokerServiceUrl": f"pulsar://localhost:{service.plain_port}",
            "magnetarConsoleUrl": url,
            "magnetarConsoleOidcIssuer": service.issuer.url,
            "magnetarConsoleOidcClientId": CLIENT_ID,
            "magnetarConsoleOidcClientSecret": f"file:{secret}",
            "magnetarConsoleOidcTrustCertsFilePath": str(service.credentials.directory / "ca.pem"),
        }
        console = MagnetarProcess(directory, "console", ["console"], f"{url}/readyz", settings)
        try:
            console.start()
            yield Shown(service, url)
        finally:
            console.kill()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(params=VIEWS)
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    with (
        screen(chromium, *request.param, ignore_https_errors=True) as context,
        clean_page(context, EXPECTED) as made,
    ):
        yield made


def sign_in(page: Page, user: str) -> None:
    """Log in at the issuer's own page."""
    page.get_by_role("link", name="Log in at localhost").click()
    shows(page, "label", "Name")
    page.get_by_label("Name").fill(user)
    page.get_by_role("button", name="Sign in").click()


def test_a_visitor_logs_in_at_the_issuer_and_sees_what_the_role_may_see(page: Page, shown: Shown) -> None:
    asked = f"{shown.url}/messages?{urlencode({'topic': TOPIC})}"
    page.goto(asked)
    shows(page, "h1", "Log in")
    assert barriers(page) == []
    assert fits(page)
    picture(page, "login")
    sign_in(page, "alice")
    page.wait_for_url(asked)
    shows(page, "main", "orders")
    page.goto(f"{shown.url}/tenants")
    shows(page, "main", "alice")  # who may not list tenants is told so, by name
    page.get_by_role("button", name="Log out").click()
    shows(page, "a", "Log out at localhost too")
    page.goto(asked)
    shows(page, "h1", "Log in")


def test_a_refused_login_and_a_stale_answer_are_told(page: Page, shown: Shown) -> None:
    page.goto(f"{shown.url}/login")
    sign_in(page, "")
    shows(page, "[role=alert]", "access_denied - no name was given")
    page.goto(f"{shown.url}/login/callback?code=stolen&state=guessed")
    shows(page, "[role=alert]", "no login in progress")
    assert barriers(page) == []
