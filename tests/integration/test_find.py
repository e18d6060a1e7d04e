"""`magnetar find` and `magnetar topics tail`: messages in the log and in objects, also of partitions."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main

from tests.integration.harness import eventually, temporary_directory
from tests.integration.small_job import offload_all
from tests.spark.servers import SparkServer, close_ledgers, publish, pulsar_client

TOPIC = "persistent://public/default/orders"
PARTED = "persistent://public/default/parted"
OLD, OLDER_BATCHED, RECENT, IN_PARTITION = 60, 60, 30, 20
COLORS = ("red", "green", "blue")
EVENT_MS = 1_600_000_000_000

Found = list[dict[str, Any]]


@dataclass
class Stored:
    """A server whose topics have offloaded ledgers and recent ones in its log."""

    server: SparkServer
    objects: Path
    between_ms: int
    """A time after all offloaded messages of TOPIC and before the recent ones."""

    def run(self, *arguments: str, code: int = 0) -> Result:
        """Runs a command in this process."""
        urls = ["--url", self.server.endpoint.service_url]
        if arguments[0] == "find":
            urls += ["--admin-url", self.server.endpoint.http_url]
        done = CliRunner().invoke(main, [*arguments, *urls])
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done

    def find(self, topic: str, *arguments: str, code: int = 0) -> tuple[Found, dict[str, Any]]:
        """The matches and the report of a search."""
        done = self.run("find", topic, "--json", *arguments, code=code)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]["report"]


def message(number: int) -> dict[str, Any]:
    return {
        "partition_key": f"key-{number}",
        "properties": {"color": COLORS[number % 3], "number": str(number)},
        "event_timestamp": EVENT_MS + number,
    }


def offloaded(server: SparkServer, topic: str) -> list[bool]:
    """Whether each ledger of a topic is known to be offloaded."""
    info = server.rest.get(f"/{topic.replace('://', '/')}/internal-info")
    return ["offloadedTo" in each for each in info["ledgers"]]


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    directory, objects = temporary_directory(), temporary_directory()
    server = SparkServer(directory, {"magnetarOffloadRefreshIntervalSeconds": "1"})
    try:
        server.start()
        with pulsar_client(server.endpoint) as client:
            number = 0

            def numbered(topic: str, count: int, batch: int) -> None:
                nonlocal number
                first = number
                payloads = [b'{"total": %d}' % (first + each) for each in range(count)]
                publish(client, topic, payloads, message=lambda each: message(first + each), batch=batch)
                number += count

            numbered(TOPIC, OLD, 1)
            close_ledgers(server.rest, TOPIC)
            numbered(TOPIC, OLDER_BATCHED, 20)
            close_ledgers(server.rest, TOPIC)
            server.rest.do("PUT", f"/{PARTED.replace('://', '/')}/partitions", 2)
            for partition in range(2):
                name = f"{PARTED}-partition-{partition}"
                numbered(name, IN_PARTITION, 5)
                close_ledgers(server.rest, name)
                numbered(name, IN_PARTITION, 5)
            for name in (TOPIC, f"{PARTED}-partition-0", f"{PARTED}-partition-1"):
                offload_all(server.offload_address, name, objects.as_uri())
                eventually(lambda name=name: any(offloaded(server, name)), "the owner knows")  # type: ignore[misc]
            between_ms = time.time_ns() // 1_000_000 + 1
            time.sleep(0.005)
            numbered(TOPIC, RECENT, 10)
        yield Stored(server, objects, between_ms)
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(objects, ignore_errors=True)


def contents(found: Found) -> list[int]:
    """The numbers in the contents of messages."""
    return [json.loads(each["content"])["total"] for each in found]


def test_cold_and_hot_messages_are_the_same_as_through_brokers(stored: Stored) -> None:
    found, report = stored.find(TOPIC, "--limit", "0")
    of_recent = list(range(number_of_recent(), number_of_recent() + RECENT))
    assert contents(found) == [*range(OLD + OLDER_BATCHED), *of_recent]
    assert report["complete"]
    objects = report["objects"]
    assert (objects["ledgers"], objects["rows"]) == (2, OLD + OLDER_BATCHED)
    assert 0 < objects["bytes"] <= objects["ofBytes"] + 20_000, "manifests come on top"
    assert report["brokers"]["messages"] == RECENT
    by_brokers, of_brokers = stored.find(TOPIC, "--limit", "0", "--through-brokers")
    assert by_brokers == found, "ids, keys, properties, times, producers and contents"
    assert of_brokers["brokers"]["messages"] == len(found)
    assert of_brokers["objects"]["ofLedgers"] == 0


def number_of_recent() -> int:
    return OLD + OLDER_BATCHED + 4 * IN_PARTITION


def test_conditions_choose_messages_in_both_places(stored: Stored) -> None:
    recent = number_of_recent()
    found, report = stored.find(TOPIC, "--property", "color=red", "--text", "9}", "--limit", "0")
    expected = [
        number
        for number in (*range(OLD + OLDER_BATCHED), *range(recent, recent + RECENT))
        if number % 3 == 0 and number % 10 == 9
    ]
    assert contents(found) == expected
    assert all(each["properties"]["color"] == "red" for each in found)
    for number in (7, OLD + 33, recent + 5):
        found, report = stored.find(TOPIC, "--key", f"key-{number}")
        assert [each["key"] for each in found] == [f"key-{number}"]
        at = found[0]["messageId"]
        (by_id,), report = stored.find(TOPIC, "--id", at)
        assert by_id == found[0]
        is_cold = number < recent
        read = (report["objects"]["ledgers"], report["brokers"]["messages"])
        assert read == (int(is_cold), 0 if is_cold else 10), "the entry's ledger, or its batch of ten"
    assert contents(stored.find(TOPIC, "--key", "no such key")[0]) == []


def test_times_choose_ledgers_and_messages(stored: Stored) -> None:
    recent = number_of_recent()
    found, report = stored.find(TOPIC, "--since", str(stored.between_ms))
    assert contents(found) == list(range(recent, recent + RECENT))
    assert report["objects"]["rows"] == 0, "statistics of row groups tell"
    found, _ = stored.find(TOPIC, "--until", str(stored.between_ms), "--limit", "0")
    assert contents(found) == list(range(OLD + OLDER_BATCHED))
    found, _ = stored.find(
        TOPIC, "--event-time", "--since", str(EVENT_MS + 58), "--until", str(EVENT_MS + 62)
    )
    assert contents(found) == [58, 59, 60, 61]
    found, report = stored.find(TOPIC, "--until", "2d")
    assert (found, report["objects"]["ledgers"]) == ([], 0), "not even a footer is read"


@pytest.mark.parametrize("limit", [37, OLD + OLDER_BATCHED + RECENT - 5])
def test_a_search_that_was_ended_goes_on_where_it_stopped(stored: Stored, limit: int) -> None:
    everything, _ = stored.find(TOPIC, "--limit", "0")
    taken: Found = []
    start: list[str] = []
    while True:
        found, report = stored.find(TOPIC, "--limit", str(limit), *start)
        taken += found
        if report["complete"]:
            break
        assert report["stoppedBy"] == "limit"
        start = ["--from", report["continueFrom"]]
    assert taken == everything
    done = stored.run("find", TOPIC, "--limit", "0", "--max-bytes", "1", code=4)
    assert "not everything was searched: stopped after" in done.stderr
    assert "(--max-bytes); continue with --from " in done.stderr
    rest = stored.run("find", TOPIC, "--limit", "0", "--from", done.stderr.split()[-1])
    assert len(done.stdout.splitlines()) + len(rest.stdout.splitlines()) == len(everything)


def test_all_partitions_are_searched_and_a_search_goes_on_in_one(stored: Stored) -> None:
    found, report = stored.find(PARTED, "--limit", "0")
    first = OLD + OLDER_BATCHED
    assert contents(found) == list(range(first, first + 4 * IN_PARTITION))
    assert {each["topic"] for each in found} == {f"{PARTED}-partition-{number}" for number in range(2)}
    assert (report["objects"]["ledgers"], report["brokers"]["messages"]) == (2, 2 * IN_PARTITION)
    _, report = stored.find(PARTED, "--limit", str(2 * IN_PARTITION + 7))
    after, _ = stored.find(PARTED, "--limit", "0", "--from", report["continueFrom"])
    assert after == found[2 * IN_PARTITION + 7 :]
    (by_id,), _ = stored.find(PARTED, "--id", found[-1]["messageId"])
    assert by_id == found[-1]
    done = stored.run("find", PARTED, "--from", "123456:0", code=2)
    assert "does not tell its partition" in done.stderr


def test_people_get_a_line_a_match_and_a_report(stored: Stored) -> None:
    done = stored.run("find", TOPIC, "--key", "key-7")
    (line,) = done.stdout.splitlines()
    assert line.endswith(':-1  key=key-7  color=green  number=7  {"total": 7}'), line
    assert "1 found in " in done.stderr
    assert "objects: read 2 of 2 ledgers, 1 of their 2 row groups with 60 rows, " in done.stderr
    done = stored.run("find", TOPIC, "--id", "999999:1")
    assert f"{TOPIC} has no ledger 999999 (any more)" in done.stderr
    assert "`magnetar admin topics list public/default`" in stored.run("find", "nowhere", code=1).stderr


def test_a_missing_object_is_named_and_left_out_only_if_asked(stored: Stored) -> None:
    part = next(stored.objects.glob("public/default/orders/**/part-*.parquet"))
    hidden = part.with_name("hidden")
    part.rename(hidden)
    try:
        done = stored.run("find", TOPIC, "--limit", "0", code=1)
        assert f"{part.name} at {stored.objects.as_uri()}: it is not there" in done.stderr
        assert "--skip-unreadable" in done.stderr
        found, report = stored.find(TOPIC, "--limit", "0", "--skip-unreadable", code=4)
        assert len(found) == OLD + RECENT, "both offloaded ledgers have as many messages"
        assert not report["complete"]
        (skipped,) = report["skipped"]
        assert part.name in skipped
    finally:
        hidden.rename(part)


Published = Callable[[], None]


def tailed(stored: Stored, *arguments: str, publishing: Published | None = None) -> Result:
    """A tail that ends by itself; `publishing` is called by a thread of its own."""
    thread = threading.Thread(target=publishing) if publishing is not None else None
    if thread is not None:
        thread.start()
    try:
        return stored.run("topics", "tail", "--for", "30s", *arguments)
    finally:
        if thread is not None:
            thread.join()


def test_a_tail_shows_new_messages_of_several_topics(stored: Stored) -> None:
    names = [f"persistent://public/default/tailed-{number}" for number in range(2)]
    with pulsar_client(stored.server.endpoint) as client:
        producers = [client.create_producer(name) for name in names]
        producers[0].send(b"before it")

        def is_followed(name: str) -> bool:
            stats = stored.server.rest.get(f"/{name.replace('://', '/')}/stats")
            return bool(stats["subscriptions"])

        def send() -> None:
            for name in names:
                eventually(lambda name=name: is_followed(name), f"{name} is followed")  # type: ignore[misc]
            for number, producer in enumerate(producers):
                producer.send(b"red %d" % number, partition_key="k", properties={"a": "b"})
                producer.send(b"blue\n\x1b[31m", partition_key="k")

        done = tailed(stored, *names, "--text", "red", "--count", "2", publishing=send)
        lines = sorted(line.split("  ", 2)[0::2] for line in done.stdout.splitlines())
        assert [topic for topic, _ in lines] == ["public/default/tailed-0", "public/default/tailed-1"]
        assert all(rest.endswith(f"key=k  a=b  red {number}") for number, (_, rest) in enumerate(lines))
        assert "2 messages shown" in done.stderr
        done = tailed(stored, "public/default/tailed-.*", "--regex", "--from", "earliest", "--count", "5")
        assert "before it" in done.stdout
        assert "\x1b" not in done.stdout
        for producer in producers:
            producer.close()
        done = tailed(stored, names[0], "--from", "1h", "--for", "1s", "--property", "a", "--json")
        (facts,) = map(json.loads, done.stdout.splitlines())
        assert (facts["content"], facts["properties"], facts["topic"]) == ("red 0", {"a": "b"}, names[0])
    stats = stored.server.rest.get("/persistent/public/default/tailed-0/stats")
    assert stats["subscriptions"] == {}, "nothing of it stays"


def test_a_tail_decodes_by_the_schema(stored: Stored) -> None:
    class Order(pulsar.schema.Record):  # type: ignore[misc]
        total = pulsar.schema.Integer()

    topic = "persistent://public/default/decoded"
    with pulsar_client(stored.server.endpoint) as client:
        producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order))
        producer.send(Order(total=99))
        producer.send(Order(total=1))
    done = tailed(stored, topic, "--from", "earliest", "--count", "1", "--text", '"total": 99')
    assert done.stdout.rstrip().endswith('{"total": 99}')
    done = tailed(stored, topic, "--from", "earliest", "--count", "2", "--json")
    assert [json.loads(line)["value"] for line in done.stdout.splitlines()] == [{"total": 99}, {"total": 1}]
