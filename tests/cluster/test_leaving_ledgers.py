"""Ledgers leave bookies while brokers and bookies are killed: whoever reads the topic gets every message."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import pulsar
import pytest
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.keys import delete_ledger_intent_id
from magnetar.common.metadata.values import TopicHead, decode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_client import OffloadChannel

from tests.cluster.ledger_client import KEYS, LedgerClient
from tests.cluster.processes import BrokerProcess, Cluster
from tests.cluster.test_faults_bookies import QUICK
from tests.integration.harness import eventually
from tests.integration.small_job import offload

SETTINGS: Final = {
    "metadataStoreSessionTimeoutMillis": "6000",
    "magnetarAddEntryTimeoutSeconds": "2",
    "bookkeeperClientTimeoutInSeconds": "2",
    "brokerDeduplicationEnabled": "true",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerOffloadDeletionLagMs": "0",
    "magnetarOffloadRefreshIntervalSeconds": "1",
    "magnetarOffloadStaleAfterSeconds": "1",
}
BOOKIES: Final = {**QUICK, "metadataStoreSessionTimeoutMillis": "6000"}
SESSION_S: Final = 6.0
TOPIC: Final = "persistent://public/default/leaving"
CALM_SECONDS_MAX: Final = 150.0
RECEIVE_MS_MAX: Final = 60_000


@contextmanager
def client_of(brokers: list[BrokerProcess]) -> Iterator[pulsar.Client]:
    hosts = ",".join(broker.endpoint.service_url.removeprefix("pulsar://") for broker in brokers)
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://{hosts}", operation_timeout_seconds=60, logger=logger)
    try:
        yield client
    finally:
        client.close()


class Worker(threading.Thread):
    """Works until it is told to end; `finish` raises what went wrong."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.ending.set()
        self.join(CALM_SECONDS_MAX)
        assert not self.is_alive(), f"{self} does not end"
        if self.error is not None:
            raise self.error


class Writer(Worker):
    """Publishes numbers, one after another, over every broker that comes and goes."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        super().__init__()
        self.confirmed = 0
        self._brokers = brokers

    def work(self) -> None:
        with client_of(self._brokers) as client:
            producer = client.create_producer(
                TOPIC, producer_name="writer", batching_enabled=False, send_timeout_millis=0
            )
            for number in itertools.count():
                if self.ending.is_set():
                    return
                producer.send(b"%d" % number)
                self.confirmed = number + 1
                time.sleep(0.005)


class Follower(Worker):
    """Reads from the first message on while others are still written, wherever they lie by then."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        super().__init__()
        self.found: list[int] = []
        self._brokers = brokers

    def work(self) -> None:
        with client_of(self._brokers) as client:
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            while not self.ending.is_set():
                with suppress(pulsar.Timeout):
                    self.found.append(int(reader.read_next(500).data()))


class Jobs(Worker):
    """Offloads whatever is closed, at whichever broker answers; those that are cut off are begun again."""

    def __init__(self, brokers: list[BrokerProcess], location: str) -> None:
        super().__init__()
        self.completed = 0
        self._brokers = brokers
        self._location = location

    def work(self) -> None:
        turn = itertools.cycle(self._brokers)
        while not self.ending.is_set():
            with OffloadChannel(next(turn).jobs_address) as channel:
                try:
                    channel.want(TOPIC, location=self._location)
                    for ledger in channel.wanted([TOPIC]).ledgers:
                        offload(channel, TOPIC, self._location, ledger)
                        self.completed += 1
                except (MagnetarError, grpc.RpcError, OSError):
                    pass  # a broker or a bookie was killed under it, or the other one is at this ledger
            self.ending.wait(0.2)


def states(broker: BrokerProcess) -> list[bool] | None:
    """Of each closed ledger whether it left bookies; None when the broker cannot say now."""
    try:
        with OffloadChannel(broker.jobs_address) as channel:
            closed = [each for each in channel.describe(TOPIC).ledgers if each.closed_ms]
            return [each.offload.left_bookies_ms > 0 for each in closed]
    except (MagnetarError, grpc.RpcError, OSError):
        return None


def left(brokers: list[BrokerProcess]) -> int:
    return max((sum(found) for broker in brokers if broker.running and (found := states(broker))), default=0)


