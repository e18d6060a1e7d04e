"""Opening the log after any kind of stop: which bytes are believed, and what is made durable again.

- A group is known durable when a later group header, in this segment or the next, says so: headers are
  written only after the sync of what they name. A damaged record there stays a visible hole ('unreadable'):
  it is counted, never cut, and hides nothing after it.
- At most the last group is not known durable. It may be torn, or may be only in the page cache. Its sound
  records are written to a fresh segment and synced before the log answers anything; the rest is cut. A record
  after a lost one of the same ledger is cut too: it was never acknowledged and would leave a gap.
- Only then are the old files sealed at their durable end, or removed when nothing durable is in them.

A log that keeps one replica of several (a bookie's) differs in two ways. Gaps are normal there, so every
sound record is kept. And where records may be lost without a name (a torn or damaged last group, a group in
the middle whose directory is gone, a mark or a whole file that can't be read, a file that is missing, groups
that its owner knows of and that are not there), it says so before it cuts anything: its owner must be in
doubt from then on (storage contract, section 3).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    GROUP_HEADER_SIZE,
    Durable,
    EncodedRecord,
    body_intact,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import (
    FLAG_RECYCLED,
    FLAG_SORTED,
    TRAILER_SIZE,
    SegmentHeader,
    decode_segment_header,
    decode_trailer,
)
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.inventory import SegmentInventory, read_inventory
from magnetar.ledger.segment_log.kept_records import (
    batch_records,
    copy_record,
    enter_record,
    write_group,
)
from magnetar.ledger.segment_log.scan import (
    GroupAt,
    GroupScan,
    Window,
    first_group,
    read_directory,
    read_record,
    salvage_records,
    scan_groups,
)
from magnetar.ledger.segment_log.segment import (
    SEGMENTS_DIRECTORY,
    Segment,
    create_segment,
    leftover_paths,
    new_header,
    segment_path,
    segment_sequences,
)
from magnetar.ledger.segment_log.torn_group import OnDoubt, Torn, torn_by
from magnetar.ledger.segment_log.unreadable_blocks import read_around
from prometheus_client import Counter

log = get_logger(__name__)

LOST_TOLD_MAX: Final = 50
"""Maximum lost records of a segment listed in the log."""

DAMAGED_RECORDS = Counter(
    "magnetar_log_damaged_records",
    "Records of the segment log found damaged where they were known to be durable.",
    registry=REGISTRY,
)
TAIL_CUTS = Counter(
    "magnetar_log_tail_cuts",
    "Times that recovery cut records of the log's last group, which was torn or damaged.",
    registry=REGISTRY,
)
QUARANTINED = Counter(
    "magnetar_log_quarantined_segments",
    "Segment files whose headers are damaged beyond use; they are kept and not read.",
    registry=REGISTRY,
)


@dataclass(slots=True)
class RecoveredLog:
    """Result of `recover_log` for the running log."""

    sealed: list[Segment]
    open: Segment
    next_group_sequence: int
    durable: Durable
    spares: list[str] = field(default_factory=list)
    """Files of removed segments, kept for recycling."""
    inventory: SegmentInventory | None = None
    """The segment list of a log that keeps one of several replicas."""


@dataclass(slots=True)
class _Tail:
    """A segment without a footer, as scanned."""

    segment: Segment
    window: Window
    scan: GroupScan
    durable_end: int = BLOCK
    damaged: int = 0
    doubts: list[str] = field(default_factory=list)
    """Reasons why unidentified records may be lost."""
    torn: Torn | None = None
    """Whether the last group, which is in this segment, is torn."""


@dataclass(slots=True)
class _Known:
    """The state of every ledger while the tails are examined."""

    last_entry: dict[LedgerRef, int] = field(default_factory=dict)
    gaps_are_normal: bool = False

    def learn(self, segment: Segment) -> None:
        lines = {ref: index.last_entry_id for ref, index in segment.indexes.items()}
        lines.update((ref, summary.last_entry_id) for ref, summary in segment.summaries.items())
        for ref, last in lines.items():
            self.last_entry[ref] = max(self.last_entry.get(ref, -1), last)


def recover_log(
    disk: Disk,
    config: SegmentLogConfig,
    rng: random.Random,
    now_ms: int,
    *,
    replica: bool = False,
    on_doubt: OnDoubt | None = None,
    high_water: int | None = None,
) -> RecoveredLog:
    """Opens every segment and makes the tail durable in a new one. Blocks.

    `replica` and `on_doubt`: see the module. `high_water` is the sequence of a group that the owner knows to
    have been durable in this directory; None if it knows nothing of the directory. Raises UnsupportedFormat
    for files of a later release, OSError if the disk fails: then nothing was lost and the next start tries
    again.
    """
    sealed: list[Segment] = []
    tails: list[_Tail] = []
    unfinished, spares = leftover_paths(disk)
    for path in (*unfinished, *spares[config.recycled_segments_max :]):
        disk.unlink(path)
    sequences = segment_sequences(disk)
    unreadable = []
    for sequence in sequences:
        segment = _open_segment(disk, sequence)
        if segment is None:
            unreadable.append(sequence)
            continue
        if segment.read_footer():
            sealed.append(segment)
        else:
            window = Window(segment)
            tails.append(_Tail(segment, window, scan_groups(segment, window)))
    _find_durable_ends(tails, sealed)
    known = _Known()
    known.gaps_are_normal = replica
    for tail in tails:
        _index_durable(tail)
    if tails and not replica:
        for segment in (*sealed, *(tail.segment for tail in tails)):
            known.learn(segment)
    kept = [record for tail in tails for record in _judge_tail(tail, known, config)]
    inventory, floor = None, 0
    if replica:
        inventory, lost = _compare(disk, unreadable, sealed, tails, high_water)
        floor = max(inventory.group_floor, high_water or 0)
    else:
        lost = []
    if on_doubt is not None:
        _set_aside(disk, unreadable, tails, lost, on_doubt)

    # Group numbers are never reused: groups written after an older image was restored must not pass for the
    # lost ones.
    group_sequence = max(_last_group_sequence(sealed, tails), floor) + 1
    segments = sorted([*sealed, *(tail.segment for tail in tails)], key=lambda segment: segment.sequence)
    durable = segments[-1].durable(group_sequence - 1) if segments else Durable(0, 0, BLOCK)
    header = new_header(rng, (sequences[-1] if sequences else 0) + 1, now_ms)
    fresh = create_segment(disk, header, config.first_fill_bytes)
    for batch in batch_records(kept, config.group_bytes_max):
        durable = write_group(fresh, batch, group_sequence, durable)
        group_sequence += 1
    if inventory is not None:
        staying = [*sealed, *(tail.segment for tail in tails if _stays(tail)), fresh]
        inventory.replace((segment.sequence for segment in staying), group_sequence - 1)
    sealed += [tail.segment for tail in tails if _retire(tail)]
    sealed.sort(key=lambda segment: segment.sequence)
    spares = spares[: config.recycled_segments_max]
    return RecoveredLog(sealed, fresh, group_sequence, durable, spares, inventory)


def _open_segment(disk: Disk, sequence: int) -> Segment | None:
    """Opens a segment by its name; None if it is empty (removed) or entirely unreadable (kept)."""
    path = segment_path(sequence)
    file = disk.open(path)
    try:
        header = decode_segment_header(read_around(file, path, BLOCK, 0))
    except DataCorruption:
        size = file.size()
        trailer = decode_trailer(read_around(file, path, TRAILER_SIZE, max(0, size - TRAILER_SIZE)))
        if trailer is None or trailer.header.sequence != sequence:  # the latter: of a recycled file's past
            _abandon(sequence, Segment(disk, SegmentHeader(bytes(16), sequence, 0, 0), file))
            return None
        header = trailer.header
        log.error("segment header damaged, read by its trailer", segment=sequence)
    if header.sequence != sequence:
        file.close()
        raise DataCorruption(f"{path} says it is segment {header.sequence}: a misplaced file")
    return Segment(disk, header, file)


def _abandon(sequence: int, segment: Segment) -> None:
    """Handles a file without a header: removed if only zeros follow (its creation was interrupted), otherwise
    quarantined.
    """
    window = Window(segment)
    offsets = range(BLOCK, window.size, BLOCK)
    if not any(window.read(offset, BLOCK).strip(b"\0") for offset in offsets):
        segment.unlink()
        return
    segment.close()
    QUARANTINED.inc()
    log.error("segment unreadable: both copies of its header are damaged; kept, not read", segment=sequence)


def _compare(
    disk: Disk, unreadable: list[int], sealed: list[Segment], tails: list[_Tail], high_water: int | None
) -> tuple[SegmentInventory, list[str]]:
    """Compares the files with the list of segments and the owner's knowledge, and returns what is missing."""
    lost = []
    inventory = None
    try:
        inventory = read_inventory(disk)
        if inventory is None and high_water is not None:
            lost.append("the list of segments is missing")
    except DataCorruption as error:
        lost.append(str(error))
    inventory = inventory or SegmentInventory(disk)
    # A listed file of zeros was once a segment.
    quarantined = set(unreadable) & set(segment_sequences(disk))
    there = {segment.sequence for segment in (*sealed, *(tail.segment for tail in tails))}
    lost += [
        f"segment {sequence} is missing" for sequence in sorted(inventory.sequences - there - quarantined)
    ]
    # Compaction numbers the groups of its files separately.
    grown = [segment for segment in sealed if not segment.header.flags & FLAG_SORTED]
    last = max(inventory.group_floor, _last_group_sequence(grown, tails))
    if high_water is not None and last < high_water:
        lost.append(
            f"the log ends with group {last} and had group {high_water}: an older copy, or a lost end"
        )
    return inventory, lost


