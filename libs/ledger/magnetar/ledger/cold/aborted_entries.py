"""The entries of a ledger that belong to aborted transactions, as owners of topics tell them to readers."""

from __future__ import annotations

from magnetar.common.errors import DataCorruption
from pyroaring import BitMap

AbortedEntries = BitMap
"""Entry ids of one ledger."""


def encode_aborted(entry_ids: AbortedEntries) -> bytes:
    """Encodes as a roaring bitmap in the portable format; nothing for none."""
    return entry_ids.serialize() if entry_ids else b""


def decode_aborted(data: bytes) -> AbortedEntries:
    """Decodes what `encode_aborted` returned. Raises DataCorruption."""
    try:
        return AbortedEntries.deserialize(data) if data else AbortedEntries()
    except ValueError as error:
        raise DataCorruption(f"the aborted entries of a ledger are no bitmap: {error}") from error
