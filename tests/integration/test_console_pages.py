"""Every page of the console in a browser, under load: axe is content, text never runs, a loss is told.

`MAGNETAR_CONSOLE_SCREENSHOTS=DIR` writes a picture of each page.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import aiohttp
import pulsar
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.testing.free_ports import free_ports

from tests.integration.browser import (
    SCREENSHOTS,
    VIEWS,
    Scheme,
    barriers,
    clean_page,
    fits,
    picture,
    screen,
    shows,
    started_chromium,
)
from tests.integration.harness import HERE, MagnetarProcess, StandaloneServer, temporary_directory
from tests.integration.rest import Rest
from tests.integration.test_admin_offload import closed_ledgers, run_job

if TYPE_CHECKING:  # loaded where a browser starts
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

TOPICS: Final = 10_000
CALLS: Final = 32
SHOP: Final = "shop/orders"
TOPIC: Final = f"persistent://{SHOP}/placed"
LETTERS: Final = f"{TOPIC}-billing-DLQ"
COLD: Final = "shop/cold"
MANY: Final = "shop/archive"
RUN: Final = "document.title='owned'"
SUM: Final = "${3*1234567}{{3*1234567}}{%print(3*1234567)%}"
"""Evaluates to 3703701 in a template that takes text for its own."""
HOSTILE: Final = f'<script>{RUN}</script><img src=x onerror="{RUN}">\'"`{SUM}'
EVIL_NAME: Final = f'x"><img src=x onerror={RUN}><a href=javascript:{RUN}>'
"""Name of a topic and a subscription."""
EVIL: Final = f"persistent://{SHOP}/{EVIL_NAME}"
CHART_MS: Final = 40_000
"""After this time the lines of a chart can be seen in a picture."""
LOST: Final = r"Failed to load resource|Failed to fetch|Response Status Error|Send Error"
"""Messages of a browser about answers that did not come."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A broker under load, and a console of it in a process of its own."""

    broker: StandaloneServer
    console: MagnetarProcess
    url: str

    def link(self, path: str, **query: str) -> str:
        return f"{self.url}{path}?{urlencode(query)}"


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    directory = temporary_directory()
    cold = directory / "cold"
    cold.mkdir()
    broker = StandaloneServer(
        directory,
        {
            "magnetarOffloadLocation": cold.as_uri(),
            "magnetarOffloadCheckIntervalSeconds": "1",
            "magnetarOffloadRefreshIntervalSeconds": "1",
        },
    )
    (port,) = free_ports(1)
    url = f"http://{HERE.address}:{port}"
    settings = {
        "webServicePort": str(port),
        "webServiceUrl": broker.endpoint.http_url,
        "brokerServiceUrl": broker.endpoint.service_url,
    }
    console = MagnetarProcess(directory, "console", ["console"], f"{url}/readyz", settings)
    try:
        broker.start()
        console.start()
        with _loaded(broker):
            yield Shown(broker, console, url)
    finally:
        console.kill()
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


class Order(pulsar.schema.Record):  # type: ignore[misc]
    """A message of the topic."""

    number = pulsar.schema.Integer()
    customer = pulsar.schema.String()


def _offload(broker: StandaloneServer, rest: Rest, client: pulsar.Client) -> None:
    """Make a topic with a ledger that is offloaded, one that failed, and one that is not asked for."""
    rest.do("PUT", f"/namespaces/{COLD}")
    first, second, third = closed_ledgers(rest, client, COLD, 3)
    wish = {"ledgerId": third, "entryId": 0, "partitionIndex": -1}
    rest.do("PUT", f"/persistent/{COLD}/t/offload", wish)
    with OffloadChannel(broker.jobs_address) as jobs:
        by_id = {each.ledger_id: each for each in jobs.wanted([f"persistent://{COLD}/t"]).ledgers}
        run_job(jobs, by_id[first])
        attempt = secrets.token_bytes(16)
        jobs.begin(by_id[second].topic, by_id[second].creation_id, second, attempt)
        jobs.fail(
            by_id[second].topic, by_id[second].creation_id, second, attempt, "no room left on the device"
        )


def _bundle(shown: Shown) -> str:
    """Range of the topic's bundle."""
    url = f"{shown.broker.endpoint.http_url}/lookup/v2/topic/persistent/{SHOP}/placed/bundle"
    with urllib.request.urlopen(url, timeout=20) as response:
        text: str = response.read().decode()
    return text.strip().strip('"')


