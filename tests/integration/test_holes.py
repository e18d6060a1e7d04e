"""A subscription with a million holes comes back after a restart, hole by hole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.common.naming.position import Position

from bench.holes import make_holes, restore

HOLES = 1_000_000


@pytest.mark.full
def test_a_million_unacknowledged_holes_are_restored_after_a_restart(tmp_path: Path) -> None:
    asyncio.run(make_holes(tmp_path, HOLES))
    restored = asyncio.run(restore(tmp_path))
    print(f"storage opened in {restored.storage_s:.3f} s, topic loaded in {restored.topic_s:.3f} s")
    cursor, ledger_id = restored.cursor, restored.ledger_id
    assert cursor.backlog() == HOLES
    assert cursor.mark_delete < Position(ledger_id, 0), "the first entry is one of those not acknowledged"
    assert all(cursor.is_acked(ledger_id, entry_id) for entry_id in range(1, 2 * HOLES, 2))
    assert not any(cursor.is_acked(ledger_id, entry_id) for entry_id in range(0, 2 * HOLES, 2))
