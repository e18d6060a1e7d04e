"""Clients read history that has left for Parquet: the same messages, ids, batches, keys and properties."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.common.offload.offload_client import OffloadChannel

from tests.integration.harness import eventually, temporary_directory
from tests.integration.small_job import offload_all
from tests.spark.servers import RECEIVE_MS_MAX, SparkServer, close_ledgers, publish, pulsar_client

SETTINGS = {"managedLedgerOffloadDeletionLagMs": "0", "magnetarOffloadRefreshIntervalSeconds": "1"}
TOPIC = "persistent://public/default/history"
BATCHED, ALONE, COMPRESSED, RECENT = 200, 30, 100, 40
ALL = BATCHED + ALONE + COMPRESSED + RECENT
LEFT_SECONDS_MAX = 120.0

Seen = tuple[Any, ...]


def seen(message: pulsar.Message) -> Seen:
    """What an application can tell of a message."""
    found = message.message_id()
    return (
        (found.ledger_id(), found.entry_id(), found.batch_index(), found.partition()),
        message.data(),
        message.partition_key(),
        message.properties(),
        message.event_timestamp(),
        message.publish_timestamp(),
        message.ordering_key() if hasattr(message, "ordering_key") else None,
        message.redelivery_count(),
    )


def read(client: pulsar.Client, count: int, start: Any = pulsar.MessageId.earliest) -> list[pulsar.Message]:
    reader = client.create_reader(TOPIC, start)
    try:
        return [reader.read_next(RECEIVE_MS_MAX) for _ in range(count)]
    finally:
        reader.close()


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    """To the subscription that has acknowledged every second entry of the first ones."""
    return client.subscribe(
        TOPIC,
        "half",
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


@dataclass
class History:
    """A server whose topic has two ledgers in Parquet alone and a recent one in its log."""

    server: SparkServer
    before: list[pulsar.Message]
    acked: set[bytes]
    objects: Path


def backlog(server: SparkServer) -> int:
    """Entries that the subscription has not acknowledged."""
    stats = server.rest.get(f"/{TOPIC.replace('://', '/')}/stats")
    return int(stats["subscriptions"]["half"]["msgBacklog"])


def is_left(server: SparkServer, ledgers: int) -> bool:
    with OffloadChannel(server.offload_address) as channel:
        found = channel.describe(TOPIC).ledgers
    return sum(ledger.offload.left_bookies_ms > 0 for ledger in found) == ledgers


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    directory, objects = temporary_directory(), temporary_directory()
    server = SparkServer(directory, SETTINGS)
    try:
        server.start()
        with pulsar_client(server.endpoint) as client:
            subscribe(client).close()

            def numbered(name: str, count: int, **options: Any) -> None:
                publish(
                    client,
                    TOPIC,
                    [b"%s %d" % (name.encode(), number) for number in range(count)],
                    message=lambda number: {
                        "partition_key": f"key {number % 7}",
                        "properties": {"of": name, "number": str(number)},
                        "event_timestamp": 1_700_000_000_000 + number,
                    },
                    **options,
                )

            numbered("batched", BATCHED, batch=25)
            numbered("alone", ALONE, batch=1)
            close_ledgers(server.rest, TOPIC)
            numbered("compressed", COMPRESSED, batch=20, compression_type=pulsar.CompressionType.ZLib)
            close_ledgers(server.rest, TOPIC)
            numbered("recent", RECENT, batch=10)
            everything, acked, entries = backlog(server), set(), set()
            # Not before: what a consumer acknowledges while its topic is closed may not reach the broker.
            subscription = subscribe(client)
            for _ in range(BATCHED):
                message = subscription.receive(RECEIVE_MS_MAX)
                entry_id = message.message_id().entry_id()
                if entry_id % 2:
                    subscription.acknowledge(message)
                    acked.add(message.data())
                    entries.add(entry_id)
            # The client sends acknowledgements when it likes to.
            eventually(lambda: backlog(server) == everything - len(entries), "the broker has them")
            subscription.close()
            before = read(client, ALL)
            assert len(offload_all(server.offload_address, TOPIC, objects.as_uri())) == 2
            eventually(lambda: is_left(server, 2), "both closed ledgers left the log", LEFT_SECONDS_MAX)
        server.stop()
        server.start()  # nothing of it is in memory any more
        yield History(server, before, acked, objects)
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(objects, ignore_errors=True)


@pytest.mark.full
def test_everything_is_as_it_was_across_the_border_of_the_log(history: History) -> None:
    with pulsar_client(history.server.endpoint) as client:
        assert list(map(seen, read(client, ALL))) == list(map(seen, history.before))


def test_readers_begin_at_any_message_and_after_any_time(history: History) -> None:
    before = history.before
    with pulsar_client(history.server.endpoint) as client:
        for number in (0, 7, 24, 25, BATCHED - 1, BATCHED, BATCHED + ALONE - 1, BATCHED + ALONE + 33):
            following = min(30, ALL - number - 1)
            found = read(client, following, before[number].message_id())
            expected = before[number + 1 : number + 1 + following]
            assert list(map(seen, found)) == list(map(seen, expected)), number
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        for number in (60, BATCHED + 12, BATCHED + ALONE + 50, 3):
            reader.seek(before[number].publish_timestamp())
            found_first = reader.read_next(RECEIVE_MS_MAX)
            # By the broker's time of an entry: never behind the message.
            assert found_first.publish_timestamp() <= before[number].publish_timestamp() + 1_000
            assert seen(found_first) in list(map(seen, before[: number + 1]))
        reader.close()


def test_a_subscription_gets_what_it_had_not_acknowledged_and_nothing_twice(history: History) -> None:
    with pulsar_client(history.server.endpoint) as client:
        consumer = subscribe(client)
        expected = {message.data() for message in history.before} - history.acked
        found: list[bytes] = []
        while len(found) < len(expected):
            message = consumer.receive(RECEIVE_MS_MAX)
            consumer.acknowledge(message)
            found.append(message.data())
        assert len(set(found)) == len(found)
        assert set(found) == expected
        with pytest.raises(pulsar.Timeout):
            consumer.receive(500)
        consumer.close()


def test_several_readers_at_once_do_not_disturb_each_other(history: History) -> None:
    with pulsar_client(history.server.endpoint) as client:
        readers = [client.create_reader(TOPIC, pulsar.MessageId.earliest) for _ in range(4)]
        found: list[list[Seen]] = [[] for _ in readers]
        while any(len(each) < ALL for each in found):
            for number, (reader, each) in enumerate(zip(readers, found, strict=True)):
                for _ in range(min(10 * (number + 1), ALL - len(each))):
                    each.append(seen(reader.read_next(RECEIVE_MS_MAX)))
        assert all(each == list(map(seen, history.before)) for each in found)
        for reader in readers:
            reader.close()


@pytest.mark.full
def test_objects_that_went_missing_are_waited_for_and_the_log_is_read_all_the_same(history: History) -> None:
    aside = history.objects.with_name(history.objects.name + "-aside")
    history.objects.rename(aside)
    try:
        history.server.stop()
        history.server.start()
        with pulsar_client(history.server.endpoint) as client:
            recent = history.before[-RECENT]
            assert seen(read(client, 1, recent.message_id())[0]) == seen(history.before[1 - RECENT])
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            with pytest.raises(pulsar.Timeout):
                reader.read_next(1_500)
            aside.rename(history.objects)
            assert seen(reader.read_next(RECEIVE_MS_MAX)) == seen(history.before[0])
            reader.close()
    finally:
        if aside.exists():
            aside.rename(history.objects)
