"""The offload job on a real standalone, with real Spark: what it writes, says, and leaves alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pulsar
import pyarrow.parquet as pq
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import RUNNING, WANTED
from magnetar.ledger.cold.objects import open_store
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress
from magnetar.spark.offload.spark_tasks import SparkTasks
from magnetar.spark.offload.tasks import PartTask, Stopped, TasksFailed
from magnetar.testing.free_ports import free_ports
from pyspark.sql import SparkSession

from tests.integration.harness import magnetar_command
from tests.integration.rest import Rest
from tests.spark.offload_runs import (
    RUN_S_MAX,
    Ran,
    complete_ledgers,
    environment,
    ledgers_of,
    manifest_of,
    part_files,
    run_arguments,
    run_in_session,
    told,
    unnamed,
)
from tests.spark.servers import SparkServer, close_ledgers, publish, read_all

MESSAGES = 3_000


Run = Callable[..., Ran]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(spark: SparkSession, server: SparkServer, topic: str, location: str, capfd: Capture) -> Run:
    """Have the test's topic offloaded, by a job in the shared session."""

    def act(*more: str, code: int = 0, to: str = location) -> Ran:
        wanted = ("--want", "--topic", topic, "--location", to)
        return run_in_session(spark, capfd, server.offload_address, *wanted, *more, code=code)

    return act


def payloads(count: int = MESSAGES) -> list[bytes]:
    return [f"message {number} ".encode() + b"x" * (number % 97) for number in range(count)]


def fields(number: int) -> dict[str, Any]:
    return {
        "partition_key": f"key-{number % 7}",
        "properties": {"number": str(number), "color": "red"},
        "event_timestamp": 1_700_000_000_000 + number,
    }


def publish_closed(rest: Rest, client: pulsar.Client, topic: str, sent: list[bytes], **options: Any) -> None:
    publish(client, topic, sent, message=fields, **options)
    close_ledgers(rest, topic)


def seen(message: pulsar.Message) -> tuple[Any, ...]:
    """What a client sees of a message."""
    return (
        message.data(),
        message.partition_key(),
        message.properties(),
        message.event_timestamp(),
        message.publish_timestamp(),
        message.message_id().serialize(),
        message.producer_name() if hasattr(message, "producer_name") else None,
    )


def test_a_topic_becomes_parquet_with_a_row_for_each_message(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, location: str, run: Run
) -> None:
    sent = payloads()
    publish_closed(rest, client, topic, sent)
    before = [seen(message) for message in read_all(client, topic, len(sent))]
    ran = run("--part-mb", "0.05")
    (record,) = ran.records
    assert (record["result"], record["rows"], record["rawEntries"]) == ("offloaded", MESSAGES, 0)
    (ledger,) = complete_ledgers(server.offload_address, topic)
    manifest = manifest_of(ledger)
    assert len(manifest.parts) > 2
    assert (manifest.rows, manifest.entries) == (MESSAGES, ledger.last_entry_id + 1)
    assert (ledger.offload.rows, ledger.offload.object_bytes) == (MESSAGES, record["objectBytes"])
    found = duckdb.execute(
        "select payload, key, properties['number'], epoch_ms(event_time), entry_id, batch_index "
        "from read_parquet(?) order by entry_id, batch_index",
        [part_files([ledger])],
    ).fetchall()
    assert [bytes(row[0]) for row in found] == sent
    assert [row[1] for row in found] == [f"key-{number % 7}" for number in range(MESSAGES)]
    assert [row[2] for row in found] == [str(number) for number in range(MESSAGES)]
    assert [row[3] for row in found] == [1_700_000_000_000 + number for number in range(MESSAGES)]
    assert [seen(message) for message in read_all(client, topic, len(sent))] == before
    assert unnamed(open_store(location), [ledger]) == set()


def test_several_ledgers_and_partitions_go_in_one_run_and_once_only(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, run: Run
) -> None:
    rest.do("PUT", f"/{topic.replace('://', '/')}/partitions", 2)
    for _ in range(2):
        publish_closed(rest, client, topic, payloads(200), batch=10)
    ran = run("--ledgers-at-once", "3")
    assert {record["result"] for record in ran.records} == {"offloaded"}
    assert sum(record["rows"] for record in ran.records) == 400
    parts = [f"{topic}-partition-{number}" for number in range(2)]
    assert {record["topic"] for record in ran.records} == set(parts)
    for number, part in enumerate(parts):
        ledgers = complete_ledgers(server.offload_address, part)
        assert len(ledgers) == 2
        table = pq.read_table(part_files(ledgers)[0], columns=["partition"])
        assert set(table["partition"].to_pylist()) == {number}
    again = run()
    assert again.records == []
    assert "no pending ledgers" in again.stderr


