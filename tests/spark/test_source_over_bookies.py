"""Topics of a cluster as tables: closed ledgers straight from bookies, the open one through its broker."""

from __future__ import annotations

from pathlib import Path

import magnetar.spark
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.testing.free_ports import free_ports
from pyspark.sql import SparkSession

from tests.cluster.processes import Cluster
from tests.integration.rest import Rest
from tests.spark.servers import SETTINGS, close_ledgers, publish, pulsar_client

MESSAGES = 300


@pytest.mark.full
@pytest.mark.timeout(600)
def test_closed_ledgers_are_read_from_bookies_and_the_open_one_from_its_owner(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    sent = [f"message {number:05}".encode() for number in range(MESSAGES)]
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    magnetar.spark.register(spark)
    with Cluster.running(tmp_path / "cluster") as cluster:
        broker = cluster.broker({**SETTINGS, "magnetarControlPort": str(port)})
        broker.start()
        with pulsar_client(broker.endpoint) as client:
            publish(client, topic, sent[:200], batch=10)
            close_ledgers(Rest(broker.endpoint), topic)
            publish(client, topic, sent[200:], batch=10)
            with OffloadChannel(address) as channel:
                closed, opened = channel.describe(topic).ledgers
            assert len(closed.bookies.addresses) == 3
            assert opened.closed_ms == 0
            given = {"offload.address": address, "topic": topic, "task.bytes": "1000"}
            frame = spark.read.format("magnetar").options(**given).load()
            assert frame.rdd.getNumPartitions() > 4
            rows = frame.orderBy("ledger_id", "entry_id", "batch_index").collect()
            assert [bytes(row.payload) for row in rows] == sent
            cluster.bookies[0].kill()
            again = spark.read.format("magnetar").options(**given).load()
            assert again.count() == MESSAGES
            broker.stop()