def _set_aside(
    disk: Disk, unreadable: list[int], tails: list[_Tail], lost: list[str], on_doubt: OnDoubt
) -> None:
    """Reports every doubt, then quarantines unreadable files, so that each is reported once."""
    names = set(segment_sequences(disk))
    quarantined = [sequence for sequence in unreadable if sequence in names]
    doubts = [f"segment {sequence} can't be read" for sequence in quarantined]
    doubts += lost
    doubts += [doubt for tail in tails for doubt in tail.doubts]
    torn = [(tail.segment.sequence, tail.torn) for tail in tails if tail.torn is not None]
    reason = "; ".join([*doubts, *(f"the last group, in segment {n}, is torn or damaged" for n, _ in torn)])
    if doubts:
        on_doubt(reason)
    elif torn:
        on_doubt(reason, reduce(Torn.joined, (each for _, each in torn)))
    for sequence in quarantined:
        disk.rename(segment_path(sequence), f"{segment_path(sequence)}.unreadable")
    if quarantined:
        disk.sync_dir(SEGMENTS_DIRECTORY)


def _find_durable_ends(tails: list[_Tail], sealed: list[Segment]) -> None:
    """Collects what group headers state about earlier groups."""
    if not tails:
        return
    ends: dict[int, int] = {}
    for segment in sealed:
        # The first group of a segment records the end of the previous one.
        if (group := first_group(segment, Window(segment))) is not None:
            _note_durable(ends, group)
    for tail in tails:
        for group in tail.scan.groups:
            _note_durable(ends, group)
        # A footer, or its trailer alone, was written after the sync of all groups before it.
        footer_offset = tail.scan.footer_offset or tail.segment.footer_offset
        if footer_offset:
            ends[tail.segment.sequence] = footer_offset
    for tail in tails:
        tail.durable_end = max(BLOCK, ends.get(tail.segment.sequence, BLOCK))
        tail.segment.end = tail.segment.durable_end = tail.durable_end