def test_exact_keeps_the_bytes_of_entries(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, run: Run
) -> None:
    publish_closed(rest, client, topic, payloads(100), compression_type=pulsar.CompressionType.ZLib)
    run("--exact")
    (ledger,) = complete_ledgers(server.offload_address, topic)
    assert manifest_of(ledger).exact
    kept = pq.read_table(part_files([ledger])[0], columns=["raw_entry", "payload"])
    assert kept["raw_entry"].null_count == len(kept) - (ledger.last_entry_id + 1)
    assert kept["payload"].to_pylist() == payloads(100)


def test_encrypted_messages_are_kept_raw_and_counted(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, tmp_path: Path, run: Run
) -> None:
    keys = key_pair(tmp_path)
    publish(client, topic, payloads(10), batch=1)
    publish(client, topic, payloads(5), batch=1, crypto_key_reader=keys, encryption_key="k")
    close_ledgers(rest, topic)
    ran = run()
    (record,) = ran.records
    assert (record["result"], record["rows"], record["rawEntries"]) == ("offloaded", 15, 5)
    assert sum(record["rawReasons"].values()) == 5
    (ledger,) = complete_ledgers(server.offload_address, topic)
    assert ledger.offload.raw_entries == 5
    consumer = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=keys)
    found = [consumer.read_next(30_000).data() for _ in range(15)]
    consumer.close()
    assert found == payloads(10) + payloads(5)


def test_only_ledgers_before_a_message_id_are_offloaded(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, run: Run
) -> None:
    for _ in range(2):
        publish_closed(rest, client, topic, payloads(20))
    first, second = [each for each in ledgers_of(server.offload_address, topic) if each.closed_ms][:2]
    run("--before", f"{second.ledger_id}:0")
    assert [each.ledger_id for each in complete_ledgers(server.offload_address, topic)] == [first.ledger_id]


def test_a_place_that_cannot_be_written_fails_the_ledger_and_says_why(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, tmp_path: Path, run: Run
) -> None:
    publish_closed(rest, client, topic, payloads(20))
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    ran = run(code=1, to=blocked.as_uri())
    (record,) = ran.records
    assert record["result"] == "failed"
    (ledger,) = [each for each in ledgers_of(server.offload_address, topic) if each.HasField("offload")]
    assert (ledger.offload.state, ledger.offload.failures) == (WANTED, 1)
    assert ledger.offload.error == record["reason"]


def test_status_tells_how_far_each_ledger_is(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, location: str, capfd: Capture
) -> None:
    publish_closed(rest, client, topic, payloads(20))
    publish(client, topic, payloads(5))
    with OffloadChannel(server.offload_address) as channel:
        (wanted,) = channel.want(topic, location=location)
        channel.begin(topic, wanted.creation_id, wanted.ledger_id, b"somebody's try..")
        found = told(capfd, "status", "--service", server.offload_address, "--topic", topic, "--json").records
        assert [record["state"] for record in found] == ["running", "open"]
        assert ledgers_of(server.offload_address, topic)[0].offload.state == RUNNING
        channel.fail(topic, wanted.creation_id, wanted.ledger_id, b"somebody's try..", "for a test")
    text = told(capfd, "status", "--service", server.offload_address, "--topic", topic).stdout
    assert "for a test" in text


def test_sweep_deletes_only_unreferenced_objects(
    server: SparkServer,
    rest: Rest,
    client: pulsar.Client,
    topic: str,
    location: str,
    run: Run,
    capfd: Capture,
) -> None:
    publish_closed(rest, client, topic, payloads(20))
    run()
    (ledger,) = complete_ledgers(server.offload_address, topic)
    store = open_store(location)
    leftover = f"{ledger.offload.path.rpartition('/')[0]}/attempt={'ab' * 16}/part-00000.parquet"
    store.put_bytes(leftover, b"half a part")
    store.put_bytes("somebody/elses.txt", b"not ours")
    sweep = ["sweep", "--service", server.offload_address, "--location", location, "--json"]
    (waits,) = told(capfd, *sweep).records
    assert (waits["directories"], waits["waiting"]) == (0, 1)
    (dry,) = told(capfd, *sweep, "--grace-hours", "0", "--dry-run").records
    assert dry["directories"] == 1
    assert store.exists(leftover)
    (swept,) = told(capfd, *sweep, "--grace-hours", "0").records
    assert (swept["directories"], swept["objects"], swept["bytes"]) == (1, 1, len(b"half a part"))
    assert not store.exists(leftover)
    assert unnamed(store, [ledger]) == {"somebody/elses.txt"}


def test_objects_of_a_deleted_topic_are_swept(
    server: SparkServer,
    rest: Rest,
    client: pulsar.Client,
    topic: str,
    location: str,
    run: Run,
    capfd: Capture,
) -> None:
    publish_closed(rest, client, topic, payloads(20))
    run()
    store = open_store(location)
    assert unnamed(store, [])
    rest.do("DELETE", f"/{topic.replace('://', '/')}?force=true")
    (swept,) = told(
        capfd, "sweep", "--service", server.offload_address, "--location", location, "--json"
    ).records
    assert (swept["deletions"], swept["failed"]) == (1, [])
    assert unnamed(store, []) == set()
    with OffloadChannel(server.offload_address) as channel:
        assert channel.deletions(location).deletions == []


