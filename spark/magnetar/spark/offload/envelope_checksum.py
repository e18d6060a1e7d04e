"""A checksum over what clients are told beside an entry's bytes: its place, its time, its messages' numbers.

Made of the entries that were read, and again of those that are rebuilt from the object: the same entries give
the same checksum, however they are cut into runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from magnetar.common.wire.checksum import crc32c
from magnetar.ledger.ledger_store import Run

_ENVELOPE = struct.Struct("<qqqIH")


def envelope_crc(runs: Iterable[Run], crc: int = 0) -> int:
    """Return the checksum, continued from `crc`."""
    pack = _ENVELOPE.pack
    for run in runs:
        counts, index = run.message_counts, run.first_index
        packed = []
        for number in range(len(run.entries)):
            count = 1 if counts is None else counts[number]
            packed.append(pack(run.first_entry_id + number, run.publish_time_ms, index, count, run.flags))
            index += count
        crc = crc32c(b"".join(packed), crc)
    return crc
