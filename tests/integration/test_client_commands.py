"""`magnetar produce`, `consume` and `perf` against a running broker, beside the PyPI client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main
from magnetar.client import Client
from magnetar.testing.free_ports import free_ports

from tests.integration.clients import drain, publish, receive
from tests.integration.conftest import Server
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

Run = Callable[..., Result]


@pytest.fixture
def run(endpoint: Endpoint) -> Run:
    """Runs a command of `magnetar` in this process."""

    def act(*arguments: str, url: str = endpoint.service_url, code: int = 0) -> Result:
        done = CliRunner().invoke(main, [*arguments, "--url", url])
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done

    return act


def consumed(run: Run, topic: str, count: int, *more: str) -> list[dict[str, Any]]:
    done = run("consume", topic, "-s", "cli", "-p", "earliest", "-n", str(count), "--json", *more)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_produced_messages_reach_other_clients_unchanged(run: Run, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    done = run("produce", topic, "-m", "a,b", "-m", "c", "-k", "key", "-p", "x=1,y=2", "-n", "2")
    assert "6 messages successfully produced" in done.stderr
    first = receive(consumer)
    assert (first.data(), first.partition_key(), first.properties()) == (b"a", "key", {"x": "1", "y": "2"})
    consumer.acknowledge(first)
    assert drain(consumer, 5) == [b"b", b"c", b"a", b"b", b"c"]


def test_messages_of_other_clients_are_consumed_once(run: Run, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib)
    producer.send(b"compressed", properties={"a": "b"}, partition_key="k")
    producer.close()
    chunked = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    chunked.send(b"x" * 6_000_000)
    first, second = consumed(run, topic, 2)
    assert (first["content"], first["key"], first["properties"]) == ("compressed", "k", {"a": "b"})
    assert len(second["content"]) == 6_000_000
    chunked.send(b"last")
    (last,) = consumed(run, topic, 1)
    assert last["content"] == "last"


def test_only_shown_messages_of_a_batch_are_acknowledged(run: Run, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "cli").close()
    run("produce", topic, "-m", "a,b,c,d")
    assert [each["content"] for each in consumed(run, topic, 1)] == ["a"]
    assert [each["content"] for each in consumed(run, topic, 3)] == ["b", "c", "d"]


class Order(pulsar.schema.Record):  # type: ignore[misc]
    item = pulsar.schema.String()
    count = pulsar.schema.Integer()


@pytest.mark.parametrize("kind", [pulsar.schema.AvroSchema, pulsar.schema.JsonSchema])
def test_content_is_decoded_by_the_topic_s_schema_when_asked(
    run: Run, client: pulsar.Client, topic: str, kind: Any
) -> None:
    producer = client.create_producer(topic, schema=kind(Order))
    for _ in range(3):
        producer.send(Order(item="pen", count=3))
    value = {"item": "pen", "count": 3}
    (found,) = consumed(run, topic, 1, "--schema-type", "auto_consume")
    assert found["value"] == value
    shown = run("consume", topic, "-s", "cli", "-st", "auto_consume").stdout
    assert json.loads(shown.partition("content:")[2]) == value
    (raw,) = consumed(run, topic, 1)
    assert "value" not in raw


def test_partitioned_topics_and_patterns(run: Run, rest: Rest, namespace: str) -> None:
    topic = f"persistent://{namespace}/parted"
    rest.do("PUT", f"/persistent/{namespace}/parted/partitions", 3)
    run("produce", topic, "-m", "x", "-n", "30", "-db")
    run("produce", topic, "-m", "y", "-n", "5", "-k", "one-key")
    messages = consumed(run, topic, 35)
    assert len({each["topic"] for each in messages if each["content"] == "x"}) == 3
    assert len({each["topic"] for each in messages if each["content"] == "y"}) == 1
    run("produce", f"persistent://{namespace}/other", "-m", "z")
    found = consumed(run, f"{namespace}/(parted|oth.*)", 36, "--regex", "-s", "all", "-t", "shared")
    assert sorted(each["content"] for each in found) == ["x"] * 30 + ["y"] * 5 + ["z"]


def test_text_is_as_pulsar_client_shows_it(run: Run, client: pulsar.Client, topic: str) -> None:
    publish(client, topic, [b"\xff\x00"])
    done = run("consume", topic, "-s", "s", "-p", "Earliest", "--hex")
    assert done.stdout == "----- got message -----\nkey:[null], properties:[], content:ff00\n"


def test_errors_say_what_to_do_next(run: Run, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    assert "--subscription-name" in run("consume", topic, "-s", "s", code=1).stderr
    assert "too many '/'" in run("produce", "a/b/c/d", "-m", "x", code=1).stderr
    assert "give --messages" in run("produce", topic, code=2).stderr
    (port,) = free_ports(1)
    assert (
        "start a broker" in run("produce", topic, "-m", "x", url=f"pulsar://127.0.0.1:{port}", code=3).stderr
    )
    assert "larg" in run("produce", topic, "-m", "x" * 6_000_000, code=1).stderr.replace("at most", "larger")


def test_doctor_publishes_a_message_and_reads_it_back(endpoint: Endpoint) -> None:
    arguments = ["doctor", "--cluster-only", "--url", endpoint.service_url, "--admin-url", endpoint.http_url]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    found = {each["check"]: each for each in json.loads(done.stdout)}
    probe = found["message through persistent://public/default/magnetar-doctor"]
    assert probe["found"].startswith("published and read back, in "), probe


def test_perf_measures_both_ways(run: Run, topic: str) -> None:
    done = run("perf", "produce", topic, "-r", "0", "-m", "2000", "-s", "10", "--json")
    figures = json.loads(done.stdout)
    assert (figures["messages"], figures["bytes"]) == (2_000, 20_000)
    assert 0 < figures["latencyMs"]["p50"] <= figures["latencyMs"]["max"]
    done = run("perf", "consume", topic, "-sp", "Earliest", "-m", "2000", "--json")
    assert json.loads(done.stdout)["messages"] >= 2_000
    done = run("perf", "produce", topic, "-r", "1000", "-time", "0.2", "-mk", "random")
    assert "latencyMs p99.9\t" in done.stdout


def test_producers_and_consumers_follow_their_topic(endpoint: Endpoint, rest: Rest, topic: str) -> None:
    """Unloading closes both; nothing is lost, and order is kept."""
    unload = topic.replace("://", "/")

    async def scenario() -> list[bytes]:
        received: list[bytes] = []
        async with Client(endpoint.service_url) as client:
            consumer = await client.subscribe(topic, "s", initial_position="earliest")
            producer = await client.create_producer(topic)
            for number in range(300):
                producer.send_nowait(b"%d" % number)
                if number % 100 == 50:
                    await asyncio.to_thread(rest.do, "PUT", f"/{unload}/unload")
            await producer.flush()
            while len(set(received)) < 300:
                message = await consumer.receive(30)
                received.append(message.data)
                await consumer.acknowledge(message)
        return received

    received = asyncio.run(scenario())
    assert sorted(set(received), key=int) == [b"%d" % number for number in range(300)]
    assert list(dict.fromkeys(received)) == sorted(set(received), key=int)


def test_producers_and_consumers_come_back_after_a_restart(server: Server, topic: str) -> None:
    """What was not confirmed is sent again, what was not acknowledged is delivered again."""

    async def scenario() -> list[bytes]:
        received: list[bytes] = []
        async with Client(server.endpoint.service_url) as client:
            consumer = await client.subscribe(topic, "s", initial_position="earliest")
            producer = await client.create_producer(topic)
            for payload in (b"before", b"after"):
                await producer.send(payload)
                while payload not in received:
                    message = await consumer.receive(30)
                    await consumer.acknowledge(message)
                    received.append(message.data)
                if payload == b"before":
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
        return received

    received = asyncio.run(scenario())
    # An acknowledgement of the last moment may be lost with the connection.
    assert list(dict.fromkeys(received)) == [b"before", b"after"]
