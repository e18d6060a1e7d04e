"""Transactions over a line: their commands, and messages in them."""

from __future__ import annotations

from typing import Any

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.raw.transcript import Line, payload_frame

COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"
TTL_MS = 60_000
Ids = dict[str, int]
"""The fields that name a transaction."""


def begin(c: Line, ttl_ms: int = TTL_MS, *, coordinator: int = 0) -> Ids:
    """Begins a transaction; returns the fields that name it."""
    request_id = c.request("newTxn", tc_id=coordinator, txn_ttl_seconds=ttl_ms)
    answer = c.expect("newTxnResponse", request_id=request_id).command
    assert not answer.HasField("error"), answer
    assert answer.HasField("txnid_least_bits")
    assert answer.HasField("txnid_most_bits")
    return {"txnid_most_bits": answer.txnid_most_bits, "txnid_least_bits": answer.txnid_least_bits}


def ask(c: Line, name: str, **fields: Any) -> Any:
    """Sends a command of transactions; returns its answer, which has the ids of the request."""
    request_id = c.request(name, **fields)
    answer = c.expect(f"{name}Response", request_id=request_id).command
    for each in ("txnid_most_bits", "txnid_least_bits"):
        assert getattr(answer, each) == fields[each]
    return answer


def end(c: Line, txn: Ids, action: str) -> str:
    """Ends a transaction; returns the name of the error, "" without."""
    return error_of(ask(c, "endTxn", txn_action=action, **txn))


def error_of(answer: Any) -> str:
    return pb.ServerError.Name(answer.error) if answer.HasField("error") else ""


def send_in(c: Line, txn: Ids, payload: bytes, sequence_id: int) -> None:
    """Publishes a message in a transaction, with its ids in the command and in the metadata."""
    metadata = pb.MessageMetadata(
        producer_name="raw",
        sequence_id=sequence_id,
        publish_time=1,
        txnid_most_bits=txn["txnid_most_bits"],
        txnid_least_bits=txn["txnid_least_bits"],
    )
    c.send_bytes(payload_frame(1, sequence_id, payload, metadata, **txn))
    c.expect("send_receipt", sequence_id=sequence_id)
