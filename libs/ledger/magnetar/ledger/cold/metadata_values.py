"""Conversion of message metadata fields to column values."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.cold.columns import COLUMN_NAMES

_CALENDAR_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the maximum time in SQL and Python."""

# Without its tag's bytes a field is absent, which saves the slower protobuf lookup. (A tag may be encoded
# longer than necessary: such a field is hidden from columns, not from consumers.)
PROPERTIES_TAG: Final = b"\x22"
SINGLE_PROPERTIES_TAG: Final = b"\x0a"
REPLICATED_TAG: Final = b"\x2a"
COMPRESSION_TAG: Final = b"\x40"
KEYS_TAG: Final = b"\x6a"
HIGH_TAGS: Final = b"\x01"
"""The second byte of the tags of fields 16 to 31."""

NO_PROPERTIES: Final[tuple[tuple[str, str], ...]] = ()
COMMON_COLUMNS: Final = COLUMN_NAMES[
    COLUMN_NAMES.index("schema_version") : COLUMN_NAMES.index("txn_least") + 1
]
NOTHING_COMMON: Final = (None,) * len(COMMON_COLUMNS)


def int64(number: int) -> int:
    """Returns an unsigned 64-bit number as the signed one with the same bits."""
    return number if number < 1 << 63 else number - (1 << 64)


def time_us(time_ms: int) -> int | None:
    """Converts a client's milliseconds to microseconds; None outside of the calendar."""
    return time_ms * 1000 if 0 <= time_ms <= _CALENDAR_MS_MAX else None


def text(value: Any) -> str:
    """Returns a text value; protobuf returns `bytes` for text that is not UTF-8."""
    return value if type(value) is str else bytes(value).decode(errors="replace")


def properties_of(pairs: Any) -> Sequence[tuple[str, str]]:
    if not pairs:
        return NO_PROPERTIES
    return tuple({text(pair.key): text(pair.value) for pair in pairs}.items())


def key_of(own: Any) -> tuple[str | None, bytes | None]:
    """Returns (key as text, key as bytes if the producer's keys are bytes)."""
    if not own.HasField("partition_key") or own.null_partition_key:
        return None, None
    key = text(own.partition_key)
    if not own.partition_key_b64_encoded:
        return key, None
    try:
        return key, base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return key, None


def common_values(metadata: MessageMetadata) -> tuple[Any, ...]:
    """Returns the columns of COMMON_COLUMNS, which all messages of an entry share."""
    has = metadata.HasField
    chunk = metadata.num_chunks_from_msg > 1
    in_transaction = has("txnid_most_bits") and has("txnid_least_bits")
    return (
        metadata.schema_version if has("schema_version") else None,
        time_us(metadata.deliver_at_time) if metadata.deliver_at_time else None,
        text(metadata.replicated_from) if has("replicated_from") else None,
        text(metadata.uuid) if chunk else None,
        metadata.chunk_id if chunk else None,
        metadata.num_chunks_from_msg if chunk else None,
        int64(metadata.txnid_most_bits) if in_transaction else None,
        int64(metadata.txnid_least_bits) if in_transaction else None,
    )
