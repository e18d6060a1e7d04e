"""Bits flip and stale blocks appear in what a workload left on the disk.

The oracle is exact: one flipped bit may make unreadable the entries of the record it is in, and nothing else.
No ledger gets shorter, no entry is served wrong, nothing after the damage is hidden.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import BLOCK, GROUP_HEADER_SIZE, KIND_ENTRIES
from magnetar.ledger.segment_log.file_codec_v1 import (
    FOOTER_HEADER_SIZE,
    TRAILER_SIZE,
    decode_footer_header,
    decode_segment_header,
)
from magnetar.ledger.segment_log.scan import Window, read_directory, salvage_records, scan_groups
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY, Segment
from magnetar.sim.loop import SimLoop, run

from tests.simulation.ledger_workload import LedgerWorkload
from tests.simulation.power_loss import TIME_MAX_S, World, in_process

KINDS = (
    "header",
    "group",
    "group",
    "directory",
    "record",
    "record",
    "body",
    "body",
    "footer",
    "trailer",
    "any",
)
"""Where bits flip: kinds of structures, so that small ones are hit as often as large ones."""


@dataclass(slots=True)
class Extent:
    """A record in a file."""

    path: str
    start: int
    header_end: int
    end: int
    ref: LedgerRef
    first: int
    last: int


@dataclass(slots=True)
class Remains:
    """A world after its workload, and where everything is in its files."""

    world: World
    workload: LedgerWorkload
    records: list[Extent]
    groups: list[tuple[str, int, int]]
    """(path, start, end of the directory) of every group."""
    footers: list[tuple[str, int, int]]
    """(path, start, end) of every footer, without its padding."""


def remains_of(workload: LedgerWorkload, seed: int) -> Remains:
    """Run a workload to its end and map the files it left."""
    world = World.new()
    loop = SimLoop(seed, time_max_s=TIME_MAX_S)
    run(loop, in_process(loop, world, workload.run))
    if not world.disk.crashed:
        world = world.after("kill", random.Random(seed))
    remains = Remains(world, workload, [], [], [])
    for path in world.disk.paths():
        if path.startswith(SEGMENTS_DIRECTORY):
            _map_segment(remains, path)
    return remains


def _map_segment(remains: Remains, path: str) -> None:
    disk = remains.world.disk
    file = disk.open(path)
    segment = Segment(disk, decode_segment_header(file.pread(BLOCK, 0)), file)
    window = Window(segment)
    scan = scan_groups(segment, window)
    assert not scan.damaged, "nothing is damaged yet"
    for group in scan.groups:
        directory = read_directory(segment, window, group)
        assert directory is not None
        remains.groups.append((path, group.offset, group.offset + group.header.records_offset))
        for at in salvage_records(segment, window, group.offset + GROUP_HEADER_SIZE, group.end):
            header = at.header
            if header.kind == KIND_ENTRIES:
                remains.records.append(
                    Extent(
                        path,
                        at.offset,
                        at.offset + header.header_length,
                        at.offset + header.record_length,
                        LedgerRef(header.ledger_id, header.ledger_key),
                        header.first_entry_id,
                        header.last_entry_id,
                    )
                )
    if scan.footer_offset is not None:
        fixed = file.pread(FOOTER_HEADER_SIZE, scan.footer_offset)
        footer = decode_footer_header(fixed, segment.header.uuid, segment.header.salt)
        assert footer is not None
        remains.footers.append((path, scan.footer_offset, scan.footer_offset + footer.length))


def choose_bit(remains: Remains, rng: random.Random) -> tuple[str, int]:
    """A bit to flip, in a structure of a random kind."""
    kind = rng.choice(KINDS)
    if kind in ("group", "directory"):
        last = remains.groups[-1][0]
        in_last = [group for group in remains.groups if group[0] == last]
        path, start, end = rng.choice(remains.groups if rng.random() < 0.5 else in_last)
        if kind == "group":
            end = start + GROUP_HEADER_SIZE
        elif end > start + GROUP_HEADER_SIZE:
            start += GROUP_HEADER_SIZE
    elif kind == "record":
        record = rng.choice(remains.records)
        path, start, end = record.path, record.start, record.header_end
    elif kind == "body":
        record = rng.choice([record for record in remains.records if record.end > record.header_end])
        path, start, end = record.path, record.header_end, record.end
    elif kind in ("footer", "trailer") and remains.footers:
        path, start, end = rng.choice(remains.footers)
        if kind == "trailer":
            end = len(remains.world.disk.content(path))
            start = end - TRAILER_SIZE
    else:
        path = rng.choice(remains.groups)[0]
        start, end = 0, 64 if kind == "header" else len(remains.world.disk.content(path))
    return path, rng.randrange(start * 8, end * 8)


def flip_and_check(remains: Remains, seed: int) -> None:
    """Flip one bit and check everything. AssertionError when more than its record suffers."""
    rng = random.Random(seed)
    path, bit = choose_bit(remains, rng)
    damaged = {
        (record.ref.id, entry)
        for record in remains.records
        if record.path == path and record.start <= bit // 8 < record.end
        for entry in range(record.first, record.last + 1)
    }
    world = remains.world.after("kill", rng)
    world.disk.flip_bit(path, bit)
    check(world, replace(remains.workload.fork(), damaged=frozenset(damaged)), f"bit {bit} of {path}", seed)


def check(world: World, workload: LedgerWorkload, what: str, seed: int) -> None:
    """Start in this world and check the promises, twice: what the first start repaired must last."""
    for promises in workload.ledgers.values():
        if not promises.failed:
            assert promises.confirmed + 1 == len(promises.appended) or promises.closed is not None
    for _ in range(2):
        loop = SimLoop(seed, time_max_s=TIME_MAX_S)
        try:
            run(loop, in_process(loop, world, workload.check))
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        world = world.after("kill", random.Random(seed))


def plant_stale_blocks(remains: Remains, seed: int) -> None:
    """Put groups of another life of the ledgers behind the end of the open segment, and check.

    The other life goes on from the same moment and appends other entries to the same ledgers. Its blocks end
    up where the log writes next, as blocks of a recycled or badly remapped file would.
    """
    rng = random.Random(seed)
    other = LedgerWorkload(seed + 1, clean_end=False)
    other_remains = remains_of(other, seed)
    path = remains.world.disk.paths()[-1]
    ends = [record.end for record in remains.records if record.path == path]
    ends += [end for group_path, _, end in remains.groups if group_path == path]
    end = (max(ends, default=BLOCK) + BLOCK - 1) // BLOCK * BLOCK
    world = remains.world.after("kill", rng)
    source, start, _ = rng.choice(other_remains.groups)
    stale = other_remains.world.disk.content(source)[start : start + 4 * BLOCK]
    world.disk.overwrite(path, stale, end)
    check(world, remains.workload.fork(), f"stale blocks in {path} at {end}", seed)