def _note_durable(ends: dict[int, int], group: GroupAt) -> None:
    durable = group.header.durable
    ends[durable.segment_sequence] = max(ends.get(durable.segment_sequence, BLOCK), durable.end)


def _index_durable(tail: _Tail) -> None:
    """Indexes the records of all groups known durable, damaged ones as holes."""
    segment, window = tail.segment, tail.window
    lost: list[str] = []
    for group in tail.scan.groups:
        if group.offset >= tail.durable_end:
            break
        segment.last_group_sequence = group.header.sequence
        directory = read_directory(segment, window, group)
        if directory is None:
            tail.damaged += 1
            tail.doubts.append(f"group {group.header.sequence} does not say what it holds")
            for record in salvage_records(segment, window, group.offset + GROUP_HEADER_SIZE, group.end):
                enter_record(segment, record)
            continue
        for line in directory:
            record_at = read_record(segment, window, group.offset + line.offset)
            if record_at is not None:
                enter_record(segment, record_at)
                continue
            tail.damaged += 1
            index = segment.index_of(LedgerRef(line.ledger_id, line.ledger_key))
            if line.first_entry_id < 0:
                index.fenced = True  # a mark that can't be read: the careful reading of it
                tail.doubts.append(f"a mark of ledger {line.ledger_id} can't be read")
            else:
                offset = group.offset + line.offset
                index.add_run(line.first_entry_id, line.entry_count, offset, 0, -1)
                segment.entries += line.entry_count
                last = line.first_entry_id + line.entry_count - 1
                lost.append(f"{line.ledger_id}:{line.first_entry_id} to {last}")
    for start, end in _gaps(tail):
        tail.damaged += 1
        tail.doubts.append(f"nothing tells what is at {start} of segment {segment.sequence}")
        for record in salvage_records(segment, window, start, min(end, window.size)):
            enter_record(segment, record)
    if tail.damaged:
        DAMAGED_RECORDS.inc(tail.damaged)
        log.error(
            "damaged records in a segment, kept as holes",
            segment=segment.sequence,
            places=tail.damaged,
            entries=lost[:LOST_TOLD_MAX],
        )


