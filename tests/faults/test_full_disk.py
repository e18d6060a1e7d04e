"""A disk that fills up: publishing is refused clearly and resumes by itself, everything else goes on.

The file systems are real and small; the test fills them with a ballast file, to the byte where it matters.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.faults.conftest import NewServer
from tests.faults.observe import cpu_seconds, log_lines
from tests.faults.small_disk import SmallDisk
from tests.integration.harness import StandaloneServer, eventually, page_at
from tests.integration.raw.transcript import Frame, Line, line, numbered, payload_frame, payloads

SEGMENT_BYTES = 256 << 10
HEADROOM_BYTES = 1 << 20
RESERVE_BYTES = 2 * SEGMENT_BYTES + HEADROOM_BYTES
SETTINGS = {
    "magnetarSegmentSizeBytes": str(SEGMENT_BYTES),
    "magnetarLogFillAheadBytes": str(64 << 10),
    "magnetarLogFreeSpaceHeadroomBytes": str(HEADROOM_BYTES),
}

KINDS = pytest.mark.parametrize("kind", ["ext4", pytest.param("tmpfs", marks=pytest.mark.full)])


def disk_and_server(
    kind: str, directory: Path, new_server: NewServer, cleanup: ExitStack, size_mib: int = 24, **settings: str
) -> tuple[SmallDisk, StandaloneServer]:
    disk = SmallDisk(kind, directory / "disk", size_mib, cleanup)
    server = new_server({**SETTINGS, **settings})
    server.data_dir = disk.path / "data"
    server.start()
    return disk, server


def offer(c: Line, topic: str, *messages: bytes) -> list[Frame]:
    """Send unbatched messages at once; the answers, which are receipts, then errors.

    A producer that is refused something is closed, and what comes behind is not answered; it is open again.
    """
    c.send_bytes(b"".join(payload_frame(1, n, one) for n, one in enumerate(messages)))
    answers: list[Frame] = []
    while len(answers) < len(messages):
        answers.append(c.receive())
        if answers[-1].name == "close_producer":
            answers.pop()
            break
    else:
        if answers[-1].name == "send_error":
            c.expect("close_producer", producer_id=1)
    assert [one.command.sequence_id for one in answers] == list(range(len(answers)))
    names = [one.name for one in answers]
    receipts = names.count("send_receipt")
    assert names == ["send_receipt"] * receipts + ["send_error"] * (len(names) - receipts)
    assert names, "something is answered"
    if names[-1] == "send_error":
        c.open_producer(topic)
    return answers


def assert_refused(answers: list[Frame]) -> None:
    for answer in answers:
        assert answer.name == "send_error", answer
        assert pb.ServerError.Name(answer.command.error) == "PersistenceError", answer
        assert answer.command.message


def publish_until_refused(c: Line, topic: str, size: int = 10, count_max: int = 100_000) -> list[bytes]:
    """What was still taken: the log looks at the space when it writes, so one group may get by."""
    taken: list[bytes] = []
    while len(taken) < count_max:
        message = b"filling %d " % len(taken) + b"." * size
        (answer,) = offer(c, topic, message)
        if answer.name == "send_error":
            return taken
        taken.append(message)
    raise AssertionError(f"{count_max} messages are taken, and the disk is not full")


def publish_when_there_is_space(c: Line, topic: str, message: bytes) -> Frame:
    """Offer until it is taken, as a client does with a retriable error."""
    deadline = time.monotonic() + 60
    while True:
        (answer,) = offer(c, topic, message)
        if answer.name == "send_receipt":
            return answer
        assert time.monotonic() < deadline, f"publishing does not resume: {answer}"
        time.sleep(0.05)


def read_all(c: Line, topic: str, last: bytes) -> list[bytes]:
    """Everything on the topic up to `last`, by a subscription that leaves no trace."""
    c.subscribe(topic, "look", 9, durable=False)
    c.flow(1_000_000, consumer_id=9)
    got: list[bytes] = []
    while not got or got[-1] != last:
        got.append(c.expect("message").payload)
    c.expect("success", request_id=c.request("close_consumer", consumer_id=9))
    return got


def page(server: StandaloneServer, path: str) -> tuple[int, str]:
    return page_at(f"{server.endpoint.http_url}{path}")


def assert_says_that_it_cannot_store(server: StandaloneServer) -> None:
    """To who sends clients and to who asks for its health; not to who would restart it."""
    status, text = page(server, "/readyz")
    assert status == 503
    assert re.fullmatch(
        r"not ready: the broker cannot store messages: the disk has \d+ free bytes, and the log keeps "
        rf"{RESERVE_BYTES} in reserve\n",
        text,
    ), text
    began = time.monotonic()
    status, text = page(server, "/admin/v2/brokers/health")
    assert status == 500
    reason = json.loads(text)["reason"]
    assert reason.startswith("Health check failed: storing a message of persistent://pulsar/"), reason
    assert "free disk space is under the log's reserve" in reason, reason
    print(f"the health check failed in {time.monotonic() - began:.2f} s: {reason}")
    assert page(server, "/livez") == (200, "ok\n")
    assert page(server, "/admin/v2/brokers/ready") == (200, "ok")


@KINDS
def test_a_full_disk_refuses_publishing_and_nothing_else_and_publishing_resumes_by_itself(
    kind: str, directory: Path, new_server: NewServer, cleanup: ExitStack, topic: str
) -> None:
    disk, server = disk_and_server(kind, directory, new_server, cleanup)
    before = [b"%06d" % n + b"x" * 4_000 for n in range(200)]
    with line(server.endpoint) as c, line(server.endpoint) as reader:
        c.open_producer(topic)
        reader.subscribe(topic)
        positions = c.publish(*before)
        disk.leave_free(RESERVE_BYTES - (128 << 10))
        taken = publish_until_refused(c, topic)
        assert len(taken) <= 1
        assert_refused(offer(c, topic, *numbered(50)))
        c.expect_quiet()
        reader.flow(1_000)
        assert payloads(reader.expect_messages(200 + len(taken))) == before + taken
        reader.ack(*positions[:99:2])
        reader.ack(positions[99], cumulative=True)
        reader.ack(*positions[100:150], receipt=False)
        assert_refused(offer(c, topic, b"still refused"))
        assert_says_that_it_cannot_store(server)
        disk.free_up()
        eventually(lambda: page(server, "/readyz") == (200, "ok\n"), "it is ready without a publish", 30)
        assert page(server, "/admin/v2/brokers/health") == (200, "ok")
        publish_when_there_is_space(c, topic, b"after")
        assert reader.expect("message").payload == b"after"
    assert len(log_lines(server, "disk nearly full, appends are refused")) == 1
    assert len(log_lines(server, "disk has space again, appends resume")) == 1
    server.restart()
    with line(server.endpoint) as c:
        assert read_all(c, topic, b"after") == [*before, *taken, b"after"]
        c.subscribe(topic)
        c.flow(1_000)
        assert payloads(c.expect_messages(51 + len(taken))) == [*before[150:], *taken, b"after"]


@pytest.mark.full
@KINDS
def test_a_disk_filled_by_publishing_keeps_its_reserve_and_survives_crashes(
    kind: str, directory: Path, new_server: NewServer, cleanup: ExitStack, topic: str
) -> None:
    disk, server = disk_and_server(kind, directory, new_server, cleanup)
    disk.leave_free(6 << 20)
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        taken = publish_until_refused(c, topic, 20_000)
    assert len(taken) > 50
    assert not log_lines(server, "ledger failed"), "the reserve was not enough"
    for _ in range(2):
        server.kill_and_start()
        with line(server.endpoint) as c:
            assert read_all(c, topic, taken[-1]) == taken
            c.open_producer(topic)
            assert_refused(offer(c, topic, b"no"))
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(len(taken))
        positions = [frame.position for frame in c.expect_messages(len(taken))]
        c.ack(positions[-2], cumulative=True)
        c.open_producer(topic)
        disk.free_up()
        publish_when_there_is_space(c, topic, b"after")
    server.kill_and_start()
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(10)
        assert payloads(c.expect_messages(2)) == [taken[-1], b"after"]


@pytest.mark.full
@KINDS
def test_group_on_a_full_disk_is_not_acknowledged_and_blocks_no_client(
    kind: str, directory: Path, new_server: NewServer, cleanup: ExitStack, topic: str
) -> None:
    disk, server = disk_and_server(kind, directory, new_server, cleanup)
    big = [b"%d" % n + b"y" * (1 << 20) for n in range(4)]
    with line(server.endpoint) as c, line(server.endpoint) as other:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(b"before")
        other.open_producer(topic + "-other")
        disk.leave_free(RESERVE_BYTES + (128 << 10))
        started, cpu = time.monotonic(), cpu_seconds(server)
        answers = offer(c, topic, *big)
        busy = (cpu_seconds(server) - cpu) / (time.monotonic() - started)
        print(f"answered {[a.name for a in answers]} in {time.monotonic() - started:.2f} s, {busy:.0%} CPU")
        assert_refused(answers[-1:])
        taken = [one for one, answer in zip(big, answers, strict=True) if answer.name == "send_receipt"]
        disk.free_up()
        publish_when_there_is_space(c, topic, b"after")
        publish_when_there_is_space(other, topic + "-other", b"other")
        disk.leave_free(0)
        disk.free_up()
    server.kill_and_start()
    with line(server.endpoint) as c:
        assert read_all(c, topic, b"after") == [b"before", *taken, b"after"]


@pytest.mark.full
@KINDS
def test_metadata_on_a_disk_without_a_byte_left_refuses_what_is_new_and_nothing_is_lost(
    kind: str, directory: Path, new_server: NewServer, cleanup: ExitStack, topic: str
) -> None:
    disk, server = disk_and_server(kind, directory, new_server, cleanup)
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(b"before")
        disk.leave_free(256 << 10)
        refused: list[str] = []
        for n in range(300):
            name = f"{topic}-{n}-" + "long" * 50
            request_id = c.request("producer", topic=name, producer_id=100 + n)
            answer = c.receive()
            assert answer.command.request_id == request_id
            if answer.name == "error":
                refused.append(pb.ServerError.Name(answer.command.error))
            else:
                assert answer.name == "producer_success", answer
        print(f"{len(refused)} of 300 topics refused: {set(refused)}")
        assert set(refused) == {"MetadataError"}
        assert len(refused) < 300
        disk.leave_free(0)
        c.expect_quiet()
        publish_until_refused(c, topic)
        made = 300 - len(refused)
        server.kill()
    server.launch()
    eventually(lambda: not server.running or is_healthy(server), "it starts, or ends with a reason", 30)
    print(f"on the full disk it {'starts' if server.running else 'ends: ' + server.log_tail()[-300:]}")
    if not server.running:
        assert "No space left" in server.log_tail() or "full" in server.log_tail()
    server.kill()
    disk.free_up()
    server.start()
    with line(server.endpoint) as c:
        c.open_producer(topic)
        publish_when_there_is_space(c, topic, b"after")
        got = read_all(c, topic, b"after")
        assert (got[0], got[-1]) == (b"before", b"after")
        c.open_producer(f"{topic}-new", producer_id=2)
    names = topics_of_public_default(server)
    assert len([name for name in names if "longlong" in name]) == made


def is_healthy(server: StandaloneServer) -> bool:
    try:
        server.wait_until_healthy()
    except AssertionError:
        return False
    return True


def topics_of_public_default(server: StandaloneServer) -> list[str]:
    url = f"{server.endpoint.http_url}/admin/v2/persistent/public/default"
    with urllib.request.urlopen(url, timeout=10) as response:
        names: list[str] = json.loads(response.read())
        return names
