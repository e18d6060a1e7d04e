"""The console in a real browser: what scripts do, under the console's own content security policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pulsar
import pytest

from tests.integration.harness import Endpoint
from tests.integration.rest import Rest
from tools.deploy_setup import program

if TYPE_CHECKING:  # loaded where a browser starts
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.full

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
SHOWN_MS_MAX = 20_000
VIEWS = [
    pytest.param(("light", 1280), id="desk"),
    pytest.param(("dark", 390), id="phone"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's chromium; skips where it is not installed."""
    path = program("chromium")
    if path is None:
        pytest.skip("chromium is not installed; `make deploy-setup` installs it on Debian")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=VIEWS)
def context(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[BrowserContext]:
    scheme, width = request.param
    made = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    made.set_default_timeout(SHOWN_MS_MAX)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that has to end without an error of a script, or a refusal of the policy."""
    made, errors = context.new_page(), list[str]()
    made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    assert errors == []


def shows(page: Page, selector: str, text: str | re.Pattern[str]) -> None:
    """Wait until an element has this text."""
    page.locator(selector, has_text=text).first.wait_for()


def fits(page: Page) -> bool:
    """Whether a page is no wider than the screen."""
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return page.viewport_size is not None and width <= page.viewport_size["width"]


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
    shows(page, "th", "Value in force")
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
