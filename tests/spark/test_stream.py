"""Topics as streams: every message once, wherever a query stopped, and a subscription that follows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magnetar.spark
import pulsar
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.integration.rest import Rest
from tests.spark.offload_runs import run_in_session
from tests.spark.servers import RECEIVE_MS_MAX, SparkServer, close_ledgers, publish

RUN_S_MAX = 240

STARTS_MAX = 4
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when Python took ten seconds to start, as it may where much else runs. A query that is
begun again goes on with its checkpoint."""

Batches = dict[int, list[bytes]]
Run = Callable[..., Batches]


class Stopped(Exception):
    """What a test's sink raises in the middle of a batch."""


@pytest.fixture
def run(spark: SparkSession, server: SparkServer, tmp_path: Path) -> Run:
    """Runs a query over what there is now, with the test's checkpoint; gives payloads by batch."""
    magnetar.spark.register(spark)
    batches: Batches = {}

    def act(
        topic: str | None, *, fail_in: int = -1, checkpoint: str = "checkpoint", **options: Any
    ) -> Batches:
        named = {name.replace("_", "."): value for name, value in options.items()}
        given = {"offload.address": server.offload_address, **named}
        if topic is not None:
            given["topic"] = topic

        def keep(frame: DataFrame, number: int) -> None:
            rows = frame.select("topic", "ledger_id", "entry_id", "batch_index", "payload").collect()
            if number == fail_in:
                raise Stopped("this batch was not kept")
            batches[number] = [bytes(row.payload) for row in sorted(rows)]

        writer = (
            spark.readStream.format("magnetar")
            .options(**given)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
        )
        for left in reversed(range(STARTS_MAX)):
            try:
                finish(writer.start())
                break
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error) or not left:
                    raise
        return batches

    return act


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(RUN_S_MAX)
    finally:
        query.stop()


def payloads(first: int, last: int) -> list[bytes]:
    return [f"message {number:05}".encode() for number in range(first, last)]


def everything(batches: Batches) -> list[bytes]:
    return [payload for number in sorted(batches) for payload in batches[number]]


def backlog(rest: Rest, topic: str) -> int:
    stats = rest.get(f"/{topic.replace('://', '/')}/stats")
    entries: int = stats["subscriptions"]["spark"]["msgBacklog"]
    return entries


def offload(
    spark: SparkSession, server: SparkServer, topic: str, location: str, capfd: pytest.CaptureFixture[str]
) -> None:
    close_ledgers(server.rest, topic)
    run_in_session(spark, capfd, server.offload_address, "--want", "--topic", topic, "--location", location)


@pytest.mark.full
def test_a_stream_goes_from_offloaded_ledgers_to_the_open_one_in_batches_of_so_many_rows(
    run: Run,
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent = payloads(0, 600)
    publish(client, topic, sent[:330], batch=30)
    offload(spark, server, topic, location, capfd)
    publish(client, topic, sent[330:], batch=30)
    batches = run(topic, maxRowsPerTrigger=100)
    assert everything(batches) == sent
    sizes = [len(batches[number]) for number in sorted(batches) if batches[number]]
    assert max(sizes) <= 100
    assert len(sizes) >= 6


@pytest.mark.full
def test_a_batch_that_failed_is_repeated_as_it_was_and_nothing_is_lost_or_doubled(
    run: Run,
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    location: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent = payloads(0, 300)
    publish(client, topic, sent[:200], batch=10)
    with pytest.raises(StreamingQueryException, match="not kept"):
        run(topic, fail_in=1, maxRowsPerTrigger=60)
    # Meanwhile more comes, and what was read goes elsewhere.
    publish(client, topic, sent[200:], batch=10)
    offload(spark, server, topic, location, capfd)
    batches = run(topic, maxRowsPerTrigger=60)
    assert everything(batches) == sent
    assert len(batches[1]) == 60, "the batch that failed is the one that was planned"


@pytest.mark.full
def test_new_topics_of_a_pattern_are_read_from_their_first_message_on(
    run: Run, client: pulsar.Client
) -> None:
    tag = uuid.uuid4().hex[:8]
    pattern = f"persistent://public/default/new-{tag}-.*"
    publish(client, f"new-{tag}-a", payloads(0, 20))
    run(None, topics_pattern=pattern)
    publish(client, f"new-{tag}-a", payloads(20, 30))
    publish(client, f"new-{tag}-b", payloads(100, 110))
    batches = run(None, topics_pattern=pattern)
    assert sorted(everything(batches)) == [*payloads(0, 30), *payloads(100, 110)]


@pytest.mark.full
def test_a_stream_may_begin_at_the_end_and_limits_its_batches_by_bytes(
    run: Run, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, payloads(0, 50))
    assert everything(run(topic, starting="latest")) == []
    sent = [b"x" * 1_000 + payload for payload in payloads(50, 150)]
    publish(client, topic, sent, batch=5)
    batches = run(topic, starting="latest", maxBytesPerTrigger=20_000)
    assert everything(batches) == sent
    assert len([batch for batch in batches.values() if batch]) >= 4
    # Offsets in the checkpoint are message ids.
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = json.loads(newest.read_text().splitlines()[-1])
    assert offset["version"] == 1
    assert offset["topics"][topic]["index"] == 150
    ledger, _, entry = offset["topics"][topic]["at"].partition(":")
    assert int(ledger) >= 0
    assert int(entry) >= 21


@pytest.mark.full
def test_a_subscription_follows_the_checkpoint_and_its_backlog_clears(
    run: Run, rest: Rest, server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options = {"subscription": "spark", "service_url": server.endpoint.service_url}
    publish(client, topic, payloads(0, 100), batch=10)
    assert everything(run(topic, maxRowsPerTrigger=50, **options)) == payloads(0, 100)
    assert backlog(rest, topic) == 0
    publish(client, topic, payloads(100, 120), batch=10)
    assert backlog(rest, topic) > 0
    with pytest.raises(StreamingQueryException, match="not kept"):
        run(topic, fail_in=2, **options)
    assert backlog(rest, topic) > 0, "what no batch has kept stays"
    assert everything(run(topic, **options)) == payloads(0, 120)
    assert backlog(rest, topic) == 0
    consumer = client.subscribe(topic, "spark")
    publish(client, topic, [b"next"], batch=1)
    assert consumer.receive(RECEIVE_MS_MAX).data() == b"next"
    consumer.close()


@pytest.mark.full
def test_messages_that_are_gone_fail_a_query_unless_that_is_to_be_borne(
    run: Run, rest: Rest, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, payloads(0, 10))
    run(topic)
    rest.do("DELETE", f"/{topic.replace('://', '/')}")
    publish(client, topic, payloads(20, 30))
    with pytest.raises(StreamingQueryException, match="recreated"):
        run(topic)
    batches = run(topic, failOnDataLoss="false")
    assert everything(batches) == [*payloads(0, 10), *payloads(20, 30)]
