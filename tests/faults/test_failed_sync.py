"""Writes and syncs that fail with EIO: nothing is acknowledged falsely, and the log moves on by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.conftest import NewServer
from tests.faults.failing_disk import LOG, METADATA, FailingDisk
from tests.faults.observe import cpu_seconds, descriptors, log_lines
from tests.faults.traffic import Publisher, assert_promises_kept, keep, read_topic
from tests.integration.harness import StandaloneServer, eventually
from tests.integration.raw.transcript import line

SETTINGS = {"magnetarSegmentSizeBytes": str(4 << 20)}
CALLS = pytest.mark.parametrize("call", ["fdatasync", pytest.param("pwritev", marks=pytest.mark.full)])


@pytest.fixture
def disk(directory: Path) -> FailingDisk:
    return FailingDisk(directory)


@pytest.fixture
def server(new_server: NewServer, disk: FailingDisk) -> StandaloneServer:
    server = new_server(SETTINGS, environment=disk.environment)
    server.start()
    return server


@CALLS
def test_one_failed_group_is_not_acknowledged_and_publishing_goes_on(
    call: str, disk: FailingDisk, server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    publisher = Publisher(server.endpoint, topic, "p")
    publisher.start()
    for round_number in range(1, 6):
        publisher.more_receipts()
        disk.fail(call, LOG, once=True)
        publisher.until(lambda: disk.failed_once(call), "the fault")
        publisher.more_receipts()
        assert len(log_lines(server, "ledger failed")) >= round_number
    open_files = descriptors(server)
    publisher.finish()
    assert not publisher.disconnected
    assert not publisher.refused, "the log moved on: what was lost was written again"
    assert open_files < 80, "segments that failed stay open"
    server.kill_and_start()
    assert_promises_kept(publisher, read_topic(server.endpoint, topic))


@CALLS
def test_while_syncs_fail_nothing_is_acknowledged_and_publishing_resumes_by_itself(
    call: str, disk: FailingDisk, server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    publisher = Publisher(server.endpoint, topic, "p")
    publisher.start()
    publisher.more_receipts()
    disk.fail(call, LOG)
    publisher.until(lambda: bool(log_lines(server, "ledger failed")), "the fault")
    started, cpu = time.monotonic(), cpu_seconds(server)
    publisher.until(lambda: len(publisher.refused) > 300, "publishers hear of it, they do not hang", 30)
    seconds = time.monotonic() - started
    busy = (cpu_seconds(server) - cpu) / seconds
    print(f"{call} fails: {len(publisher.refused)} messages refused within {seconds:.1f} s, {busy:.0%} CPU")
    ledgers = {ledger for ledger, _ in list(publisher.confirmed.values())}
    assert len(ledgers) == 1, "acknowledged in a ledger that was made while no sync succeeds"
    assert set(publisher.refused.values()) <= {"PersistenceError", "behind"}
    assert busy < 0.5, "it tries again in a loop"
    disk.work(call)
    publisher.more_receipts()
    publisher.finish()
    assert not publisher.disconnected
    server.kill_and_start()
    assert_promises_kept(publisher, read_topic(server.endpoint, topic))


@pytest.mark.full
def test_a_kill_while_syncs_fail_loses_nothing_acknowledged(
    disk: FailingDisk, server: StandaloneServer, topic: str
) -> None:
    keep(server.endpoint, topic)
    publisher = Publisher(server.endpoint, topic, "p")
    publisher.start()
    publisher.more_receipts()
    disk.fail("fdatasync", LOG)
    publisher.until(lambda: bool(log_lines(server, "ledger failed")), "the fault")
    server.kill()
    publisher.finish()
    server.launch()
    eventually(lambda: not server.running, "it ends: what recovery found cannot be made durable", 60)
    disk.work("fdatasync")
    server.start()
    assert_promises_kept(publisher, read_topic(server.endpoint, topic))


@pytest.mark.full
def test_metadata_that_cannot_be_synced_is_not_believed(
    disk: FailingDisk, server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        position = c.publish(b"before")
        disk.fail("fdatasync", METADATA)
        request_id = c.request("producer", topic=topic + "-new", producer_id=2)
        answer = c.receive()
        disk.work("fdatasync")
        assert (answer.name, answer.command.request_id) == ("error", request_id)
        c.expect_quiet()
        position += c.publish(b"after", first=1)  # needs the log only
    server.kill_and_start()
    assert read_topic(server.endpoint, topic) == dict(zip(position, [b"before", b"after"], strict=True))
    with line(server.endpoint) as c:
        c.open_producer(topic + "-new")
        c.publish(b"new")
    eventually(lambda: server.running, "the server runs")
