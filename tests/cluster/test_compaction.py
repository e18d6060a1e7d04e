"""A broker that dies while it compacts: the next owner has the former view whole, and makes the next one."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import eventually
from tests.integration.rest import Rest

TOPIC = "persistent://public/default/compacted"
PATH = "/persistent/public/default/compacted"
KEYS = 100
PAYLOAD_BYTES = 1_000
BYTES_PER_SECOND = 200_000
"""The first compaction takes about a second, the second one five times as long."""

SETTINGS = {
    "magnetarCompactionBytesPerSecond": str(BYTES_PER_SECOND),
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


def put(client: pulsar.Client, version: int) -> None:
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for key in range(KEYS):
        value = b"%d " % version + bytes(PAYLOAD_BYTES)
        producer.send_async(value, lambda result, _: None, partition_key=f"k{key:03}")
    producer.flush()
    producer.close()


def versions(client: pulsar.Client) -> list[tuple[str, int]]:
    """(key, version) of each message that a reader of the compacted view gets."""
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(30_000)
        found.append((message.partition_key(), int(message.data().split(b" ")[0])))
    reader.close()
    return found


def status(rest: Rest) -> str:
    return str(rest.get(f"{PATH}/compaction")["status"])


@pytest.mark.full
def test_the_next_owner_has_the_former_view_whole_and_makes_the_next_one(tmp_path: Path) -> None:
    with WholeCluster.serving(tmp_path, brokers=2, discoveries=1, broker_settings=SETTINGS) as cluster:
        rest = Rest(cluster.endpoint)
        client = pulsar.Client(
            cluster.endpoint.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        rest.do("PUT", f"{PATH}/subscription/keeper", "earliest")
        put(client, 1)
        rest.do("PUT", f"{PATH}/compaction")
        eventually(lambda: status(rest) == "SUCCESS", "the first compaction ends", 60)
        first = [(f"k{key:03}", 1) for key in range(KEYS)]
        assert versions(client) == first
        for version in range(2, 7):
            put(client, version)
        owner = cluster.owner_of(TOPIC)
        rest.do("PUT", f"{PATH}/compaction")
        assert status(rest) == "RUNNING"
        owner.kill()
        eventually(lambda: cluster.owner_of(TOPIC) is not owner, "the other broker takes the topic over", 60)
        tail = [(f"k{key:03}", version) for version in range(2, 7) for key in range(KEYS)]
        assert versions(client) == first + tail, "the former view, then everything after it"
        rest.do("PUT", f"{PATH}/compaction")
        eventually(lambda: status(rest) == "SUCCESS", "the next owner compacts", 60)
        assert versions(client) == [(f"k{key:03}", 6) for key in range(KEYS)]
        client.close()
