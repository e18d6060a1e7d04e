"""The console in a real browser: what scripts do, under the console's own content security policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pulsar
import pytest

from tests.integration.browser import VIEWS, clean_page, fits, screen, shows, started_chromium
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

if TYPE_CHECKING:  # loaded where a browser starts
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.full

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(params=VIEWS)
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    with screen(chromium, *request.param) as context, clean_page(context) as made:
        yield made


def test_a_topic_is_live_and_its_parts_load_when_they_are_opened(
    page: Page, endpoint: Endpoint, client: pulsar.Client, topic: str, our_contract: None
) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, HOSTILE.replace("/", ""), consumer_name=HOSTILE)
    producer.send(HOSTILE.encode(), properties={HOSTILE: HOSTILE})
    console = f"{endpoint.http_url}/console"
    page.goto(f"{console}/topic?{urlencode({'topic': topic})}")
    shows(page, "#live-told", re.compile("Now .* backlog 1"))
    assert page.locator(".chart canvas").count() == 2
    page.locator("summary", has_text="Ledgers").click()
    shows(page, ".strip", "1 entries")
    page.locator("summary", has_text="Policies").click()
    shows(page, "th", "Value in effect")
    assert fits(page)
    for path in ("subscription", "messages"):
        query = urlencode({"topic": topic, "name": HOSTILE.replace("/", "")})
        page.goto(f"{console}/{path}?{query}")
        assert "owned" not in page.title().partition(" of ")[0].replace(HOSTILE.replace("/", ""), "")
        assert page.locator("main img, main script").count() == 0
        assert fits(page)
    consumer.close()


def test_topics_are_found_while_one_types_and_by_the_keyboard(
    page: Page, endpoint: Endpoint, rest: Rest, topic: str, our_contract: None
) -> None:
    rest.do("PUT", f"/{topic.replace('://', '/')}")
    page.goto(f"{endpoint.http_url}/console/topics?namespace=public/default")
    page.fill("#q", topic.rpartition("/")[2].upper())
    shows(page, "#topics", "1 in total")
    page.locator("h1").click()
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.keyboard.press("Enter")
    shows(page, "h1", topic)


def test_a_change_is_confirmed_by_a_click(
    page: Page, endpoint: Endpoint, rest: Rest, topic: str, our_contract: None
) -> None:
    path = f"/{topic.replace('://', '/')}"
    rest.do("PUT", path)
    page.goto(f"{endpoint.http_url}/console/topic?{urlencode({'topic': topic})}")
    page.fill("#new-name", "by-hand")
    page.get_by_role("button", name="Create …").click()
    assert rest.get(f"{path}/subscriptions") == []
    page.get_by_role("button", name="Create it").click()
    shows(page, "[role=status]", "The subscription was created.")
    assert rest.get(f"{path}/subscriptions") == ["by-hand"]