@contextmanager
def _loaded(broker: StandaloneServer) -> Iterator[None]:
    """Producers, consumers and messages until the block ends."""
    rest = Rest(broker.endpoint)
    rest.do("PUT", "/tenants/shop", {"allowedClusters": ["standalone"], "adminRoles": []})
    rest.do("PUT", f"/namespaces/{SHOP}")
    rest.do("PUT", f"/persistent/{SHOP}/returned/partitions", 4)
    client = pulsar.Client(broker.endpoint.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    orders = client.create_producer(TOPIC, "shop", schema=pulsar.schema.JsonSchema(Order))
    evil = client.create_producer(EVIL, HOSTILE)
    consumers = [
        client.subscribe(TOPIC, "billing", pulsar.ConsumerType.Shared, consumer_name=f"billing-{number}")
        for number in (1, 2)
    ]
    slow = client.subscribe(TOPIC, "shipping", receiver_queue_size=5, consumer_name="truck-1")
    consumers.append(client.subscribe(EVIL, EVIL_NAME, consumer_name=HOSTILE))
    evil.send(HOSTILE.encode(), properties={HOSTILE: HOSTILE}, partition_key=HOSTILE)
    _offload(broker, rest, client)
    letters = client.create_producer(LETTERS)
    for number in range(3):
        origin = {
            "REAL_TOPIC": TOPIC,
            "REAL_SUBSCRIPTION": "billing",
            "ORIGIN_MESSAGE_ID": f"0:{number}:-1:-1",
        }
        letters.send(b'{"number": %d, "customer": "letter-%d"}' % (number, number), properties=origin)
    ending = threading.Event()

    def publish() -> None:
        number = 0
        while not ending.wait(0.01):
            order = Order(number=number, customer=f"customer-{number % 40}")
            orders.send_async(order, None, partition_key=f"customer-{number % 40}")
            number += 1

    def consume(consumer: pulsar.Consumer) -> None:
        while not ending.is_set():
            try:
                consumer.acknowledge(consumer.receive(200))
            except pulsar.PulsarException:
                continue

    threads = [
        threading.Thread(target=publish),
        *(threading.Thread(target=consume, args=(one,)) for one in consumers),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(60)
        slow.close()
        client.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(params=VIEWS)
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    with screen(chromium, *request.param) as context, clean_page(context) as made:
        yield made


def pages(shown: Shown) -> dict[str, tuple[str, str]]:
    """The address of each page, and a text that is there once it is loaded."""
    at = {"topic": TOPIC}
    return {
        "overview": (shown.link("/"), "Overview"),
        "tenants": (shown.link("/tenants"), "shop"),
        "namespaces": (shown.link("/namespaces", tenant="shop"), "orders"),
        "topics": (shown.link("/topics", namespace=SHOP), "placed"),
        "topics-loaded": (shown.link("/topics", namespace=SHOP, show="loaded"), "placed"),
        "topic": (shown.link("/topic", **at), "backlog"),
        "partitioned": (shown.link("/topic", topic=f"persistent://{SHOP}/returned"), "returned"),
        "subscription": (shown.link("/subscription", **at, name="shipping"), "truck-1"),
        "messages": (shown.link("/messages", **at), "customer-"),
        "publish": (shown.link("/publish", **at), "Publish"),
        "change": (shown.link("/change", **at, kind="delete-topic"), "Delete"),
        "brokers": (shown.link("/brokers"), "Brokers"),
        "bundles": (shown.link("/brokers", namespace=SHOP), "0x"),
        "bookies": (shown.link("/bookies"), "Bookies"),
        "bundle": (shown.link("/bundle", namespace=SHOP, bundle=_bundle(shown)), "Owner"),
        "offloads": (shown.link("/offloads", namespace=COLD), "no room left on the device"),
        "login": (shown.link("/login"), "Log in"),
        "no-page": (shown.link("/none"), "no page"),
    }


PAGES: Final = (
    "overview", "tenants", "namespaces", "topics", "topics-loaded", "topic", "partitioned", "subscription",
    "messages", "publish", "change", "brokers", "bundles", "bookies", "bundle", "offloads",
    "login", "no-page",
)  # fmt: skip


def test_no_page_is_left_out(shown: Shown) -> None:
    assert tuple(pages(shown)) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_under_load_has_no_barrier(
    shown: Shown, chromium: Browser, view: tuple[Scheme, int], name: str
) -> None:
    url, text = pages(shown)[name]
    ignored = LOST if name == "no-page" else r"(?!)"
    with screen(chromium, *view) as context, clean_page(context, ignored) as page:
        page.goto(url)
        shows(page, "main", re.compile(text))
        if name == "topic" and SCREENSHOTS in os.environ:
            page.wait_for_timeout(CHART_MS)
        picture(page, f"{name}-{view[0]}")
        for summary in page.locator("main details:not(.message) > summary").all():
            summary.click()
        page.wait_for_timeout(500)
        assert barriers(page) == []
        assert fits(page)


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> tuple[Scheme, int]:
    """Color scheme and width in pixels."""
    found: tuple[Scheme, int] = request.param
    return found


def test_a_dead_letter_is_published_to_its_topic_again(shown: Shown, page: Page) -> None:
    page.goto(shown.link("/messages", topic=LETTERS, start="earliest"))
    for summary in page.locator("main details.message:not([open]) > summary").all():
        summary.click()
    page.locator('a[href*="/resend?"]').first.click()
    shows(page, "h1", f"to {TOPIC} again?")
    assert barriers(page) == []
    assert fits(page)
    picture(page, f"resend-{'light' if page.viewport_size == {'width': 1280, 'height': 900} else 'dark'}")
    page.get_by_role("button", name="Publish it again").click()
    shows(page, "[role=status]", "published to its origin topic")
    page.goto(shown.link("/messages", topic=TOPIC, text="letter-"))
    shows(page, "main", "letter-")


def test_hostile_names_and_payloads_do_nothing(shown: Shown, page: Page) -> None:
    at = {"topic": EVIL, "name": EVIL_NAME}
    for path in ("/topic", "/messages", "/subscription", "/publish", "/topics", "/change", "/brokers"):
        url = shown.link(path, **at, namespace=SHOP, q=EVIL_NAME, kind="delete-topic", text=HOSTILE)
        page.goto(url)
        for summary in page.locator("main summary").all():
            summary.click()
        page.wait_for_timeout(500)
        assert page.title() != "owned", path
        assert page.locator("main img, main script, main [onerror], a[href^=javascript]").count() == 0, path
        assert "3703701" not in page.content(), path
        assert fits(page), path
    page.goto(shown.link("/messages", topic=EVIL))
    shows(page, "main", HOSTILE[:40])
    picture(page, "hostile")


async def _make_topics(http_url: str) -> None:
    waiting = asyncio.Semaphore(CALLS)
    async with aiohttp.ClientSession(f"{http_url}/admin/v2/persistent/") as session:

        async def make(number: int) -> None:
            async with waiting, session.put(f"{MANY}/topic-{number:05}/partitions", json=1) as answer:
                assert answer.status == 204, await answer.text()

        await asyncio.gather(*(make(number) for number in range(TOPICS)))


@pytest.mark.nightly  # making the topics takes a minute or more
def test_one_of_ten_thousand_topics_is_found_and_all_are_in_pages(shown: Shown, page: Page) -> None:
    rest = Rest(shown.broker.endpoint)
    if MANY not in rest.get("/namespaces/shop"):
        rest.do("PUT", f"/namespaces/{MANY}")
        making = threading.Thread(target=lambda: asyncio.run(_make_topics(shown.broker.endpoint.http_url)))
        making.start()  # the browser's loop runs in this thread
        making.join()
    page.goto(shown.link("/topics", namespace=MANY))
    shows(page, "#topics", "10,000 in total")
    assert page.locator("#topics tbody tr").count() == 50
    page.get_by_role("link", name="Next").click()
    shows(page, "#topics", "topic-00050")
    page.fill("#q", "PIC-07123")
    shows(page, "#topics", "1 in total")
    shows(page, "#topics", "topic-07123")
    assert barriers(page) == []
    picture(page, "ten-thousand")


def test_a_broker_that_dies_is_told_and_seen_again(shown: Shown, chromium: Browser) -> None:
    """The last test: it leaves clients that reconnect."""
    with (
        screen(chromium, "light", 1280) as context,
        clean_page(context, LOST) as topic,
        clean_page(context, LOST) as overview,
        clean_page(context, LOST) as tenants,
    ):
        topic.goto(shown.link("/topic", topic=TOPIC))
        overview.goto(shown.link("/"))
        shows(topic, "#live-told", "Now ")
        shown.broker.kill()
        shows(topic, "#live-told", "does not answer")
        shows(overview, "main", "does not answer")
        tenants.goto(shown.link("/tenants"))
        shows(tenants, "main", "does not answer")
        for page in (topic, overview, tenants):
            assert barriers(page) == []
        picture(topic, "broker-lost")
        shown.broker.start()
        shows(topic, "#live-told", "Now ")
        shows(overview, "main", "Messages in")
        tenants.reload()
        shows(tenants, "main", "shop")
