"""What survives the server: a clean stop loses nothing at all, a kill -9 nothing that was acknowledged."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pulsar
import pytest
from pulsar.schema import JsonSchema, Record
from pulsar.schema import String as StringField

from tests.integration.admin_calls import admin, path_of
from tests.integration.clients import drain, expect_nothing, publish, receive
from tests.integration.harness import StandaloneServer, magnetar_command
from tests.integration.raw.transcript import batch_messages, line, payload_frame

Restart = Callable[[], None]


class Greeting(Record):  # type: ignore[misc]
    text = StringField()


@pytest.fixture(params=[pytest.param("SIGTERM", marks=pytest.mark.full), "SIGKILL"])
def restart(request: pytest.FixtureRequest, server: StandaloneServer) -> Restart:
    """Stops and starts the server, once cleanly and once by a crash."""
    return server.restart if request.param == "SIGTERM" else server.kill_and_start


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def test_acknowledged_messages_are_there_after_a_restart(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(1_000))
    restart()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(2_000)
        messages = c.expect_messages(1_000)
        assert [m.payload for m in messages] == numbered(1_000)
        assert [m.position for m in messages] == positions
        c.expect_quiet()


def test_when_a_topic_was_created_and_last_published_to_is_known_after_a_restart(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    def times() -> tuple[int, int]:
        status, shown = admin(server.endpoint, "GET", path_of(topic, "stats"))
        assert status == 200
        return shown["topicCreationTimeStamp"], shown["lastPublishTimeStamp"]

    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(*numbered(3))
    before = times()
    assert 0 < before[0] <= before[1]
    restart()
    assert times() == before


def test_message_ids_go_on_rising_after_a_restart(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    before: list[tuple[int, int]] = []
    for run in range(3):
        if run:
            restart()
        with line(server.endpoint) as c:
            c.open_producer(topic)
            positions = c.publish(*numbered(5))
        assert positions[0] > max(before, default=(-1, -1))
        before += positions


def test_nothing_whose_acknowledgement_was_confirmed_is_delivered_again(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.open_producer(topic)
        positions = c.publish(*numbered(500))
        batch = c.publish_batch(numbered(10, 500), first=500)
        c.flow(1_000)
        c.expect_messages(501)
        kept = [7, 8, 100, 321, 499]
        c.ack(*[position for n, position in enumerate(positions) if n not in kept])
        c.ack(batch, ack_set=[0b1000000001])
    restart()
    with line(server.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.flow(1_000)
        singles = c.expect_messages(len(kept))
        assert [m.payload for m in singles] == [b"%d" % n for n in kept]
        rest = c.expect("message")
        assert rest.position == batch
        assert list(rest.command.ack_set) == [0b1000000001]
        assert batch_messages(rest.payload) == numbered(10, 500)
        c.expect_quiet()


def test_acknowledgements_without_receipt_count_after_a_clean_stop(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(100))
        c.flow(100)
        c.expect_messages(100)
        c.ack(positions[89], cumulative=True, receipt=False)
        c.send("ping")
        c.expect("pong")  # commands of one connection are taken in order
    server.restart()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(1_000)
        assert [m.payload for m in c.expect_messages(10)] == numbered(10, 90)
        c.expect_quiet()


@pytest.mark.full
def test_acknowledgements_without_receipt_are_kept_after_a_second(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(100))
        c.flow(100)
        c.expect_messages(100)
        c.ack(positions[89], cumulative=True, receipt=False)
        c.send("ping")
        c.expect("pong")
        time.sleep(2.5)  # flushed at least every second, by one log in which what is later is durable later
        c.open_producer(topic + "-later", producer_id=2)
        c.publish(b"later", producer_id=2)
        server.kill_and_start()
        c.expect_closed()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(1_000)
        assert [m.payload for m in c.expect_messages(10)] == numbered(10, 90)
        c.expect_quiet()


def test_a_crash_never_loses_what_was_not_acknowledged(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(50))
        c.flow(50)
        c.expect_messages(50)
        c.ack(positions[9], cumulative=True, receipt=False)
        c.send("ping")
        c.expect("pong")
        server.kill_and_start()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(1_000)
        got: list[bytes] = []
        while not got or got[-1] != b"49":
            got.append(c.expect("message").payload)
        # Acknowledgements that were not flushed may come back; what was not acknowledged must.
        assert got == numbered(len(got), 50 - len(got))
        assert len(got) >= 40
        c.expect_quiet()


def test_redelivery_counts_survive_a_clean_stop(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.open_producer(topic)
        c.publish(b"poison")
        c.flow(10)
        c.expect("message")
        for count in (1, 2):
            c.send("redeliverUnacknowledgedMessages", consumer_id=1)
            c.expect("message", redelivery_count=count)
    server.restart()
    with line(server.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.flow(10)
        c.expect("message", redelivery_count=2)


def test_a_seek_survives_a_restart(server: StandaloneServer, restart: Restart, topic: str) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(10))
        c.flow(10)
        c.expect_messages(10)
        c.ack(positions[9], cumulative=True)
        ledger, entry = positions[4]
        request_id = c.request("seek", consumer_id=1, message_id={"ledgerId": ledger, "entryId": entry})
        c.expect("close_consumer")
        c.expect("success", request_id=request_id)
    restart()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(100)
        assert [m.payload for m in c.expect_messages(6)] == numbered(6, 4)


def test_an_unsubscribed_subscription_stays_gone(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*numbered(5))
        c.expect("success", request_id=c.request("unsubscribe", consumer_id=1))
    restart()
    with line(server.endpoint) as c:
        c.subscribe(topic, initialPosition="Latest")
        c.flow(10)
        c.expect_quiet()


def test_an_empty_subscription_survives_and_waits(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic, initialPosition="Latest")
    restart()
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.publish(b"for whoever comes")
        c.subscribe(topic, initialPosition="Latest")
        c.flow(1)
        assert c.expect("message").payload == b"for whoever comes"


def test_clients_are_told_of_a_clean_stop(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        server.stop()
        told = {frame.name for frame in c.expect_closed()}
    assert {"close_producer", "close_consumer"} <= told


def test_messages_in_flight_at_a_clean_stop_are_there_or_were_never_confirmed(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.send_bytes(b"".join(payload_frame(1, n, b"%d" % n) for n in range(2_000)))
        c.expect("send_receipt", sequence_id=0)
        server.stop()
        confirmed = 1 + sum(frame.name == "send_receipt" for frame in c.expect_closed())
    server.start()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(5_000)
        assert [m.payload for m in c.expect_messages(confirmed)] == numbered(confirmed)


def test_generated_producer_names_are_not_used_again(
    server: StandaloneServer, restart: Restart, topic: str
) -> None:
    names = []
    for run in range(3):
        if run:
            restart()
        with line(server.endpoint) as c:
            names += [c.open_producer(topic, n).command.producer_name for n in range(1, 4)]
    assert len(set(names)) == 9, names


def test_a_client_library_goes_on_by_itself(
    new_client: Callable[..., pulsar.Client], restart: Restart, topic: str
) -> None:
    client = new_client(operation_timeout_seconds=30)
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    producer.send(b"before")
    assert drain(consumer, 1) == [b"before"]
    restart()
    producer.send(b"after")
    got = receive(consumer).data()
    if got == b"before":  # its acknowledgement may have been lost in the crash
        got = receive(consumer).data()
    assert got == b"after"


def test_a_durable_subscription_of_a_client_library_gets_nothing_twice_over_a_clean_stop(
    server: StandaloneServer, new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "sub", batch_index_ack_enabled=True)
    publish(client, topic, numbered(100), batching=True, messages_per_batch=10)
    drain(consumer, 45)
    client.close()  # sends the acknowledgements that the client still groups
    server.restart()
    again = new_client().subscribe(topic, "sub", batch_index_ack_enabled=True)
    assert drain(again, 55) == numbered(55, 45)
    expect_nothing(again)


def test_schemas_survive_a_restart(
    new_client: Callable[..., pulsar.Client], restart: Restart, topic: str
) -> None:
    before = new_client()
    before.subscribe(topic, "sub", schema=JsonSchema(Greeting)).close()
    before.create_producer(topic, schema=JsonSchema(Greeting)).send(Greeting(text="hello"))
    before.close()
    restart()
    after = new_client()
    after.create_producer(topic, schema=JsonSchema(Greeting)).send(Greeting(text="again"))
    consumer = after.subscribe(topic, "sub", schema=JsonSchema(Greeting))
    messages = [receive(consumer) for _ in range(2)]
    assert [m.value().text for m in messages] == ["hello", "again"]
    assert {m.schema_version() for m in messages} == {"\0" * 8}


def test_a_second_server_on_the_same_data_refuses_to_start(server: StandaloneServer) -> None:
    if not isinstance(server, StandaloneServer):
        pytest.skip("a broker has no data directory; tests/cluster has another broker take over")
    command = [*magnetar_command(), "standalone", "--data-dir", str(server.data_dir)]
    command += ["--set", "brokerServicePort=0", "--set", "webServicePort=0", "--set", "magnetarControlPort=0"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    assert str(server.data_dir) in (done.stdout + done.stderr).decode()
    with line(server.endpoint) as c:
        c.send("ping")
        c.expect("pong")
