"""Whom a message is meant for, under simulation: what gRPC carries as metadata goes before the message."""

from __future__ import annotations

from magnetar.ledger.bookie_protocol.bookie_pb2 import ExpectedBookie


def meant_for(bookie_id: str, directory_id: bytes, message: bytes) -> bytes:
    """A call's request, or the first message of a stream, for a bookie with a data directory."""
    expected = ExpectedBookie(bookie_id=bookie_id, directory_id=directory_id).SerializeToString()
    return len(expected).to_bytes(2, "big") + expected + message


def split_expected(message: bytes) -> tuple[ExpectedBookie, bytes]:
    """Whom it is meant for, and the message."""
    end = 2 + int.from_bytes(message[:2], "big")
    return ExpectedBookie.FromString(message[2:end]), message[end:]
