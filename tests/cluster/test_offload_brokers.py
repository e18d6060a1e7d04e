"""Offload jobs may ask any broker of a cluster; only for a topic's end are they sent on to its owner."""

from __future__ import annotations

import time
from functools import partial

import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import COMPLETE, CompleteRequest, Ledger
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.offload_reads import read_runs

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import BrokerProcess
from tests.cluster.test_two_brokers import (
    SHORT_SESSION_MS,
    TAKEOVER_SECONDS_MAX,
    client_of,
    split_evenly,
    topics_by_bundle,
    two_brokers,
)
from tests.integration.clients import publish
from tests.integration.harness import eventually
from tests.integration.rest import Rest

LOCATION = "s3://bucket"
A = b"a" * 16


def entries_at(address: str, ledger: Ledger) -> list[bytes]:
    with OffloadChannel(address) as channel:
        ref = LedgerRef(ledger.ledger_id, ledger.ledger_key)
        runs = read_runs(channel, ledger.topic, ref, 0, ledger.last_entry_id, sleep=time.sleep)
        return [entry for run in runs for entry in run.entries]


def described_at(channel: OffloadChannel, topic: str, owner: BrokerProcess) -> bool:
    return channel.describe(topic).address == owner.jobs_address


@pytest.mark.full
def test_any_broker_is_asked_and_sends_on_to_the_owner_also_when_that_was_killed(
    new_cluster: NewCluster,
) -> None:
    first, second = two_brokers(new_cluster(), first_session_ms=SHORT_SESSION_MS)
    brokers = (first, second)
    topics = topics_by_bundle()
    serving = split_evenly(first, second, topics)
    assert set(map(id, serving.values())) == {id(first), id(second)}, "each has some"
    lots = {topic: [b"%s-%d" % (topic.encode(), number) for number in range(20)] for topic in topics}
    for topic in topics:
        with client_of(first) as client:
            publish(client, topic, lots[topic][:12])
            Rest(first.endpoint).do("PUT", f"/{topic.replace('://', '/')}/unload")
            publish(client, topic, lots[topic][12:])

    for broker in brokers:
        with OffloadChannel(broker.jobs_address) as channel:
            assert set(channel.topics(pattern="persistent://public/default/t-.*")) == set(topics)
            for topic, owner in serving.items():
                found = channel.describe(topic)
                assert found.address == owner.jobs_address
                assert [ledger.entries for ledger in found.ledgers] == [12, 8]
                closed, written = found.ledgers
                assert len(closed.bookies.addresses) == 3
                entries = entries_at(broker.jobs_address, closed) + entries_at(found.address, written)
                assert all(
                    entry.endswith(payload) for entry, payload in zip(entries, lots[topic], strict=True)
                )

    # Steps of one job at different brokers, whoever owns the topic.
    with OffloadChannel(first.jobs_address) as one, OffloadChannel(second.jobs_address) as other:
        for topic in topics:
            (ledger,) = one.want(topic, location=LOCATION)
            assert [each.ledger_id for each in other.wanted([topic]).ledgers] == [ledger.ledger_id]
            begun = other.begin(topic, ledger.creation_id, ledger.ledger_id, A)
            request = CompleteRequest(
                topic=topic,
                creation_id=ledger.creation_id,
                ledger_id=ledger.ledger_id,
                attempt=A,
                entries=12,
                rows=12,
                manifest_sha256=b"s" * 32,
            )
            assert one.complete(request).offload.state == COMPLETE
            assert begun.offload.path in other.attempts(LOCATION).paths

    first.kill()
    with OffloadChannel(second.jobs_address) as channel:
        for topic in topics:
            eventually(
                partial(described_at, channel, topic, second),
                f"the broker that is left owns {topic}",
                TAKEOVER_SECONDS_MAX,
            )
            found = channel.describe(topic)
            assert sum(ledger.entries for ledger in found.ledgers) == 20
            assert found.ledgers[0].offload.state == COMPLETE
            entries = [entry for ledger in found.ledgers for entry in entries_at(found.address, ledger)]
            assert all(entry.endswith(payload) for entry, payload in zip(entries, lots[topic], strict=True))
