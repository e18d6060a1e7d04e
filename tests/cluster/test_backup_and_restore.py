"""Metadata that is lost and put back from a copy, over real processes: nothing confirmed goes without a word.

What the copy knows is served again, whole, although the open ledgers have gone on with other bookies since.
What was made after it is kept by bookies, counted, and read out before anybody lets it go.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest
from magnetar.testing import standalone

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.cluster.test_faults_bookies import QUICK
from tests.integration.harness import (
    Endpoint,
    MagnetarProcess,
    eventually,
    magnetar_command,
)

BOOKIES: Final = {**QUICK, "gcWaitTime": "500", "magnetarLogGcGraceSeconds": "0"}
"""Garbage collection looks all the time, and would delete at once what metadata lacks."""

BROKER: Final = {
    "metadataStoreSessionTimeoutMillis": "3000",
    "magnetarAddEntryTimeoutSeconds": "2",
    "bookkeeperClientTimeoutInSeconds": "2",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "40",
}
OLD: Final = "persistent://public/default/old"
NEW: Final = "persistent://public/default/new"
SECONDS_MAX: Final = 90.0
RECEIVE_MS_MAX: Final = 30_000


def admin(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*magnetar_command(), "admin", "--metadata", cluster.etcd.url, "--cluster", CLUSTER_NAME]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def done(cluster: Cluster, *arguments: str) -> str:
    """What a command that has to succeed prints."""
    result = admin(cluster, *arguments)
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return result.stdout


@contextmanager
def client_of(endpoint: Endpoint) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(endpoint.service_url, operation_timeout_seconds=60, logger=logger)
    try:
        yield client
    finally:
        client.close()


def publish(client: pulsar.Client, topic: str, first: int, last: int) -> list[str]:
    """Messages first to last, each confirmed before the next one."""
    producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
    texts = [f"{topic.rpartition('/')[2]}-{number}" for number in range(first, last + 1)]
    for text in texts:
        producer.send(text.encode())
    producer.close()
    return texts


def read_all(client: pulsar.Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_MS_MAX).data().decode())
    reader.close()
    return found


def paused(cluster: Cluster) -> list[float]:
    """Whether each bookie holds back its deletions."""
    found = []
    for bookie in cluster.bookies:
        with urllib.request.urlopen(f"{bookie.http_url}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        found += [float(line.split()[1]) for line in lines if line.startswith("magnetar_log_gc_paused ")]
    return found


def says(process: MagnetarProcess, text: str) -> bool:
    return text in process.log_tail()


def stop_all(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        broker.kill()
    for bookie in cluster.bookies:
        bookie.stop()


def by_file(cluster: Cluster, directory: Path) -> Iterator[None]:
    """A copy by the command; put back into an etcd that has nothing."""
    file = directory / "metadata.gz"
    done(cluster, "metadata", "backup", str(file))
    yield
    cluster.etcd.kill()
    shutil.rmtree(cluster.etcd.directory / "data")
    cluster.etcd.start()
    done(cluster, "metadata", "restore", str(file))
    yield


def by_snapshot(cluster: Cluster, directory: Path) -> Iterator[None]:
    """A copy by etcd's own means, and what has to be said of it afterwards."""
    etcd = cluster.etcd
    file = directory / "etcd.snapshot"
    etcd.etcdctl("snapshot", "save", str(file))
    yield
    etcd.kill()
    data = etcd.directory / "data"
    shutil.rmtree(data)
    etcd.etcdctl(
        *("snapshot", "restore", str(file), "--data-dir", str(data), "--name", etcd.name),
        *("--initial-cluster", f"{etcd.name}={etcd.peer_url}"),
        *("--initial-advertise-peer-urls", etcd.peer_url),
    )
    etcd.start()
    # Sessions that were there at the time of the snapshot are there again until their leases end.
    eventually(lambda: admin(cluster, "metadata", "mark-restored").returncode == 0, "nobody is registered")
    yield


