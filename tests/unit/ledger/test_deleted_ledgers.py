"""The list of condemned ledgers: its bytes, and that its loss stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.ledger.deleted_ledgers import CONDEMNED, Remembered, decode_condemned, encode_condemned
from magnetar.ledger.ledger_store import LedgerRef

from tests.simulation.garbage_workload import stored
from tests.unit.ledger.test_garbage_collector import Bench, simulate

GOLDEN = Path(__file__).parents[2] / "golden" / "ledger" / "v1"


@pytest.mark.parametrize(
    ("name", "restoration_id"), [("condemned.bin", b""), ("condemned_restored.bin", bytes(range(16)))]
)
def test_the_layout_is_the_golden_one(name: str, restoration_id: bytes) -> None:
    data = (GOLDEN / name).read_bytes()
    what = Remembered(77, {LedgerRef(3, 1 << 63), LedgerRef(1, 5)}, restoration_id)
    assert encode_condemned(what) == data
    assert decode_condemned(data) == what


@pytest.mark.parametrize("restoration_id", [b"", bytes(range(16))])
def test_the_list_of_condemned_ledgers_is_checked(restoration_id: bytes) -> None:
    what = Remembered(77, {LedgerRef(3, 1 << 63), LedgerRef(1, 5)}, restoration_id)
    data = encode_condemned(what)
    assert decode_condemned(data) == what
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 4
        with pytest.raises(Exception, match=r"damaged|is none|incompatible"):
            decode_condemned(bytes(damaged))


def test_a_damaged_list_of_condemned_ledgers_stops_nothing() -> None:
    async def act(bench: Bench) -> None:
        [doomed] = await bench.ledgers(1)
        await bench.ledgers(2)
        await bench.restart()
        await bench.store.delete(doomed)
        await bench.collect()
        bench.world.disk.flip_bit(CONDEMNED, 8 * 20)
        await bench.restart()
        [another] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(another)
        await bench.collect()
        assert not stored(bench.store, another)

    simulate(act)
