"""The console of a standalone, over HTTP as a browser uses it: pages, messages, changes."""

from __future__ import annotations

import html
import json
import re
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from itertools import pairwise
from urllib.parse import urlencode

import pulsar
import pytest

from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
FIRST_PAGE_BYTES_MAX = 150 * 1024
FIRST_PAGE_S_MAX = 1.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Browser:
    """Keeps cookies and follows no redirect."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar()), _NoRedirect()
        )

    def open(self, path: str, fields: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Status, text and the redirect's target of a page, or of a form with its fields."""
        data = None if fields is None else urlencode(fields).encode()
        try:
            with self._opener.open(f"{self.base}{path}", data, timeout=20) as response:
                return response.status, response.read().decode(), ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers.get("Location", "")

    def page(self, path: str, **query: object) -> str:
        status, text, _ = self.open(f"{path}?{urlencode(query)}")
        assert status == 200, (path, status, text)
        return text

    def confirm(self, path: str, fields: dict[str, str], page: str) -> str:
        """Send the form of a page that asks; returns the page that is shown next."""
        token = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
        assert token is not None
        status, text, location = self.open(path, {**fields, "form_token": token[1]})
        assert status == 303, text
        status, text, _ = self.open(location.removeprefix("/console"))
        assert status == 200, text
        return text


@pytest.fixture
def browser(endpoint: Endpoint, our_contract: None) -> Browser:
    return Browser(f"{endpoint.http_url}/console")


def path_of(topic: str) -> str:
    return f"/{topic.replace('://', '/')}"


def test_the_first_page_is_small_and_quick(browser: Browser) -> None:
    browser.page("/")  # which loads the console
    started = time.monotonic()
    page = browser.page("/")
    links = re.findall(r'(?:src|href)="/console(/static/[^"]+)"', page)
    size = len(page) + sum(len(browser.open(each)[1]) for each in links)
    took = time.monotonic() - started
    print(f"first page with {len(links)} files: {size / 1024:.0f} KiB in {took * 1000:.0f} ms")
    assert len(links) >= 4
    assert size < FIRST_PAGE_BYTES_MAX
    assert took < FIRST_PAGE_S_MAX


def test_the_broker_s_own_pages_are_as_before(endpoint: Endpoint, browser: Browser) -> None:
    assert browser.open("")[0] == 200
    with urllib.request.urlopen(f"{endpoint.http_url}/health", timeout=20) as response:
        assert response.read() == b"ok"
    assert Rest(endpoint, root="").refused(404, "GET", "/consoles")


