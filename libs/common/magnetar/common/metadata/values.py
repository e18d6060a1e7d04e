"""Encoding of metadata values with a format header, and decoding that refuses unknown formats.

head = decode(TopicHead, versioned.value) await store.put(key, encode(head), versioned.version)
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.metadata.metadata_pb2 import (
    BOOKIE_COOKIE,
    BOOKIE_MARK,
    BOOKIE_RACK,
    BOOKIE_REGISTRATION,
    BROKER_REGISTRATION,
    BUNDLE_OWNER,
    CLUSTER,
    COMPACTED_VIEW,
    COUNTER,
    DECOMMISSION,
    DYNAMIC_CONFIGURATION,
    INSTANCE_ID,
    INTENT,
    LEADER,
    LEDGER_DECISION,
    LEDGER_METADATA,
    NAMESPACE,
    OFFLOAD_LOCATION,
    PARTITIONED_TOPIC,
    RESOURCE_QUOTA,
    RESTORATION,
    SCHEMA_RECORD,
    TENANT,
    TOPIC_HEAD,
    TOPIC_LEDGER,
    TOPIC_POLICIES,
    TRANSACTION_LOG_HEAD,
    UNDER_REPLICATED,
    BookieCookie,
    BookieMark,
    BookieRack,
    BookieRegistration,
    BrokerRegistration,
    BundleOwner,
    Cluster,
    CompactedView,
    Counter,
    Decommission,
    DynamicConfiguration,
    Envelope,
    Format,
    InstanceId,
    Intent,
    Leader,
    LedgerDecision,
    LedgerMetadata,
    LedgerRef,
    Namespace,
    OffloadLocation,
    PartitionedTopic,
    Policies,
    ResourceQuota,
    Restoration,
    SchemaRecord,
    Tenant,
    TopicHead,
    TopicLedger,
    TopicPolicies,
    TransactionLogHead,
    UnderReplicated,
    ValueType,
)

__all__ = [
    "COMPACTED",
    "FORMAT_VERSION",
    "LEFT_BOOKIES",
    "TERMINATED",
    "BookieCookie",
    "BookieMark",
    "BookieRack",
    "BookieRegistration",
    "BrokerRegistration",
    "BundleOwner",
    "Cluster",
    "CompactedView",
    "Counter",
    "Decommission",
    "DynamicConfiguration",
    "InstanceId",
    "Intent",
    "Leader",
    "LedgerDecision",
    "LedgerMetadata",
    "LedgerRef",
    "Namespace",
    "OffloadLocation",
    "PartitionedTopic",
    "Policies",
    "ResourceQuota",
    "Restoration",
    "SchemaRecord",
    "Tenant",
    "TopicHead",
    "TopicLedger",
    "TopicPolicies",
    "TransactionLogHead",
    "UnderReplicated",
    "decode",
    "encode",
]

FORMAT_VERSION: Final = 1

TERMINATED: Final = 1
"""Feature of a TopicHead: releases without it would continue to publish."""

COMPACTED: Final = 2
"""Feature of a TopicHead: the topic has a compacted view; releases without it would trim what it still needs.
"""

LEFT_BOOKIES: Final = 1
"""Feature of a TopicLedger: its entries exist only in objects, where releases without it would not find them.
"""

_KNOWN_FEATURES: Final[dict[ValueType.ValueType, int]] = {
    TOPIC_HEAD: TERMINATED | COMPACTED,
    TOPIC_LEDGER: LEFT_BOOKIES,
}

_TYPES: Final[dict[type[Message], ValueType.ValueType]] = {
    InstanceId: INSTANCE_ID,
    Tenant: TENANT,
    Namespace: NAMESPACE,
    OffloadLocation: OFFLOAD_LOCATION,
    PartitionedTopic: PARTITIONED_TOPIC,
    Counter: COUNTER,
    TopicHead: TOPIC_HEAD,
    TopicLedger: TOPIC_LEDGER,
    LedgerMetadata: LEDGER_METADATA,
    SchemaRecord: SCHEMA_RECORD,
    Intent: INTENT,
    BookieCookie: BOOKIE_COOKIE,
    BookieMark: BOOKIE_MARK,
    BookieRegistration: BOOKIE_REGISTRATION,
    UnderReplicated: UNDER_REPLICATED,
    Leader: LEADER,
    Decommission: DECOMMISSION,
    TopicPolicies: TOPIC_POLICIES,
    Cluster: CLUSTER,
    DynamicConfiguration: DYNAMIC_CONFIGURATION,
    BookieRack: BOOKIE_RACK,
    ResourceQuota: RESOURCE_QUOTA,
    BrokerRegistration: BROKER_REGISTRATION,
    BundleOwner: BUNDLE_OWNER,
    Restoration: RESTORATION,
    LedgerDecision: LEDGER_DECISION,
    CompactedView: COMPACTED_VIEW,
    TransactionLogHead: TRANSACTION_LOG_HEAD,
}

Value: TypeAlias = (
    InstanceId
    | Tenant
    | Namespace
    | OffloadLocation
    | PartitionedTopic
    | Counter
    | TopicHead
    | TopicLedger
    | LedgerMetadata
    | SchemaRecord
    | Intent
    | BookieCookie
    | BookieMark
    | BookieRegistration
    | BrokerRegistration
    | BundleOwner
    | UnderReplicated
    | Leader
    | Decommission
    | TopicPolicies
    | Cluster
    | DynamicConfiguration
    | BookieRack
    | ResourceQuota
    | Restoration
    | LedgerDecision
    | CompactedView
    | TransactionLogHead
)

V = TypeVar(
    "V",
    InstanceId,
    Tenant,
    Namespace,
    OffloadLocation,
    PartitionedTopic,
    Counter,
    TopicHead,
    TopicLedger,
    LedgerMetadata,
    SchemaRecord,
    Intent,
    BookieCookie,
    BookieMark,
    BookieRegistration,
    BrokerRegistration,
    BundleOwner,
    UnderReplicated,
    Leader,
    Decommission,
    TopicPolicies,
    Cluster,
    DynamicConfiguration,
    BookieRack,
    ResourceQuota,
    Restoration,
    LedgerDecision,
    CompactedView,
    TransactionLogHead,
)


def encode(value: Value) -> bytes:
    """Returns the bytes to store; sets the format header in `value`. Equal values give equal bytes."""
    value.format.type = _TYPES[type(value)]
    value.format.version = FORMAT_VERSION
    return value.SerializeToString(deterministic=True)


def decode(kind: type[V], data: bytes) -> V:
    """Decodes a stored value of a known kind.

    Raises UnsupportedFormat for a value of a newer, incompatible release, and DataCorruption for an invalid
    value.
    """
    try:
        value = kind.FromString(data)
        header = value.format
    except DecodeError as error:
        try:
            header = Envelope.FromString(data).format
        except DecodeError:
            header = Envelope().format
        if header.version == 0 or _understood(header):
            raise DataCorruption(f"metadata value is no {kind.__name__}: {error}") from error
    if header.version == 0 or header.type != _TYPES[kind]:
        raise DataCorruption(
            f"metadata value is no {kind.__name__}: its type is {header.type}, version {header.version}"
        )
    if not _understood(header):
        raise UnsupportedFormat(
            f"{kind.__name__} in metadata has format version {header.version} and incompatible features "
            f"{header.incompatible_features:#x}; this release reads version {FORMAT_VERSION} and features "
            f"{_KNOWN_FEATURES.get(header.type, 0):#x}. Run the release that wrote it, or a newer one"
        )
    return value


def _understood(header: Format) -> bool:
    known = _KNOWN_FEATURES.get(header.type, 0)
    return header.version == FORMAT_VERSION and not header.incompatible_features & ~known
