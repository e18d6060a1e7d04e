"""`magnetar spark compact` and `verify`: on ledgers that were offloaded, and on objects that are damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pulsar
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark import compact, register, verify
from magnetar.spark.jobs import job_run
from magnetar.spark.jobs.compaction import LocationInUse, check_location, latest_by_key, write_parquet
from magnetar.spark.jobs.parquet_comparison import CompareTask, compare_part
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.offload.command import run_in
from magnetar.spark.verify import Verified, plan
from pyspark.sql import SparkSession

from tests.integration.harness import ROOT, magnetar_command
from tests.spark.offload_runs import RUN_S_MAX, complete_ledgers, environment
from tests.spark.servers import SparkServer, close_ledgers, publish, pulsar_client

KEYS = 50
MESSAGES = 1_000

COLUMN_TYPES: Final = {
    "topic": "STRING",
    "ledger_id": "BIGINT",
    "entry_id": "BIGINT",
    "batch_index": "INT",
    "partition": "INT",
    "publish_time": "TIMESTAMP",
    "event_time": "TIMESTAMP",
    "broker_publish_time": "TIMESTAMP",
    "key": "STRING",
    "key_bytes": "BINARY",
    "properties": "MAP<STRING, STRING>",
    "producer_name": "STRING",
    "sequence_id": "BIGINT",
    "schema_version": "BINARY",
    "null_value": "BOOLEAN",
    "payload": "BINARY",
    "raw_reason": "STRING",
}


@dataclass(frozen=True)
class Offloaded:
    """A topic with two offloaded ledgers and a tail that is none."""

    server: SparkServer
    topic: str
    location: Path
    expected: dict[str, bytes]
    """The latest values of the offloaded part."""
    tail: dict[str, bytes]
    """The same with the tail."""

    @property
    def ledgers(self) -> list[Ledger]:
        return complete_ledgers(self.server.offload_address, self.topic)


@pytest.fixture(scope="module")
def offloaded(
    _server: SparkServer, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Offloaded:
    topic = "persistent://public/default/jobs"
    location = tmp_path_factory.mktemp("cold")
    expected: dict[str, bytes] = {}

    def keyed(number: int) -> dict[str, Any]:
        return {"partition_key": f"key-{number % KEYS}", "properties": {"n": str(number)}}

    with pulsar_client(_server.endpoint) as client:
        for part in range(2):
            values = [b"value %d %d" % (part, number) for number in range(MESSAGES)]
            publish(client, topic, values, message=keyed, batch=1 if part else 20)
            expected |= {f"key-{number % KEYS}": value for number, value in enumerate(values)}
            if part:
                _delete(_server, topic, "key-7")
                del expected["key-7"]
                publish(client, topic, [b"no key"])
            close_ledgers(_server.rest, topic)
        arguments = ["--service", _server.offload_address, "--topic", topic, "--want"]
        assert run_in(spark, [*arguments, "--location", location.as_uri()]) == job_run.DONE
        publish(client, topic, [b"later"], message=lambda _: {"partition_key": "key-7"}, batch=1)
    tail = {**expected, "key-7": b"later"}
    return Offloaded(_server, topic, location, expected, tail)


def _delete(server: SparkServer, topic: str, key: str) -> None:
    """A message without value; the PyPI client cannot send one."""
    from magnetar.spark.sink.options import SinkOptions
    from magnetar.spark.sink.sequence_numbers import ONE_BATCH
    from magnetar.spark.sink.write_task import TaskIdentity, write_rows

    options = SinkOptions(service_url=server.endpoint.service_url, topic=topic, deduplication="none")
    rows = pa.RecordBatch.from_pydict({"value": pa.array([None], pa.string()), "key": [key]})
    write_rows([rows], options, TaskIdentity("deleting", 0, 0, ONE_BATCH))


def job(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A run of `magnetar spark`."""
    spark = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", "--json")
    done = subprocess.run(
        [*magnetar_command(), "spark", *arguments, *spark],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr[-5_000:])
    return done


def values_at(directory: Path) -> dict[str, bytes]:
    """Keys and values as DuckDB finds them."""
    found = duckdb.execute(f"SELECT key, payload FROM '{directory}/*.parquet'").fetchall()
    assert len(found) == len({key for key, _ in found}), "each key is there once"
    return dict(found)