def test_messages_are_browsed_filtered_and_harmless(
    browser: Browser, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    first = producer.send(b"first")
    for number in range(30):
        producer.send(
            f'{{"number": {number}, "text": {json.dumps(HOSTILE)}}}'.encode(),
            partition_key=f"key-{number}",
            properties={"parity": str(number % 2), HOSTILE: HOSTILE},
        )
    producer.send(b"\xff\x00\xfe")

    latest = browser.page("/messages", topic=topic)
    assert "ff 00 fe" in latest
    assert "key-29" in latest
    assert "key-5 " not in latest
    assert "This is the end of the topic" in latest
    assert "<script>alert" not in latest
    assert "<img" not in latest
    assert html.escape("<script>alert(1)") in latest

    earliest = browser.page("/messages", topic=topic, start="earliest", count=3)
    assert "first" in earliest
    assert "key-1 " in earliest
    assert "key-2 " not in earliest
    onward = re.search(r'href="/console/messages\?([^"]+)">Go on', earliest)
    assert onward is not None
    status, more, _ = browser.open(f"/messages?{html.unescape(onward[1])}")
    assert (status, "key-2 " in more, "key-1 " in more) == (200, True, False)

    filtered = browser.page(
        "/messages", topic=topic, start="earliest", prop="parity=1", text="ALERT", key="key-2"
    )
    assert re.findall(r"key (key-\d+)", filtered) == ["key-21", "key-23", "key-25", "key-27", "key-29"]

    at = f"{first.ledger_id()}:{first.entry_id()}"
    by_id = browser.page("/messages", topic=topic, start="id", id=at, count=1)
    assert "first" in by_id
    by_time = browser.page("/messages", topic=topic, start="time", time=str(int(time.time() * 1000) + 60_000))
    assert "0 shown" in by_time


def test_a_search_goes_through_a_topic_and_a_dead_letter_goes_back(
    browser: Browser, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "audit")
    letters = client.create_producer(f"{topic}-audit-DLQ")
    for number in range(50):
        letters.send(
            b"letter %d" % number,
            partition_key="k",
            properties={"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": "1:2:-1", "number": str(number)},
        )
    query = urlencode({"topic": f"{topic}-audit-DLQ", "start": "earliest", "text": "LETTER 4"})
    with urllib.request.urlopen(f"{browser.base}/messages/search?{query}", timeout=20) as response:
        lines = response.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert (events[-2]["looked"], events[-2]["found"], events[-1]) == (50, 11, {"done": True})
    found = re.findall(r'/resend\?([^"]+)', "".join(each.get("html", "") for each in events))
    assert len(found) == 11

    asked = browser.open(f"/resend?{html.unescape(found[3])}")[1]
    hidden = dict(re.findall(r'name="(topic|id|origin)" value="([^"]*)"', asked))
    done = browser.confirm("/resend", {name: html.unescape(text) for name, text in hidden.items()}, asked)
    assert "published to its origin topic" in done
    message = consumer.receive(10_000)
    assert (message.data(), message.partition_key(), message.properties()) == (
        b"letter 42",
        "k",
        {"number": "42"},
    )


def test_values_are_decoded_by_the_schema_of_the_topic(
    browser: Browser, client: pulsar.Client, topic: str
) -> None:
    class Order(pulsar.schema.Record):  # type: ignore[misc]
        amount = pulsar.schema.Integer()

    producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(Order))
    producer.send(Order(amount=42))
    page = browser.page("/messages", topic=topic)
    assert "decoded by its schema" in page
    assert '"amount": 42' in html.unescape(page)
    assert "amount" in browser.page("/topic/schemas", topic=topic)


def test_a_message_is_published_once_it_is_confirmed(
    browser: Browser, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "audit")
    fields = {
        "topic": topic,
        "payload": "from\r\nthe console",
        "encoding": "text",
        "key": "k",
        "properties": "a=b=c",
    }
    form = browser.page("/publish", topic=topic)
    token = re.search(r'name="form_token" value="([0-9a-f]+)"', form)
    assert token is not None
    status, asked, _ = browser.open("/publish", {**fields, "form_token": token[1]})
    assert (status, "which all get it: 1." in asked) == (200, True)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    done = browser.confirm("/publish", {**fields, "confirmed": "true"}, asked)
    assert "The message was published." in done
    message = consumer.receive(10_000)
    assert (message.data(), message.partition_key(), message.properties()) == (
        b"from\nthe console",
        "k",
        {"a": "b=c"},
    )
    wrong = {**fields, "encoding": "hexadecimal", "form_token": token[1]}
    status, text, _ = browser.open("/publish", wrong)
    assert (status, "not in hexadecimal digits" in text) == (400, True)


