"""Sealed segment files as a bookie would have after writing many gigabytes, made without writing them.

Header, footer (ledger directory and indexes) and trailer are real, made by the log's own encoders, and at
their places. The groups between are a hole of the file: its size is right, it takes no space, and every
record in it reads as damaged. So opening the log and loading indexes cost what they would cost; reading
entries can't be measured with it.
"""

from __future__ import annotations

import os
import random
from array import array
from dataclasses import dataclass
from pathlib import Path

from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import BLOCK, UNIT
from magnetar.ledger.segment_log.file_codec_v1 import (
    TRAILER_SIZE,
    LedgerSummary,
    encode_footer,
    encode_segment_header,
    encode_trailer,
    padded_footer_length,
)
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY, new_header, segment_path

RECORD_BYTES = 1_024 + 10 * UNIT
"""Approximate size of a run of one entry of 1 KiB."""
CREATED_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`ledgers` in all, of which `ledgers_per_segment` have entries of 1 KiB in each segment, a run each."""

    segments: int
    ledgers: int
    ledgers_per_segment: int
    segment_bytes: int = 256 << 20

    @property
    def runs_per_line(self) -> int:
        return self.segment_bytes * 63 // 64 // RECORD_BYTES // self.ledgers_per_segment

    @property
    def lines(self) -> int:
        """Ledger directory entries in all footers."""
        return self.segments * self.ledgers_per_segment

    def ledgers_of(self, segment: int) -> list[int]:
        """Ids of the ledgers in a segment: a window over all ledgers that moves on until each had its turn,
        as of topics that are written for a while."""
        step = max(1, self.ledgers // self.segments)
        first = segment * step
        return sorted((first + place) % self.ledgers for place in range(self.ledgers_per_segment))


def ref_of(ledger_id: int) -> LedgerRef:
    """The name of a made-up ledger."""
    return LedgerRef(ledger_id, ledger_id * 0x9E3779B97F4A7C15 % 2**64)


def write_segments(root: Path, shape: Shape) -> int:
    """Write them under the data directory `root`; returns the bytes of footers written."""
    (root / SEGMENTS_DIRECTORY).mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    written, runs = 0, shape.runs_per_line
    next_entry = [0] * shape.ledgers
    firsts = array("I", range(runs))
    for number in range(shape.segments):
        header = new_header(rng, number + 1, CREATED_MS)
        lines = []
        # Ledgers take turns, so each line's records are spread over the segment.
        stride = shape.ledgers_per_segment * RECORD_BYTES // UNIT
        for place, ledger_id in enumerate(shape.ledgers_of(number)):
            base = next_entry[ledger_id]
            next_entry[ledger_id] += runs
            start = BLOCK // UNIT + place * RECORD_BYTES // UNIT
            offsets = array("I", range(start, start + stride * runs, stride))
            ref, last = ref_of(ledger_id), base + runs - 1
            summary = LedgerSummary(ref.id, ref.key, base, last, last - 1, runs * 1_024, runs, 0)
            lines.append((summary, firsts, offsets))
        footer = encode_footer(header.uuid, header.salt, number + 1, lines)
        length = padded_footer_length(len(footer))
        at = shape.segment_bytes - length // BLOCK * BLOCK
        path = root / segment_path(header.sequence)
        with path.open("wb") as file:
            file.write(encode_segment_header(header))
            file.seek(at)
            file.write(footer + bytes(length - len(footer) - TRAILER_SIZE))
            file.write(encode_trailer(header, at, len(footer)))
        written += length
    os.sync()
    return written
