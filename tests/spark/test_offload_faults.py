"""Offload with everything that can go wrong on real processes.

Object stores that fail at each phase, before, after and in the middle; kill -9 of the driver, of a task, of
the standalone and of a bookie. Afterwards the ledger is on bookies or whole in objects, a job without trouble
and a sweep leave nothing that nobody names, and a reader gets each message once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pulsar
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import COMPLETE, RUNNING, WANTED, Ledger
from magnetar.ledger.cold.objects import open_store
from magnetar.spark.offload.command import main
from magnetar.testing.free_ports import free_ports
from pyspark.sql import SparkSession

from tests.cluster.processes import Cluster
from tests.integration.harness import eventually, gone, spawn
from tests.integration.rest import Rest
from tests.spark.faulty_store import VARIABLE, Faults, FaultyFileSystem
from tests.spark.offload_runs import (
    Ran,
    command,
    complete_ledgers,
    environment,
    ledgers_of,
    manifest_of,
    run_arguments,
    run_in_session,
    unnamed,
)
from tests.spark.servers import SETTINGS, SparkServer, close_ledgers, publish, pulsar_client, read_all

MESSAGES = 600
SENT = [f"message {number}".encode() for number in range(MESSAGES)]
PARTS_MB = "0.002"
PARTS_MIN = 4
JOB_SECONDS_MAX = 120.0
"""For a job to come as far as a test wants it: the first of a session starts Python workers, too."""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def faults(tmp_path: Path, spark: SparkSession) -> Iterator[Faults]:
    """What is to fail, here and in Spark's tasks."""
    made = Faults(tmp_path / "faults")
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    os.environ[VARIABLE] = str(made.directory)
    spark.sparkContext.environment[VARIABLE] = str(made.directory)
    yield made
    made.clear()
    del os.environ[VARIABLE]
    del spark.sparkContext.environment[VARIABLE]


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"faulty://{tmp_path / 'cold'}"


def wanted(address: str, topic: str, location: str) -> Ledger:
    """The topic's one closed ledger, which waits for a job then."""
    with OffloadChannel(address) as channel:
        (ledger,) = channel.want(topic, location=location)
    return ledger


def run(spark: SparkSession, capfd: Capture, address: str, topic: str, *more: str, code: int = 0) -> Ran:
    return run_in_session(spark, capfd, address, "--topic", topic, "--part-mb", PARTS_MB, *more, code=code)


def publish_closed(client: pulsar.Client, rest: Rest, topic: str) -> None:
    publish(client, topic, SENT, batch=10)
    close_ledgers(rest, topic)


def check_offloaded(address: str, client: pulsar.Client, topic: str, location: str) -> None:
    """Whole, nothing beside it once swept, and each message once."""
    (ledger,) = complete_ledgers(address, topic)
    manifest = manifest_of(ledger)
    assert (manifest.rows, len(manifest.parts) >= PARTS_MIN) == (MESSAGES, True)
    swept = ["sweep", "--service", address, "--location", location, "--grace-hours", "0", "--force"]
    assert main(swept) == 0
    assert unnamed(open_store(location), [ledger]) == set()
    assert [each.data() for each in read_all(client, topic, MESSAGES)] == SENT


FULL = pytest.mark.full
PHASES = [
    pytest.param("put_file", "before", marks=FULL),
    pytest.param("put_file", "after", marks=FULL),
    ("put_file", "torn"),
    pytest.param("pipe_file", "before", marks=FULL),
    ("pipe_file", "after"),
    pytest.param("pipe_file", "torn", marks=FULL),
    ("cat_file", "before"),
    pytest.param("info", "before", marks=FULL),
    pytest.param("ls", "before", marks=FULL),
    pytest.param("mark", "after", marks=FULL),
    pytest.param("mark", "before", marks=FULL),
    pytest.param("look_at_mark", "before", marks=FULL),
]
KEEP_FAILING = [
    pytest.param("put_file", "torn", marks=FULL),
    ("pipe_file", "torn"),
    pytest.param("cat_file", "before", marks=FULL),
]


