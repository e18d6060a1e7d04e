"""Names of the gRPC service that serves a metadata store to the workers of a standalone, and its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from magnetar.common.metadata.served_store_pb2 import (
    BeginSessionRequest,
    BeginSessionResponse,
    ChildrenPart,
    ChildrenRequest,
    CommitRequest,
    CommitResponse,
    EndSessionRequest,
    EndSessionResponse,
    GetRequest,
    GetResponse,
    Item,
    KeepAliveRequest,
    KeepAliveResponse,
    WatchPart,
    WatchRequest,
)
from magnetar.common.metadata.served_store_pb2 import Op as WireOp
from magnetar.common.metadata.store import Check, Delete, Op, Put, Versioned

SERVICE: Final = "magnetar.metadata.served.v1.MetadataStore"

OPTIONS: Final[list[tuple[str, Any]]] = [
    # A transaction has up to 128 values of 1 MiB; a listing comes in parts.
    ("grpc.max_receive_message_length", 160 << 20),
    ("grpc.max_send_message_length", 160 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
]
"""Options of the server and its channels."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method with one request."""

    name: str
    request: type[Message]
    response: type[Message]

    @property
    def path(self) -> str:
        """The gRPC name on the wire."""
        return f"/{SERVICE}/{self.name}"


GET: Final = Method("Get", GetRequest, GetResponse)
CHILDREN: Final = Method("Children", ChildrenRequest, ChildrenPart)
COMMIT: Final = Method("Commit", CommitRequest, CommitResponse)
WATCH: Final = Method("Watch", WatchRequest, WatchPart)
BEGIN_SESSION: Final = Method("BeginSession", BeginSessionRequest, BeginSessionResponse)
KEEP_ALIVE: Final = Method("KeepAlive", KeepAliveRequest, KeepAliveResponse)
END_SESSION: Final = Method("EndSession", EndSessionRequest, EndSessionResponse)


def item_of(found: Versioned) -> Item:
    """Returns the message of a key with its value."""
    return Item(key=found.key, value=found.value, version=found.version)


def versioned_of(item: Item) -> Versioned:
    """Returns the key with its value of a message."""
    return Versioned(item.key, item.value, item.version)


def wire_ops(ops: Sequence[Op]) -> list[WireOp]:
    """Encodes the operations of a transaction."""
    return [_encode(op) for op in ops]


def ops_of(wire: Sequence[WireOp]) -> list[Op]:
    """Decodes the operations of a transaction."""
    return [_decode(op) for op in wire]


def _encode(op: Op) -> WireOp:
    if isinstance(op, Put):
        return WireOp(
            kind=WireOp.PUT,
            key=op.key,
            expected_version=op.expected_version,
            value=op.value,
            ephemeral=op.ephemeral,
        )
    kind = WireOp.DELETE if isinstance(op, Delete) else WireOp.CHECK
    return WireOp(kind=kind, key=op.key, expected_version=op.expected_version)


def _decode(op: WireOp) -> Op:
    if op.kind == WireOp.PUT:
        return Put(op.key, op.value, op.expected_version, ephemeral=op.ephemeral)
    if op.kind == WireOp.DELETE:
        return Delete(op.key, op.expected_version)
    return Check(op.key, op.expected_version)
