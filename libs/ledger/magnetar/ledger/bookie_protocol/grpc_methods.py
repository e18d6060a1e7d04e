"""Constants of the gRPC transport: the service's name, its methods, and their limits.

Messages of `Append` go as bytes on both sides: a batch is the concatenation of appends that were encoded
once, so nothing is gained by a message object in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message
from magnetar.common.rpc.callers import CallerTable
from magnetar.common.security.services.service_identity import Service
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    AppendBatch,
    ClearLimboRequest,
    DeleteHintRequest,
    DeleteHintResponse,
    DescribeRequest,
    Description,
    EntryRanges,
    FenceRequest,
    LedgerList,
    LedgerState,
    ListEntriesRequest,
    ListLedgersRequest,
    ReadLacRequest,
    ReadPart,
    ReadRequest,
)

SERVICE: Final = "magnetar.bookie.v1.Bookie"

WRITABLE_SERVICE: Final = "magnetar.bookie.v1.Bookie/writable"
"""Health service name of a bookie that accepts new ledgers; `SERVICE` means that it answers at all."""

APPEND: Final = "Append"

BATCH_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of appends in one message, unless a single one is larger."""

MESSAGE_BYTES_MAX: Final = 6 << 20
"""Maximum message size in bytes for both sides: the largest entry (5 MiB), its header, and reserve."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method with one request."""

    name: str
    request: type[Message]
    response: type[Message]

    @property
    def path(self) -> str:
        """The gRPC name on the wire."""
        return method_path(self.name)


def method_path(name: str) -> str:
    """Returns the gRPC path of a method of the service."""
    return f"/{SERVICE}/{name}"


READ: Final = Method("Read", ReadRequest, ReadPart)
READ_LAC: Final = Method("ReadLac", ReadLacRequest, LedgerState)
FENCE: Final = Method("Fence", FenceRequest, LedgerState)
LIST_LEDGERS: Final = Method("ListLedgers", ListLedgersRequest, LedgerList)
DELETE_HINT: Final = Method("DeleteHint", DeleteHintRequest, DeleteHintResponse)
CLEAR_LIMBO: Final = Method("ClearLimbo", ClearLimboRequest, LedgerState)
DESCRIBE: Final = Method("Describe", DescribeRequest, Description)
LIST_ENTRIES: Final = Method("ListEntries", ListEntriesRequest, EntryRanges)

VERSION_KEY: Final = "magnetar-protocol-version"
"""Call metadata key: the client's protocol version; Append carries it in its first message."""

VERSION_METADATA: Final = ((VERSION_KEY, str(PROTOCOL_VERSION)),)

EXPECTED_KEY: Final = "magnetar-expected-bookie-bin"
"""Call metadata key: the addressed bookie (ExpectedBookie), for calls and append streams."""

FIRST_BATCH: Final = AppendBatch(protocol_version=PROTOCOL_VERSION).SerializeToString()
"""Header of a stream's first message."""

_WRITERS: Final = frozenset({Service.BROKER, Service.BOOKIE})
_READERS: Final = frozenset({Service.BROKER, Service.BOOKIE, Service.JOB, Service.ADMIN})

CALLERS: Final[CallerTable] = {
    READ.name: _READERS,
    READ_LAC.name: frozenset({Service.BROKER, Service.BOOKIE, Service.JOB}),
    LIST_LEDGERS.name: frozenset({Service.BROKER, Service.BOOKIE, Service.ADMIN}),
    DESCRIBE.name: frozenset({Service.BROKER, Service.BOOKIE, Service.ADMIN}),
    LIST_ENTRIES.name: _WRITERS,
    APPEND: _WRITERS,
    FENCE.name: _WRITERS,
    CLEAR_LIMBO.name: _WRITERS,
    DELETE_HINT.name: _WRITERS,
}
"""The services that may call each method of a bookie. Bookies call each other when they re-replicate."""