@pytest.mark.full
@pytest.mark.parametrize(("call", "how"), PHASES)
def test_a_store_that_fails_once_is_tried_again(
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
    call: str,
    how: str,
) -> None:
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan(call, how)
    ran = run(spark, capfd, server.offload_address, topic)
    assert [record["result"] for record in ran.records] == ["offloaded"]
    assert faults.left() == 0
    check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
@pytest.mark.parametrize(("call", "how"), KEEP_FAILING)
def test_a_store_that_keeps_failing_fails_the_ledger_and_the_next_job_takes_it(
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    how: str,
) -> None:
    monkeypatch.setattr("magnetar.spark.offload.command.STORE_PATIENCE_S", 1.0)
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan(call, how, times=100)
    faults.plan("rm_file", "before", times=100)
    ran = run(spark, capfd, server.offload_address, topic, code=1)
    (record,) = ran.records
    assert record["result"] == "failed"
    assert f"injected: {call} fails" in record["reason"]
    (ledger,) = ledgers_of(server.offload_address, topic)
    assert (ledger.offload.state, ledger.offload.failures) == (WANTED, 1)
    assert [each.data() for each in read_all(client, topic, MESSAGES)] == SENT
    faults.clear()
    run(spark, capfd, server.offload_address, topic)
    check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