def test_a_subscription_is_skipped_and_reset_as_the_preview_says(
    browser: Browser, client: pulsar.Client, rest: Rest, topic: str
) -> None:
    name = f"sub/{HOSTILE}"
    client.subscribe(topic, name).close()
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(f"m{number}".encode()) for number in range(10)]

    def backlog() -> int:
        return int(rest.get(f"{path_of(topic)}/stats")["subscriptions"][name]["msgBacklog"])

    skip = {"kind": "skip", "topic": topic, "name": name, "count": "7"}
    asked = browser.page("/change", **skip)
    assert "the first 7 are never delivered to this subscription; 3 remain" in asked
    assert backlog() == 10
    done = browser.confirm("/change", skip, asked)
    assert "The entries were skipped." in done
    assert "no_consumer" in done
    assert "Entries from the mark-delete position to the end" in done
    assert "<script>alert" not in done
    assert backlog() == 3

    at = f"{ids[2].ledger_id()}:{ids[2].entry_id()}"
    reset = {"kind": "reset-id", "topic": topic, "name": name, "id": at, "excluded": "false"}
    asked = browser.page("/change", **reset)
    assert "Then 8 entries wait, now 3: about 5 entries are delivered again." in asked
    browser.confirm("/change", reset, asked)
    assert backlog() == 8

    by_time = {"kind": "reset-time", "topic": topic, "name": name, "time": "2001-01-01T00:00"}
    asked = browser.page("/change", **by_time)
    assert "Then 10 entries wait" in asked
    browser.confirm("/change", by_time, asked)
    assert backlog() == 10


def test_a_topic_shows_who_is_connected_and_is_found(
    browser: Browser, client: pulsar.Client, topic: str
) -> None:
    client.create_producer(topic, producer_name="billing").send(b"one")
    client.subscribe(topic, "audit", consumer_name="auditor")
    page = browser.page("/topic", topic=topic)
    assert "billing" in page
    assert re.search(r"127\.0\.0\.1:\d+", page)
    assert "auditor" in browser.page("/subscription", topic=topic, name="audit")
    assert "retention" in browser.page("/topic/policies", topic=topic)
    assert "sole_broker" in browser.page("/topic/place", topic=topic)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="billing")
    assert "ProducerBusy" in browser.page("/topic/ended", topic=topic)
    assert "open_ledger" in browser.page("/topic/ledgers", topic=topic)
    assert "No closed ledger" in browser.page("/topic/offload", topic=topic)
    assert "is offloaded or waits" in browser.page("/offloads", namespace="public/default")
    assert "LedgerOpened" in browser.page("/topic/ledgers", topic=topic)
    local = topic.rpartition("/")[2]
    assert "1 in total" in browser.page("/topics", namespace="public/default", q=local.upper())
    assert "topic?topic=" in browser.page("/topics", namespace="public/default", show="loaded")


def test_the_bundle_of_a_topic_is_on_the_map_and_unloaded(
    browser: Browser, client: pulsar.Client, rest: Rest, topic: str
) -> None:
    producer = client.create_producer(topic)
    assert "public/default" in browser.page("/brokers")
    position = rest.get("/namespaces/public/default/bundles")["boundaries"]
    bundle = next(
        f"{low}_{high}" for low, high in pairwise(position) if f"{low}_{high}" in browser.page("/brokers")
    )
    fields = {"kind": "move-bundle", "namespace": "public/default", "bundle": bundle}
    assert "Owner" in browser.page("/bundle", namespace="public/default", bundle=bundle)
    done = browser.confirm("/change", fields, browser.page("/change", **fields))
    assert "The bundle was unloaded" in done
    producer.send(b"after the unload")
    ends = time.monotonic() + 15
    while "Latency, publish" not in (overview := browser.page("/")):  # pages of brokers are kept for 4 s
        assert time.monotonic() < ends, overview
        time.sleep(0.5)
    assert re.search(r"broker \S+: ready", overview)


def test_a_standalone_has_no_bookies(browser: Browser) -> None:
    assert "has no bookies" in browser.page("/bookies")
    assert "ledgers read" in browser.page("/bookies/ledgers")


def test_live_figures_come_as_events(browser: Browser, client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).send(b"one")
    url = f"{browser.base}/topic/live?{urlencode({'topic': topic})}"
    with urllib.request.urlopen(url, timeout=20) as response:
        event = json.loads(response.readline().removeprefix(b"data: "))
    assert (event["in"], event["out"]) == (1, 0)


def test_looking_creates_no_topic(browser: Browser, rest: Rest, topic: str) -> None:
    for path in ("/topic", "/messages", "/publish", "/topic/ledgers"):
        assert browser.open(f"{path}?{urlencode({'topic': topic})}")[0] == 404, path
    assert topic not in rest.get("/persistent/public/default")
