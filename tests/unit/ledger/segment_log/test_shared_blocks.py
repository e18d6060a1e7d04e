"""Blocks that readers share: read at the second asking, bounded, never beyond what is durable."""

from __future__ import annotations

from typing import Any, cast

import pytest
from magnetar.ledger.segment_log import shared_blocks
from magnetar.ledger.segment_log.shared_blocks import BLOCK_BYTES, SharedBlocks


class FakeFile:
    """Counted reads of numbered bytes; may have nothing in the page cache."""

    def __init__(self, size: int) -> None:
        self.data = bytes(number % 251 for number in range(size))
        self.reads = 0
        self.cached = True

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        self.reads += 1
        return self.data[offset : offset + length] if self.cached else None


class FakeSegment:
    def __init__(self, size: int = 4 * BLOCK_BYTES) -> None:
        self.file = FakeFile(size)
        self.durable_end = size


def found(blocks: SharedBlocks, segment: FakeSegment, offset: int, length: int = 80) -> bytes | None:
    block = blocks.find(cast(Any, segment), offset, length)
    if block is None:
        return None
    start, data = block
    assert data == segment.file.data[start : start + len(data)]
    return data[offset - start : offset - start + length]


def test_who_is_alone_reads_no_block_and_the_second_to_ask_finds_one_for_all() -> None:
    blocks, segment = SharedBlocks(), FakeSegment()
    assert found(blocks, segment, BLOCK_BYTES + 100) is None
    assert segment.file.reads == 0
    for offset in (BLOCK_BYTES + 500, BLOCK_BYTES + 100, 2 * BLOCK_BYTES - 80):
        assert found(blocks, segment, offset) == segment.file.data[offset : offset + 80]
    assert segment.file.reads == 1


def test_what_crosses_into_the_next_block_is_not_looked_for() -> None:
    blocks, segment = SharedBlocks(), FakeSegment()
    assert [found(blocks, segment, BLOCK_BYTES - 79) for _ in range(3)] == [None, None, None]


def test_a_block_that_ended_at_what_was_durable_is_read_again_for_what_is_now() -> None:
    blocks, segment = SharedBlocks(), FakeSegment()
    segment.durable_end = 1_000
    assert [found(blocks, segment, 100) is not None for _ in range(2)] == [False, True]
    assert found(blocks, segment, 990) is None, "not durable yet"
    segment.durable_end = 2_000
    assert found(blocks, segment, 990) == segment.file.data[990:1_070]


def test_nothing_is_waited_for_that_the_page_cache_does_not_have() -> None:
    blocks, segment = SharedBlocks(), FakeSegment()
    segment.file.cached = False
    assert [found(blocks, segment, 100) for _ in range(3)] == [None, None, None]


def test_blocks_and_what_was_asked_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_blocks, "BLOCKS_MAX", 2)
    monkeypatch.setattr(shared_blocks, "ASKED_MAX", 3)
    blocks, segment = SharedBlocks(), FakeSegment()
    for number in range(4):
        for _ in range(2):
            found(blocks, segment, number * BLOCK_BYTES)
    assert (len(blocks._blocks), len(blocks._asked)) == (2, 3)
    reads = segment.file.reads
    assert found(blocks, segment, 3 * BLOCK_BYTES + 80) is not None
    assert segment.file.reads == reads, "the newest are kept"


def test_a_segment_that_goes_leaves_nothing() -> None:
    blocks, segment, other = SharedBlocks(), FakeSegment(), FakeSegment()
    for each in (segment, other):
        for _ in range(2):
            found(blocks, each, 0)
    blocks.forget(cast(Any, segment))
    for held in (blocks._blocks, blocks._asked):
        assert [cast(Any, key[0]) for key in held] == [other]