def all_left(broker: BrokerProcess) -> bool:
    time.sleep(0.3)
    found = states(broker)
    return found is not None and found != [] and all(found)


def owner_of(brokers: list[BrokerProcess]) -> BrokerProcess | None:
    for broker in brokers:
        if broker.running and (url := broker.where(TOPIC)):
            return next((each for each in brokers if each.endpoint.service_url == url), None)
    return None


@pytest.mark.full
@pytest.mark.timeout(600)
def test_kills_and_pauses_while_ledgers_leave_lose_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    randomness = random.Random(seed)
    objects = tmp_path / "objects"
    objects.mkdir()
    with Cluster.running(tmp_path, bookies=4, bookie_settings=BOOKIES) as cluster:
        brokers = [cluster.broker(SETTINGS), cluster.broker(SETTINGS)]
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.wait_until_healthy()
        writer, follower = Writer(brokers), Follower(brokers)
        jobs = Jobs(brokers, objects.as_uri())
        for worker in (writer, follower, jobs):
            worker.start()
        for fault in ("pause", "kill", "kill"):
            until_more_left(brokers, (writer, follower, jobs))
            time.sleep(randomness.uniform(0, 1.2))
            owner = owner_of(brokers) or randomness.choice(brokers)
            if fault == "pause":
                # Whatever it was about to do, it does after another one has taken its topic.
                owner.pause()
                time.sleep(SESSION_S + randomness.uniform(1, 3))
                owner.resume()
                continue
            bookie = randomness.choice(cluster.bookies)
            both = [bookie.kill, owner.kill]
            randomness.shuffle(both)
            for kill in both:
                kill()
            time.sleep(randomness.uniform(0, 2))
            for process in (bookie, owner):
                process.launch()
            for process in (bookie, owner):
                process.wait_until_healthy()
        until_more_left(brokers, (writer, follower, jobs))
        writer.finish()
        count = writer.confirmed
        for broker in brokers:
            eventually(partial(all_left, broker), "every closed ledger leaves", CALM_SECONDS_MAX)
        jobs.finish()
        ledgers = left(brokers)
        print(f"{count} messages, {ledgers} ledgers left, {jobs.completed} jobs")
        eventually(lambda: len(follower.found) >= count, "the follower is at the end", CALM_SECONDS_MAX)
        follower.finish()
        assert follower.found == list(range(count))
        for broker in brokers:
            assert read(broker, count) == list(range(count))
        asyncio.run(nothing_is_left_with_bookies(cluster, ledgers))


async def nothing_is_left_with_bookies(cluster: Cluster, ledgers: int) -> None:
    """Every closed ledger has its key with the topic and none but that, or a deletion is recorded."""
    async with LedgerClient.connected(cluster.etcd.url) as client:
        metadata = client.metadata
        found = await metadata.get(KEYS.topic_head(TopicName.parse(TOPIC)))
        assert found is not None
        creation_id = decode(TopicHead, found.value).creation_id
        closed = (await metadata.children(KEYS.topic_ledgers_prefix(creation_id))).items
        ids = [KEYS.topic_ledger_ids_of(each.key)[1] for each in closed]
        assert len(ids) == ledgers
        for ledger_id in ids:
            intended = await metadata.get(KEYS.intent(delete_ledger_intent_id(ledger_id)))
            assert intended is not None or await metadata.get(KEYS.ledger(ledger_id)) is None, ledger_id


def until_more_left(brokers: list[BrokerProcess], workers: Sequence[Worker]) -> None:
    """Until more ledgers have left than now, with everybody at work."""
    before = left(brokers)
    deadline = time.monotonic() + CALM_SECONDS_MAX
    while left(brokers) <= before:
        for worker in workers:
            assert worker.is_alive(), worker.error
        assert time.monotonic() < deadline, "no ledger leaves"
        time.sleep(0.3)


def read(broker: BrokerProcess, count: int) -> list[int]:
    """From the first message on, until none comes."""
    with client_of([broker]) as client:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found = [int(reader.read_next(RECEIVE_MS_MAX).data()) for _ in range(count)]
        assert not reader.has_message_available()
        reader.close()
    return found