@pytest.mark.full
@pytest.mark.parametrize("copied", [pytest.param(by_file, marks=pytest.mark.nightly), by_snapshot])
def test_restored_ledgers_are_complete_and_later_ledgers_are_kept(
    new_cluster: NewCluster, tmp_path: Path, copied: Any
) -> None:
    cluster = new_cluster(bookies=4, bookie_settings=BOOKIES)
    first = cluster.broker(BROKER)
    first.start()
    with client_of(first.endpoint) as client:
        consumer = client.subscribe(OLD, "orders", initial_position=pulsar.InitialPosition.Earliest)
        confirmed = publish(client, OLD, 0, 89)  # two ledgers, and ten entries of a third
        for _ in range(30):
            consumer.acknowledge(consumer.receive(RECEIVE_MS_MAX))
        copy = copied(cluster, tmp_path)
        next(copy)
        # Since then the third ledger goes on with other bookies, and ends; more ledgers and a topic are made.
        for bookie in cluster.bookies[:2]:
            bookie.kill()
            confirmed += publish(client, OLD, len(confirmed), len(confirmed) + 9)
            bookie.start()
        confirmed += publish(client, OLD, len(confirmed), 189)
        late = publish(client, NEW, 0, 29)
        consumer.close()
    stop_all(cluster)

    next(copy)
    for bookie in cluster.bookies:
        bookie.launch()
    for bookie in cluster.bookies:
        bookie.wait_until_healthy()
    refused = cluster.broker(BROKER)
    refused.launch()
    eventually(lambda: not refused.running, "a broker does not start over metadata that nobody compared")
    assert "magnetar admin metadata reconcile" in refused.log_tail()

    found = json.loads(done(cluster, "--json", "metadata", "reconcile"))
    assert (found["state"], found["problems"], found["missing"]) == ("reconciled", 0, 0)
    assert len(found["bookies"]) == 4
    unnamed = [each["ledger"] for each in found["found"] if each["kind"] == "unnamed"]
    assert unnamed

    refused.start()
    broker = refused
    with client_of(broker.endpoint) as client:
        again = read_all(client, OLD)
        assert again == confirmed[: len(again)], "in order, nothing twice"
        assert len(again) >= 120, "and up to the end of the ledger that was open"
        consumer = client.subscribe(OLD, "orders")
        left = [consumer.receive(RECEIVE_MS_MAX).data().decode() for _ in range(len(again) - 30)]
        assert left == again[30:], "what was acknowledged before the copy stays so"
        consumer.close()
        publish(client, OLD, 1_000, 1_009)
        assert read_all(client, OLD)[len(again) :] == [f"old-{number}" for number in range(1_000, 1_010)]

    eventually(lambda: paused(cluster) == [1.0] * 4, "no bookie deletes anything")
    texts = set(again)
    for ledger_id in unnamed:
        result = admin(cluster, "metadata", "read-unnamed", str(ledger_id))
        texts |= {
            message["content"]
            for message in map(json.loads, result.stdout.splitlines())
            if "content" in message
        }
    assert texts >= {*confirmed, *late}, "every confirmed message is served, or can be read out"

    refusal = admin(cluster, "metadata", "release")
    assert refusal.returncode == 1
    assert "made since the copy" in refusal.stderr
    done(cluster, "metadata", "release", "--discard")
    for bookie in cluster.bookies:  # what was written to is a finished segment then
        bookie.restart()
    eventually(lambda: paused(cluster) == [0.0] * 4, "bookies collect garbage again")
    eventually(partial(nothing_unnamed, cluster), "what nobody named is gone")
    with client_of(broker.endpoint) as client:
        assert read_all(client, OLD)[: len(again)] == again


def nothing_unnamed(cluster: Cluster) -> bool:
    result = admin(cluster, "--json", "metadata", "status", "--look")
    return result.returncode == 0 and json.loads(result.stdout)["unnamed"] == 0


@pytest.mark.full
def test_a_bookie_that_the_copy_does_not_know_is_taken_in_with_its_data(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    cluster = new_cluster(bookies=3, bookie_settings=BOOKIES)
    broker = cluster.broker(BROKER)
    broker.start()
    with client_of(broker.endpoint) as client:
        confirmed = publish(client, OLD, 0, 9)
        copy = by_file(cluster, tmp_path)
        next(copy)
        cluster.add_bookie().start()
        cluster.bookies[0].kill()
        confirmed += publish(client, OLD, 10, 29)  # on the new one as well
    cluster.bookies[0].start()
    stop_all(cluster)
    next(copy)
    for bookie in cluster.bookies:
        bookie.start()
    found = json.loads(done(cluster, "--json", "metadata", "reconcile"))
    assert found["bookies"] == ["bookie-1", "bookie-2", "bookie-3", "bookie-4"]
    assert found["brought_home"] >= 1
    broker.start()
    with client_of(broker.endpoint) as client:
        assert read_all(client, OLD) == confirmed


@pytest.mark.full
def test_no_broker_acknowledges_after_etcd_came_back_empty(new_cluster: NewCluster, tmp_path: Path) -> None:
    """What they confirmed there would be in ledgers that the copy takes for garbage."""
    cluster = new_cluster(bookies=3, bookie_settings=BOOKIES)
    broker = cluster.broker(BROKER)
    broker.start()
    with client_of(broker.endpoint) as client:
        confirmed = publish(client, OLD, 0, 9)
    copy = by_file(cluster, tmp_path)
    next(copy)
    cluster.etcd.kill()
    shutil.rmtree(cluster.etcd.directory / "data")
    cluster.etcd.start()
    for process in (broker, *cluster.bookies):
        eventually(partial(says, process, "metadata is empty"), "it says what it waits for")
    listed = admin(cluster, "--json", "bookies", "list")
    assert "has no bookies" in listed.stderr, "none has registered"
    stop_all(cluster)
    next(copy)
    for bookie in cluster.bookies:
        bookie.start()
    done(cluster, "metadata", "reconcile")
    broker.start()
    with client_of(broker.endpoint) as client:
        assert read_all(client, OLD) == confirmed


@pytest.mark.full
def test_a_standalone_s_directory_is_copied_while_it_is_stopped(tmp_path: Path) -> None:
    """Its metadata and its ledgers go together: one without the other is refused."""
    with standalone() as server:
        endpoint = Endpoint(server.service_url, server.admin_url)
        with client_of(endpoint) as client:
            confirmed = publish(client, OLD, 0, 19)
        assert server.stop() == 0
        shutil.copytree(server.data_dir, tmp_path / "backup")
        server.start()
        with client_of(endpoint) as client:
            publish(client, OLD, 20, 29)
        assert server.stop() == 0
        shutil.rmtree(server.data_dir)
        shutil.copytree(tmp_path / "backup", server.data_dir)
        server.start()
        with client_of(endpoint) as client:
            assert read_all(client, OLD) == confirmed
            assert len(publish(client, OLD, 20, 24)) == 5