def test_an_object_that_is_damaged_after_it_was_written_is_never_committed(
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
    tmp_path: Path,
) -> None:
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan("pipe_file", "hang")

    def damage() -> None:
        eventually(lambda: bool(faults.hanging()), "the manifest is being written", JOB_SECONDS_MAX)
        part = sorted((tmp_path / "cold").rglob("part-00001.parquet"))[0]
        data = bytearray(part.read_bytes())
        data[len(data) // 3] ^= 0x20
        part.write_bytes(bytes(data))
        faults.release()

    with beside(damage):
        ran = run(spark, capfd, server.offload_address, topic, code=1)
    (record,) = ran.records
    assert "part-00001.parquet: DataCorruption" in record["reason"]
    run(spark, capfd, server.offload_address, topic)
    check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
def test_a_task_that_is_killed_is_tried_again(
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
) -> None:
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan("put_file", "hang")

    def kill() -> None:
        eventually(lambda: bool(faults.hanging()), "a task writes its part", JOB_SECONDS_MAX)
        (pid,) = faults.hanging()
        os.kill(pid, signal.SIGKILL)

    with beside(kill):
        ran = run(spark, capfd, server.offload_address, topic)
    assert [record["result"] for record in ran.records] == ["offloaded"]
    check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
def test_a_broker_that_is_killed_in_the_middle_is_waited_for(
    spark: SparkSession,
    new_server: Callable[..., SparkServer],
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
) -> None:
    server = new_server()
    with pulsar_client(server.endpoint) as client:
        publish_closed(client, server.rest, topic)
        wanted(server.offload_address, topic, location)
        faults.plan("put_file", "hang", times=2)

        def kill() -> None:
            eventually(lambda: bool(faults.hanging()), "a task writes its part", JOB_SECONDS_MAX)
            server.kill()
            faults.clear()
            server.start()

        with beside(kill):
            ran = run(spark, capfd, server.offload_address, topic)
        assert [record["result"] for record in ran.records] == ["offloaded"]
        check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
@pytest.mark.parametrize(
    "call",
    [
        "put_file",
        pytest.param("pipe_file", marks=FULL),
        pytest.param("cat_file", marks=FULL),
    ],
)
def test_a_driver_that_is_killed_leaves_the_ledger_to_the_next(
    spark: SparkSession,
    spark_environment: dict[str, str],
    new_server: Callable[..., SparkServer],
    topic: str,
    location: str,
    faults: Faults,
    capfd: Capture,
    tmp_path: Path,
    call: str,
) -> None:
    server = new_server({"magnetarOffloadStaleAfterSeconds": "2"})
    with pulsar_client(server.endpoint) as client:
        publish_closed(client, server.rest, topic)
        wanted(server.offload_address, topic, location)
        faults.plan(call, "hang")
        with driver(server.offload_address, topic, tmp_path, spark_environment, faults) as process:
            eventually(lambda: bool(faults.hanging()), "the job has come so far", JOB_SECONDS_MAX)
            hanging = faults.hanging()
            process.kill()
            process.wait()
        eventually(lambda: all(map(gone, hanging)), "tasks end with their driver", 60)
        (ledger,) = ledgers_of(server.offload_address, topic)
        assert ledger.offload.state == RUNNING
        faults.clear()
        assert [each.data() for each in read_all(client, topic, MESSAGES)] == SENT

        def taken_over() -> bool:
            run(spark, capfd, server.offload_address, topic)
            return ledgers_of(server.offload_address, topic)[0].offload.state == COMPLETE

        eventually(taken_over, "the next job takes it over")
        (ledger,) = ledgers_of(server.offload_address, topic)
        assert ledger.offload.failures == 1
        check_offloaded(server.offload_address, client, topic, location)


@pytest.mark.full
def test_an_executor_that_is_killed_is_replaced(
    spark_environment: dict[str, str],
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    tmp_path: Path,
) -> None:
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan("put_file", "hang", times=2)
    of_its_own = "local-cluster[1,2,1024]"
    with driver(server.offload_address, topic, tmp_path, spark_environment, faults, of_its_own) as process:
        eventually(lambda: bool(faults.hanging()), "the job has come so far", JOB_SECONDS_MAX)
        os.kill(executor_of(faults.hanging()[0]), signal.SIGKILL)
        faults.clear()
        assert process.wait(180) == 0
    check_offloaded(server.offload_address, client, topic, location)


def executor_of(pid: int) -> int:
    """The executor whose Python task runs in a process."""
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "no executor runs it"
    return pid


@pytest.mark.full
def test_a_driver_that_is_stopped_gives_the_ledger_back_at_once(
    spark_environment: dict[str, str],
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    faults: Faults,
    tmp_path: Path,
) -> None:
    publish_closed(client, server.rest, topic)
    wanted(server.offload_address, topic, location)
    faults.plan("put_file", "hang")
    with driver(server.offload_address, topic, tmp_path, spark_environment, faults) as process:
        eventually(lambda: bool(faults.hanging()), "the job has come so far", JOB_SECONDS_MAX)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    (ledger,) = ledgers_of(server.offload_address, topic)
    assert (ledger.offload.state, ledger.offload.error) == (WANTED, "the job was stopped")


@pytest.mark.full
def test_entries_come_straight_from_bookies_one_of_which_is_killed(
    spark: SparkSession, topic: str, location: str, faults: Faults, capfd: Capture, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with Cluster.running(tmp_path / "cluster") as cluster:
        broker = cluster.broker({**SETTINGS, "magnetarControlPort": str(port)})
        broker.start()
        with pulsar_client(broker.endpoint) as client:
            publish_closed(client, Rest(broker.endpoint), topic)
            ledger = wanted(address, topic, location)
            (described,) = [each for each in ledgers_of(address, topic) if each.ledger_id == ledger.ledger_id]
            assert len(described.bookies.addresses) == 3
            faults.plan("put_file", "hang", times=2)

            def kill() -> None:
                eventually(lambda: len(faults.hanging()) == 2, "tasks write their parts", JOB_SECONDS_MAX)
                cluster.bookies[0].kill()
                faults.clear()

            with beside(kill):
                ran = run(spark, capfd, address, topic)
            assert [record["result"] for record in ran.records] == ["offloaded"]
            check_offloaded(address, client, topic, location)


@contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """Does something in a thread; its failure is the test's."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(JOB_SECONDS_MAX + 60)
    assert not thread.is_alive(), "what happens beside the job does not end"
    if failed:
        raise failed[0]


@contextmanager
def driver(
    address: str,
    topic: str,
    directory: Path,
    spark_environment: dict[str, str],
    faults: Faults,
    master: str = "local[2]",
) -> Iterator[subprocess.Popen[bytes]]:
    """A job in a process of its own, killed at the end; what it prints is shown when the test fails."""
    path = directory / "driver.log"
    more = {**spark_environment, VARIABLE: str(faults.directory)}
    with path.open("wb") as log:
        process = spawn(
            command(*run_arguments(address, "--topic", topic, "--part-mb", PARTS_MB, master=master)),
            log,
            directory,
            environment(more),
        )
        try:
            yield process
        except BaseException:
            print(path.read_text(errors="replace")[-5_000:])
            raise
        finally:
            process.kill()
            process.wait()
