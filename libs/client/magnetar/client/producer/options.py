"""Options of producers, and their batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from magnetar.client.routing import Hashing, RoundRobin, Routing
from magnetar.common.wire.pulsar_pb2 import CompressionType, ProducerAccessMode

AccessMode = Literal["shared", "exclusive", "exclusive_with_fencing", "wait_for_exclusive"]
Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]

COMPRESSIONS: Final[Mapping[Compression, CompressionType.ValueType]] = {
    "none": CompressionType.NONE,
    "lz4": CompressionType.LZ4,
    "zlib": CompressionType.ZLIB,
    "zstd": CompressionType.ZSTD,
    "snappy": CompressionType.SNAPPY,
}
ACCESS_MODES: Final[Mapping[AccessMode, ProducerAccessMode.ValueType]] = {
    "shared": ProducerAccessMode.Shared,
    "exclusive": ProducerAccessMode.Exclusive,
    "exclusive_with_fencing": ProducerAccessMode.ExclusiveWithFencing,
    "wait_for_exclusive": ProducerAccessMode.WaitForExclusive,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How messages are collected into entries.

    A batch is sent when it is full, when nothing is on its way, and after `max_delay_s` at the latest.
    """

    max_messages: int = 1_000
    max_bytes: int = 128 * 1_024
    max_delay_s: float = 0.001
    by_key: bool = False
    """A batch for each key, which Key_Shared subscriptions need to keep the order of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Options of `Client.create_producer`, which has their meanings. Times are in seconds."""

    name: str = ""
    initial_sequence_id: int | None = None
    send_timeout_s: float = 30.0
    batching: Batching | None = field(default_factory=Batching)
    chunking: bool = False
    chunk_bytes_max: int = 0
    compression: Compression = "none"
    routing: Routing = field(default_factory=RoundRobin)
    hashing: Hashing = "java_string"
    access_mode: AccessMode = "shared"
    public_keys: Mapping[str, bytes] = field(default_factory=dict)
    max_pending_messages: int = 10_000
    properties: Mapping[str, str] = field(default_factory=dict)
    initial_subscription: str = ""
    waits_for_room: bool = True
