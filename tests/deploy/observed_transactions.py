"""Transactions of every kind in a cluster that is watched: committed, aborted, and one that stays open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.common.wire import pulsar_pb2 as pb

from tests.cluster.whole_cluster import WholeCluster
from tests.integration.raw.transcript import Line, line, payload_frame

COORDINATOR: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
TTL_MS: Final = 600_000
"""No alert tells of the open one meanwhile."""

Ids = dict[str, int]


def transact(cluster: WholeCluster, topic: str, until: Callable[[], None]) -> None:
    """A topic gets a committed and an aborted transaction, and one that is open `until` this returns."""
    with _coordinator(cluster) as coordinator, line(cluster.owner_of(topic).endpoint) as c:
        c.open_producer(topic)
        for sequence_id, action in enumerate(("COMMIT", "ABORT", "")):
            ids = _begin(coordinator, topic)
            _publish(c, sequence_id, ids)
            if action:
                _end(coordinator, ids, action)
        until()
        _end(coordinator, ids, "ABORT")


@contextmanager
def _coordinator(cluster: WholeCluster) -> Iterator[Line]:
    with line(cluster.owner_of(COORDINATOR).endpoint) as c:
        c.request("tcClientConnectRequest", tc_id=0)
        assert not c.expect("tcClientConnectResponse").command.HasField("error")
        yield c


def _begin(c: Line, topic: str) -> Ids:
    c.request("newTxn", tc_id=0, txn_ttl_seconds=TTL_MS)
    begun = c.expect("newTxnResponse").command
    ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
    c.request("addPartitionToTxn", partitions=[topic], **ids)
    assert not c.expect("addPartitionToTxnResponse").command.HasField("error")
    return ids


def _publish(c: Line, sequence_id: int, ids: Ids) -> None:
    metadata = pb.MessageMetadata(
        producer_name="raw",
        sequence_id=sequence_id,
        publish_time=int(time.time() * 1000),
        txnid_most_bits=ids["txnid_most_bits"],
        txnid_least_bits=ids["txnid_least_bits"],
    )
    c.send_bytes(payload_frame(1, sequence_id, b"in a transaction", metadata, **ids))
    c.expect("send_receipt", sequence_id=sequence_id)


def _end(c: Line, ids: Ids, action: str) -> None:
    c.request("endTxn", txn_action=action, **ids)
    assert not c.expect("endTxnResponse").command.HasField("error")