@pytest.mark.full
def test_compact_writes_the_latest_value_of_each_key_and_replaces_what_it_wrote_before(
    offloaded: Offloaded, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "compacted"
    service = ("--service", offloaded.server.offload_address, "--topic", offloaded.topic)
    done = json.loads(job("compact", *service, "--to", str(to)).stdout)
    assert (done["keys"], done["replaced"]) == (KEYS - 1, 0)
    assert values_at(to) == offloaded.expected
    first = {path.name for path in to.glob("*.parquet")}
    assert compact.main([*service, "--to", str(to)]) == job_run.FAILED
    assert "--overwrite" in capsys.readouterr().err
    # The same with the tail, in the session of the tests: starting another one takes long.
    given = compact.parser().parse_args([*service, "--to", str(to), "--tail", "--overwrite"])
    register(spark)
    options = compact.source_options(given, [offloaded.topic])
    latest = latest_by_key(spark.read.format("magnetar").options(**options).load())
    replaced = check_location(to.as_uri(), overwrite=True)
    written = write_parquet(latest, to.as_uri(), "second", replaced)
    assert (written.keys, written.replaced) == (KEYS, len(first))
    assert values_at(to) == offloaded.tail
    assert not first & {path.name for path in to.glob("*.parquet")}


@pytest.mark.full
def test_a_compaction_of_no_keys_leaves_columns_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
    messages = spark.createDataFrame([], columns)
    written = write_parquet(latest_by_key(messages), tmp_path.as_uri(), "run", [])
    assert (written.keys, written.files) == (0, 1)
    assert values_at(tmp_path) == {}


def test_a_location_with_other_files_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "somebody.parquet").write_text("else")
    with pytest.raises(LocationInUse, match=r"such as somebody\.parquet"):
        check_location(tmp_path.as_uri(), overwrite=True)


def test_the_latest_message_is_the_last_of_its_partition_whatever_clocks_say(spark: SparkSession) -> None:
    def row(topic: str, at: tuple[int, int, int], clock: int, key: str | None, value: bytes | None) -> Any:
        values = {
            **dict.fromkeys(COLUMN_TYPES),
            "topic": topic,
            **dict(zip(("ledger_id", "entry_id", "batch_index"), at, strict=True)),
            "broker_publish_time": datetime.fromtimestamp(clock, UTC),
            "key": key,
            "null_value": value is None,
            "payload": value or b"",
        }
        return tuple(values.values())

    rows = [
        row("t-0", (1, 9, 2), 90, "same partition", b"clock is ahead"),
        row("t-0", (2, 0, 0), 10, "same partition", b"last"),
        row("t-0", (1, 0, 1), 50, "batch", b"second of the batch"),
        row("t-0", (1, 0, 0), 50, "batch", b"first of the batch"),
        row("t-0", (9, 0, 0), 10, "moved", b"before"),
        row("t-1", (3, 0, 0), 20, "moved", b"after"),
        row("t-0", (4, 0, 0), 10, "deleted", b"there"),
        row("t-0", (4, 1, 0), 10, "deleted", None),
        row("t-0", (4, 2, 0), 10, "emptied", b"there"),
        row("t-0", (4, 3, 0), 10, "emptied", b""),
        row("t-0", (5, 0, 0), 10, "again", None),
        row("t-0", (5, 1, 0), 10, "again", b"back"),
        row("t-0", (6, 0, 0), 10, None, b"no key"),
    ]
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
    latest = latest_by_key(spark.createDataFrame(rows, columns)).collect()
    assert {each["key"]: bytes(each["payload"]) for each in latest} == {
        "same partition": b"last",
        "batch": b"second of the batch",
        "moved": b"after",
        "again": b"back",
    }


@pytest.mark.full
def test_verify_finds_an_object_that_is_damaged_and_compares_the_others(offloaded: Offloaded) -> None:
    (task, *_), _ = tasks_of(offloaded)
    part = offloaded.location / task.path / task.part.name
    sound = part.read_bytes()
    service = ("--service", offloaded.server.offload_address, "--topic", offloaded.topic)
    try:
        part.write_bytes(sound[:-100] + b"?" + sound[-99:])
        found = json.loads(job("verify", *service, code=1).stdout)
    finally:
        part.write_bytes(sound)
    assert (found["ledgers"], found["not_offloaded"], found["messages"]) == (2, 1, MESSAGES + 2)
    assert any("SHA-256" in each for each in found["told"]), found["told"]
    assert any("the footer of" in each for each in found["told"]), found["told"]