@pytest.mark.full
def test_the_command_of_magnetar_runs_a_job_of_its_own(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, location: str
) -> None:
    publish_closed(rest, client, topic, payloads(20))
    arguments = run_arguments(server.offload_address, "--want", "--topic", topic, "--location", location)
    done = subprocess.run(
        [*magnetar_command(), "offload", *arguments],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 20
    assert "20 rows" in done.stderr
    assert "log4j" not in done.stderr
    assert "log level" not in done.stderr
    assert len(complete_ledgers(server.offload_address, topic)) == 1


@pytest.mark.full
def test_without_a_broker_it_says_so_before_spark_is_started(capfd: Capture) -> None:
    ran = told(capfd, *run_arguments(f"127.0.0.1:{free_ports(1)[0]}", "--topic", "t"), code=3)
    assert ran.stderr.startswith("Error: ")
    assert "--service" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--want"], "give --topic"),
        (["run", "--topic", "t", "--location", "file:///x"], "need --want"),
        (["run", "--topic", "t", "--again"], "need --want"),
        (["run", "--part-mb", "0"], "above 0"),
        (["sweep"], "--location"),
        (["status"], "no topics given"),
        (["run", "--service", "nowhere"], "is not an offload service address"),
        (["run", "--want", "--topic", "t", "--before", "x:y"], "is not a message id"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(arguments: list[str], said: str, capfd: Capture) -> None:
    ran = told(capfd, *arguments, code=2)
    assert said in ran.stderr


@pytest.fixture
def part_task(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str, location: str
) -> Callable[..., PartTask]:
    publish_closed(rest, client, topic, payloads(500), batch=10)
    (ledger,) = [each for each in ledgers_of(server.offload_address, topic) if each.closed_ms]

    def make(**changes: Any) -> PartTask:
        address = ServiceAddress(server.offload_address)
        source = LedgerSource(address, topic, ledger.ledger_id, ledger.ledger_key)
        given = {
            "source": source,
            "location": location,
            "path": "t/n/x/ledger=1/attempt=" + "0" * 32,
            "name": "part-00000.parquet",
            "first_entry_id": 0,
            "last_entry_id": ledger.last_entry_id,
            "exact": False,
            **changes,
        }
        return PartTask(**given)

    return make


class Going:
    """Implements `tasks.Course`."""

    def __init__(self, over_after: int = 1 << 30) -> None:
        self.told: list[tuple[int, int]] = []
        self._left = over_after

    def advanced(self, done: int, total: int) -> None:
        self.told.append((done, total))

    def over(self) -> str:
        self._left -= 1
        return "" if self._left > 0 else "somebody stopped it"


def test_a_part_that_is_written_again_has_the_same_bytes(
    spark: SparkSession, part_task: Callable[..., PartTask]
) -> None:
    tasks = SparkTasks(spark.sparkContext, 2)
    try:
        going = Going()
        (first,) = tasks.write([part_task()], going)
        (second,) = tasks.write([part_task()], Going())
        assert first.part.sha256 == second.part.sha256
        assert going.told[-1] == (1, 1)
        half = (part_task().last_entry_id + 1) // 2
        parts = tasks.write(
            [part_task(last_entry_id=half - 1), part_task(first_entry_id=half, name="part-00001.parquet")],
            Going(),
        )
        assert [each.part.first_entry_id for each in parts] == [0, half]
        assert parts[1].first_index == sum(each.part.rows for each in parts[:1])
    finally:
        tasks.close()


def test_a_task_that_cannot_succeed_is_not_tried_again_and_names_its_reason(
    spark: SparkSession, part_task: Callable[..., PartTask]
) -> None:
    tasks = SparkTasks(spark.sparkContext, 1)
    try:
        beyond = part_task(last_entry_id=1_000_000)
        with pytest.raises(TasksFailed, match=r"part-00000.parquet: NoSuchEntry"):
            tasks.write([beyond], Going())
    finally:
        tasks.close()


def test_tasks_of_a_job_that_is_stopped_are_canceled(
    spark: SparkSession, part_task: Callable[..., PartTask]
) -> None:
    tasks = SparkTasks(spark.sparkContext, 1)
    try:
        away = ServiceAddress("127.0.0.1:1")
        task = part_task()
        source = LedgerSource(away, task.source.topic, task.source.ledger_id, task.source.ledger_key)
        with pytest.raises(Stopped, match="somebody stopped it"):
            tasks.write([part_task(source=source)], Going(over_after=10))
    finally:
        tasks.close()


def key_pair(directory: Path) -> pulsar.CryptoKeyReader:
    """Keys that encrypt and decrypt."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make keys with")
    private, public = directory / "private.pem", directory / "public.pem"
    for arguments in (
        ("genrsa", "-out", str(private), "2048"),
        ("rsa", "-in", str(private), "-pubout", "-out", str(public)),
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    return pulsar.CryptoKeyReader(str(public), str(private))
