"""The console of a cluster with authentication: it does what its visitor may do, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlencode

import pulsar

from tests.integration.test_console import Browser
from tests.security.conftest import SUPER_USER, Secured, token

TOPIC = "persistent://b/n/console"


def _logged_in(secured: Secured, role: str) -> Browser:
    browser = Browser(f"{secured.http_url}/console")
    page = browser.page("/login")
    form = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
    assert form is not None
    status, text, _ = browser.open("/login", {"form_token": form[1], "token": token(role)})
    assert status == 303, text
    return browser


def test_without_a_token_what_needs_a_right_asks_for_one(secured: Secured) -> None:
    browser = Browser(f"{secured.http_url}/console")
    status, _, location = browser.open("/tenants")
    assert (status, location) == (303, "/console/login?next=%2Ftenants")


def test_a_visitor_sees_and_reads_what_the_role_may(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    bob = connect(pulsar.AuthenticationToken(token("bob")))
    bob.create_producer(TOPIC).send(b"for bob's eyes")
    browser = _logged_in(secured, "bob")
    assert "for bob&#39;s eyes" in browser.page("/messages", topic=TOPIC)
    status, text, _ = browser.open("/tenants")
    assert (status, "role bob" in text or "bob" in text) == (403, True), text

    stranger = _logged_in(secured, "stranger")
    status, text, _ = stranger.open(f"/messages?{urlencode({'topic': TOPIC})}")
    assert status != 200
    assert "for bob" not in text


def test_a_change_is_made_with_the_visitor_s_rights(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    bob = connect(pulsar.AuthenticationToken(token("bob")))
    bob.create_producer(TOPIC).close()
    delete = {"kind": "delete-topic", "topic": TOPIC}
    browser = _logged_in(secured, "bob")
    asked = browser.page("/change", **delete)
    form = re.search(r'name="form_token" value="([0-9a-f]+)"', asked)
    assert form is not None
    assert browser.open("/change", {**delete, "form_token": form[1]})[0] == 403
    root = _logged_in(secured, SUPER_USER)
    done = root.confirm("/change", delete, root.page("/change", **delete))
    assert "console" not in done.partition("<main")[2].partition("</main>")[0].replace("/console/", "")
    assert "Tenants" in root.page("/tenants")
