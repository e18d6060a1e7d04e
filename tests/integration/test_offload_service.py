"""Offload jobs' calls of a real server: what was published is described and read, and steps outlive kills.

Each test runs over a standalone and over a broker with bookies.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pulsar
import pytest
from magnetar.common.errors import NoSuchEntry, TopicNotFound
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.offload.client_calls import Described
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import COMPLETE, RUNNING, WANTED, CompleteRequest, Ledger
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    OffloadedAlready,
    OffloadRunning,
)
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.offload_reads import read_runs

from tests.cluster.processes import BrokerProcess
from tests.integration.clients import publish
from tests.integration.conftest import Server
from tests.integration.rest import Rest

SERVER_SETTINGS = {
    "magnetarOffloadStaleAfterSeconds": "2",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}

LOCATION = "s3://bucket/prefix"
A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def jobs(server: Server) -> Iterator[OffloadChannel]:
    """What a job has of the server."""
    with OffloadChannel(server.jobs_address) as channel:
        yield channel


def runs_of(channel: OffloadChannel, ledger: Ledger) -> list[Run]:
    ref = LedgerRef(ledger.ledger_id, ledger.ledger_key)
    return list(read_runs(channel, ledger.topic, ref, 0, ledger.last_entry_id, sleep=time.sleep))


def entries_of(channel: OffloadChannel, ledgers: list[Ledger]) -> list[bytes]:
    return [entry for ledger in ledgers for run in runs_of(channel, ledger) for entry in run.entries]


def complete(channel: OffloadChannel, ledger: Ledger, attempt: bytes) -> Ledger:
    return channel.complete(
        CompleteRequest(
            topic=ledger.topic,
            creation_id=ledger.creation_id,
            ledger_id=ledger.ledger_id,
            attempt=attempt,
            entries=ledger.entries,
            rows=ledger.entries,
            object_bytes=1,
            manifest_sha256=b"s" * 32,
        )
    )


def begin(channel: OffloadChannel, ledger: Ledger, attempt: bytes) -> Ledger:
    return channel.begin(ledger.topic, ledger.creation_id, ledger.ledger_id, attempt)


def payloads(count: int, size: int = 0) -> list[bytes]:
    return [b"payload-%06d-" % number + bytes(size) for number in range(count)]


class Filling:
    """Publishes lots, each to a ledger of its own; the last one stays open."""

    def __init__(self, client: pulsar.Client, rest: Rest, topic: str) -> None:
        self._client = client
        self._rest = rest
        self._topic = topic

    def publish(self, *lots: list[bytes]) -> list[pulsar.MessageId]:
        ids = []
        for number, lot in enumerate(lots):
            if number:
                self._rest.do("PUT", f"/{self._topic.replace('://', '/')}/unload")
            ids += publish(self._client, self._topic, lot)
        return ids


@pytest.fixture
def filling(client: pulsar.Client, rest: Rest, topic: str) -> Filling:
    return Filling(client, rest, topic)


def test_every_entry_is_in_one_ledger_and_is_read_as_it_was_published(
    filling: Filling, topic: str, jobs: OffloadChannel
) -> None:
    assert jobs.topics(pattern=topic) == []
    given = payloads(110)
    ids = filling.publish(*(given[at : at + 20] for at in range(0, 110, 20)))
    assert jobs.topics([topic]) == jobs.topics(pattern=topic) == [topic]
    found: Described = jobs.describe(topic)
    assert found.address == jobs.address
    assert [ledger.entries for ledger in found.ledgers] == [20] * 5 + [10]
    assert [bool(ledger.closed_ms) for ledger in found.ledgers] == [True] * 5 + [False]
    assert [ledger.first_index for ledger in found.ledgers] == [0, 20, 40, 60, 80, 100]
    described = [
        (ledger.ledger_id, entry_id) for ledger in found.ledgers for entry_id in range(ledger.entries)
    ]
    assert described == [(each.ledger_id(), each.entry_id()) for each in ids]
    entries = entries_of(jobs, found.ledgers)
    assert len(entries) == len(given)
    assert all(entry.endswith(payload) for entry, payload in zip(entries, given, strict=True))
    first = found.ledgers[0]
    with pytest.raises(NoSuchEntry):
        list(jobs.read(topic, first.ledger_id, first.ledger_key, 0, 20))


def test_service_reports_the_bookies_of_closed_ledgers(
    filling: Filling, topic: str, jobs: OffloadChannel, server: Server
) -> None:
    filling.publish(payloads(20), payloads(10))
    closed, written = jobs.describe(topic).ledgers
    assert not written.HasField("bookies")
    assert closed.HasField("bookies") == isinstance(server, BrokerProcess)
    if isinstance(server, BrokerProcess):
        metadata = decode(LedgerMetadata, closed.bookies.ledger_metadata)
        bookies = {bookie for fragment in metadata.fragments for bookie in fragment.bookie_ids}
        assert set(closed.bookies.addresses) == bookies
        assert len(bookies) == 3


def test_a_job_takes_ledgers_one_by_one_and_a_second_one_leaves_them_alone(
    filling: Filling, topic: str, jobs: OffloadChannel
) -> None:
    filling.publish(payloads(20), payloads(20), payloads(20), payloads(10))
    with pytest.raises(BadLocation, match="magnetarOffloadLocation"):
        jobs.want(topic)
    wanted = jobs.want(topic, location=LOCATION)
    assert [ledger.offload.state for ledger in wanted] == [WANTED] * 3
    waiting = jobs.wanted([topic]).ledgers
    assert [ledger.ledger_id for ledger in waiting] == [ledger.ledger_id for ledger in wanted]
    begun = begin(jobs, wanted[0], A)
    assert (begun.offload.state, begun.offload.location) == (RUNNING, LOCATION)
    assert begun.offload.path.endswith(f"ledger={begun.ledger_id}/attempt={A.hex()}")
    with OffloadChannel(jobs.address) as second, pytest.raises(OffloadRunning):
        begin(second, wanted[0], B)
    assert complete(jobs, begun, A).offload.state == COMPLETE
    begin(jobs, wanted[1], A)
    jobs.fail(topic, begun.creation_id, wanted[1].ledger_id, A, "no space left")
    (failed,) = (each for each in jobs.wanted([topic]).ledgers if each.offload.failures)
    assert (failed.ledger_id, failed.offload.error) == (wanted[1].ledger_id, "no space left")
    attempts = jobs.attempts(LOCATION)
    assert attempts.complete
    assert begun.offload.path in attempts.paths
    assert failed.offload.path not in attempts.paths
    assert [ledger.offload.state for ledger in jobs.describe(topic).ledgers] == [COMPLETE, WANTED, WANTED, 0]


@pytest.mark.full
def test_steps_outlive_a_killed_server_and_may_be_taken_again_then(
    filling: Filling, topic: str, jobs: OffloadChannel, server: Server
) -> None:
    filling.publish(payloads(20), payloads(20), payloads(10))
    first, second = jobs.want(topic, location=LOCATION)
    begin(jobs, first, A)
    server.kill()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(begin, jobs, first, A)  # a job that is at work goes on and waits
        server.start()
        assert call.result(60).offload.attempt == A
    assert complete(jobs, first, A).offload.state == COMPLETE
    begin(jobs, second, A)
    server.kill_and_start()
    assert complete(jobs, first, A).offload.state == COMPLETE
    assert [ledger.ledger_id for ledger in jobs.wanted([topic]).ledgers] in ([], [second.ledger_id])


def test_the_ledger_of_a_job_that_died_goes_to_the_next_one(
    filling: Filling, topic: str, jobs: OffloadChannel
) -> None:
    filling.publish(payloads(20), payloads(5))
    (ledger,) = jobs.want(topic, location=LOCATION)
    begin(jobs, ledger, A)
    deadline = time.monotonic() + 60
    while not jobs.wanted([topic]).ledgers:
        assert time.monotonic() < deadline, "the dead job's ledger never came back"
        time.sleep(0.1)
    taken = begin(jobs, ledger, B)
    assert (taken.offload.attempt, taken.offload.failures) == (B, 1)
    with pytest.raises(AttemptOver):
        complete(jobs, ledger, A)
    complete(jobs, ledger, B)


def test_a_read_goes_on_behind_a_kill_without_losing_or_doubling_an_entry(
    filling: Filling, topic: str, jobs: OffloadChannel, server: Server
) -> None:
    given = payloads(20, 1 << 20)
    filling.publish(given, payloads(1))
    ledger = jobs.describe(topic).ledgers[0]
    assert ledger.closed_ms
    ref = LedgerRef(ledger.ledger_id, ledger.ledger_key)
    reading = read_runs(jobs, topic, ref, 0, ledger.last_entry_id, sleep=time.sleep)
    entries = list(next(reading).entries)
    server.kill_and_start()
    entries += [entry for run in reading for entry in run.entries]
    assert len(entries) == len(given)
    assert all(entry.endswith(payload) for entry, payload in zip(entries, given, strict=True))


def take_all(address: str, ledgers: list[Ledger]) -> list[int]:
    """A job that takes what it gets, reads it whole and says that it is complete; returns which it got."""
    taken = []
    with OffloadChannel(address) as channel:
        for ledger in ledgers:
            attempt = uuid.uuid4().bytes
            try:
                begin(channel, ledger, attempt)
            except (OffloadRunning, OffloadedAlready):
                continue
            assert len(entries_of(channel, [ledger])) == ledger.entries
            try:
                complete(channel, ledger, attempt)
            except AttemptOver:
                continue  # it took longer than a job may be silent here, and another one has it
            taken.append(ledger.ledger_id)
    return taken


def test_many_jobs_at_once_share_the_ledgers(filling: Filling, topic: str, jobs: OffloadChannel) -> None:
    filling.publish(*(payloads(20) for _ in range(12)), payloads(1))
    wanted = jobs.want(topic, location=LOCATION)
    assert len(wanted) == 12
    with ThreadPoolExecutor(4) as threads:
        shares = threads.map(lambda _: take_all(jobs.address, wanted), range(4))
        taken = [ledger_id for share in shares for ledger_id in share]
    assert sorted(taken) == [ledger.ledger_id for ledger in wanted]
    assert list(jobs.wanted([topic]).ledgers) == []


@pytest.mark.full
def test_jobs_go_on_while_the_server_is_killed_again_and_again(
    filling: Filling, topic: str, jobs: OffloadChannel, server: Server
) -> None:
    filling.publish(*(payloads(20) for _ in range(6)), payloads(1))
    wanted = jobs.want(topic, location=LOCATION)
    stop = Event()

    def job(_: int) -> list[int]:
        taken: list[int] = []
        while not stop.is_set():
            taken += take_all(jobs.address, wanted)
            if not jobs.wanted([topic]).ledgers and all_complete():
                break
            time.sleep(0.05)
        return taken

    def all_complete() -> bool:
        found = {ledger.ledger_id: ledger.offload.state for ledger in jobs.describe(topic).ledgers}
        return all(found[ledger.ledger_id] == COMPLETE for ledger in wanted)

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(job, number) for number in range(3)]
        try:
            for _ in range(2):
                server.kill_and_start()
            taken = [ledger_id for each in running for ledger_id in each.result(120)]
        finally:
            stop.set()
    assert sorted(taken) == [ledger.ledger_id for ledger in wanted], "each is complete, and once"
    attempts = jobs.attempts(LOCATION).paths
    for ledger in jobs.describe(topic).ledgers[:-1]:
        if ledger.offload.state == COMPLETE:
            assert [path for path in attempts if f"ledger={ledger.ledger_id}/" in path] == [
                ledger.offload.path
            ]


def test_a_topic_that_is_not_there_is_an_error(jobs: OffloadChannel) -> None:
    for call in (jobs.describe, jobs.want, lambda name: jobs.topics([name])):
        with pytest.raises(TopicNotFound):
            call("persistent://public/default/nobody")