def test_a_ledger_that_no_topic_has_is_not_verified_as_equal(
    offloaded: Offloaded, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ["--service", offloaded.server.offload_address, "--topic", offloaded.topic]
    assert verify.main([*service, "--ledger", "987654"]) == job_run.WRONG
    assert "--ledger 987654 not found in the topics" in capsys.readouterr().err


def test_one_message_that_is_not_equal_is_found(offloaded: Offloaded, tmp_path: Path) -> None:
    (task, *_), _ = tasks_of(offloaded)
    shutil.copytree(offloaded.location / task.path, tmp_path / task.path)
    _damage(tmp_path / task.path / task.part.name)
    found = compare_part(rewritten(task, tmp_path))
    assert found.messages == task.part.rows
    assert len([each for each in found.told if "payload is" in each]) == 1, found.told


def test_every_message_of_sound_objects_is_equal(offloaded: Offloaded) -> None:
    tasks, found = tasks_of(offloaded)
    for task in tasks:
        found.add(compare_part(task))
    assert (found.differences, found.ledgers, found.not_offloaded) == (0, 2, 1)
    assert found.messages == 2 * MESSAGES + 2


def _damage(part: Path) -> None:
    """The payload of one message is another, of the same length."""
    with pq.ParquetFile(part) as file:
        table, told = file.read(), file.metadata.metadata
    payloads = table["payload"].to_pylist()
    payloads[17] = bytes(reversed(payloads[17]))
    at = table.column_names.index("payload")
    table = table.set_column(at, table.schema.field("payload"), pa.array(payloads, pa.binary()))
    _rewrite(part, table, told)


def _rewrite(part: Path, table: Any, told: dict[bytes, bytes]) -> None:
    """Another content that calls itself the same."""
    with pq.ParquetWriter(part, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {key.decode(): value.decode() for key, value in told.items() if key.startswith(b"magnetar")}
        )


def rewritten(task: CompareTask, location: Path) -> CompareTask:
    """The task for an object that was written with other content, and whose manifest says its bytes."""
    path = location / task.path / task.part.name
    data = path.read_bytes()
    part = replace(
        task.part,
        rows=pq.read_metadata(path).num_rows,
        byte_length=len(data),
        sha256=hashlib.sha256(data).digest(),
        footer_bytes=0,
        footer_crc32c=0,
    )
    return replace(task, location=location.as_uri(), part=part)


def tasks_of(offloaded: Offloaded) -> tuple[list[CompareTask], Verified]:
    found = Verified()
    service = ServiceAddress(offloaded.server.offload_address)
    with OffloadChannel(offloaded.server.offload_address) as channel:
        ledgers = channel.describe(offloaded.topic).ledgers
    return plan(ledgers, service, found), found


def test_an_object_that_lacks_an_entry_differs(offloaded: Offloaded, tmp_path: Path) -> None:
    (task, *_), found = tasks_of(offloaded)
    assert (found.ledgers, found.not_offloaded) == (2, 1)
    assert compare_part(task).differences == 0
    copied = tmp_path / task.path
    shutil.copytree(offloaded.location / task.path, copied)
    part = copied / task.part.name
    with pq.ParquetFile(part) as file:
        table, told = file.read(), file.metadata.metadata
    _rewrite(part, table.filter(pc.not_equal(table["entry_id"], 3)), told)
    elsewhere = rewritten(task, tmp_path)
    lacks = compare_part(elsewhere).told
    assert any("entry 3 is in the ledger and not in the object" in each for each in lacks), lacks
    part.unlink()
    gone = compare_part(elsewhere)
    assert gone.differences == 1
    assert "NoSuchObject" in gone.told[0]


def test_ledger_deleted_from_bookies_is_checked_against_its_manifest(offloaded: Offloaded) -> None:
    (task, *_), _ = tasks_of(offloaded)
    alone = compare_part(replace(task, source=None))
    assert (alone.differences, alone.messages) == (0, 0)
    wrong = replace(task, source=None, part=replace(task.part, payload_crc32c=1, sha256=b"?" * 32))
    told = compare_part(wrong).told
    assert any("payload_crc32c" in each for each in told), told
    assert any("SHA-256" in each for each in told), told


def test_a_manifest_that_says_otherwise_than_the_metadata_differs(offloaded: Offloaded) -> None:
    ledger = Ledger.FromString(offloaded.ledgers[0].SerializeToString())
    ledger.offload.rows += 1
    found = Verified()
    plan([ledger], ServiceAddress(offloaded.server.offload_address), found)
    assert found.differences == 1
    assert "rows is" in found.told[0]
    ledger.offload.manifest_sha256 = b"?" * 32
    plan([ledger], ServiceAddress(offloaded.server.offload_address), found)
    assert "is not the manifest that was verified" in found.told[1]


def test_a_job_whose_broker_is_away_ends_with_3_and_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_run, "ASK_DEADLINE_S", 0.5)
    for main, more in ((verify.main, []), (compact.main, ["--to", "file:///nowhere"])):
        assert main(["--service", "127.0.0.1:1", "--topic", "t", *more]) == job_run.NO_BROKER
        assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_topic_without_offloaded_ledgers_is_not_compacted_to_nothing(
    server: SparkServer, topic: str, client: pulsar.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(client, topic, [b"value"], message=lambda _: {"partition_key": "k"})
    given = ["--service", server.offload_address, "--topic", topic, "--to", "file:///nowhere"]
    assert compact.main(given) == job_run.FAILED
    assert "or give --tail" in capsys.readouterr().err