def _gaps(tail: _Tail) -> Iterator[tuple[int, int]]:
    """Returns regions of the durable part without a group, including zeros: a group begins where the previous
    one ends.
    """
    at = BLOCK
    for group in tail.scan.groups:
        if group.offset >= tail.durable_end:
            break
        if group.offset > at:
            yield at, group.offset
        at = group.end
    if at < tail.durable_end:
        yield at, tail.durable_end


def _judge_tail(tail: _Tail, known: _Known, config: SegmentLogConfig) -> list[EncodedRecord]:
    """Returns the intact records after the durable end that leave no gap, ready to be written again."""
    segment, window = tail.segment, tail.window
    kept: list[EncodedRecord] = []
    cut = 0
    named = 0
    start = tail.durable_end
    for group in tail.scan.groups:
        if group.offset >= start:
            named += group.header.record_count
    recycled = bool(segment.header.flags & FLAG_RECYCLED)
    # One group is in flight: behind it there are only bytes of the file's earlier use, possibly many.
    stop = start + 2 * config.group_bytes_max if recycled else None
    for record in salvage_records(segment, window, start, max(start, tail.scan.content_end), stop):
        header = record.header
        ref = LedgerRef(header.ledger_id, header.ledger_key)
        body = window.read(record.offset + header.header_length, header.body_length)
        last = known.last_entry.get(ref, -1)
        gap = header.first_entry_id > last + 1 and not known.gaps_are_normal
        if not body_intact(body, header.body_crc) or gap:
            cut += 1
            continue
        known.last_entry[ref] = max(last, header.last_entry_id)
        kept.append(copy_record(window, record, header, body))
    cut = max(cut, named - len(kept))
    torn = any(end > start for _, end in tail.scan.damaged)
    if recycled:
        # Bytes that are not a group of this use count as damage only if they have its uuid or records.
        torn = len(kept) > named or (not named and window.read(start + 8, 16) == segment.header.uuid)
        torn = torn or any(start <= block < start + 2 * config.group_bytes_max for block in window.lost)
    if cut or torn:
        TAIL_CUTS.inc()
        groups = [group for group in tail.scan.groups if group.offset >= start]
        tail.torn = Torn(None) if torn else torn_by(groups, partial(read_directory, segment, window), kept)
        context: dict[str, Any] = {"segment": segment.sequence, "offset": start}
        log.warning("the log's last group was torn or damaged: cut", kept=len(kept), cut=cut, **context)
    return kept


def _last_group_sequence(sealed: list[Segment], tails: list[_Tail]) -> int:
    sequences = [segment.last_group_sequence for segment in sealed]
    sequences += [group.header.sequence for tail in tails for group in tail.scan.groups]
    return max(sequences, default=0)


def _stays(tail: _Tail) -> bool:
    """Returns whether an old open segment contains anything."""
    return bool(tail.segment.indexes or tail.damaged)


def _retire(tail: _Tail) -> bool:
    """Seals an old open segment at its durable end, or removes it if it is empty; returns whether it
    stays.
    """
    segment = tail.segment
    if not _stays(tail):
        segment.unlink()
        return False
    try:
        segment.seal(tail.durable_end)
    except OSError as error:
        log.warning(
            "segment not sealed, it is scanned at each start", segment=segment.sequence, error=str(error)
        )
    else:
        segment.indexes.clear()
    return True


def rebuild_indexes(segment: Segment) -> dict[LedgerRef, LedgerIndex]:
    """Rebuilds the indexes of a sealed segment from its records if its footer's arrays are damaged.
    Blocks.
    """
    scratch = Segment(segment.disk, segment.header, segment.file, segment.path)
    window = Window(scratch)
    _index_durable(_Tail(scratch, window, scan_groups(scratch, window), segment.footer_offset))
    return scratch.indexes
