"""What `verify` makes of manifests before any object is compared."""

from __future__ import annotations

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.common.offload.offload_pb2 import COMPLETE, WANTED, Ledger, OffloadState
from magnetar.ledger.cold.objects import NoSuchObject
from magnetar.spark import verify
from magnetar.spark.jobs import parquet_comparison
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.verify import Verified, plan

SERVICE = ServiceAddress("127.0.0.1:1")


def ledger(ledger_id: int, *, left: int = 0) -> Ledger:
    state = OffloadState(
        state=COMPLETE, location="file:///nowhere", path=f"path-{ledger_id}", left_bookies_ms=left
    )
    return Ledger(topic="persistent://public/default/t", ledger_id=ledger_id, offload=state)


def test_a_ledger_that_was_trimmed_before_its_manifest_was_read_is_no_difference_and_a_loss_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed, lost, lost_and_left, damaged = ledger(1), ledger(2), ledger(3, left=5), ledger(4)
    waiting = Ledger(topic=trimmed.topic, ledger_id=5, offload=OffloadState(state=WANTED))
    gone = NoSuchObject("no manifest")
    monkeypatch.setattr(
        verify, "read_manifests", lambda some: [gone, gone, gone, DataCorruption("other bytes")][: len(some)]
    )
    still = {each.ledger_id: each for each in (lost, lost_and_left, damaged)}
    monkeypatch.setattr(parquet_comparison, "find_ledger", lambda _service, _topic, number: still.get(number))
    found = Verified()
    assert plan([trimmed, lost, lost_and_left, damaged, waiting], SERVICE, found) == []
    assert (found.gone, found.differences, found.not_offloaded) == (1, 3, 1)
    assert [each.partition(": ")[0].rpartition(" ")[2] for each in found.told] == ["2", "3", "4"]


def test_unopenable_store_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "read_manifests", lambda some: [OSError("no such device")])
    with pytest.raises(OSError, match="no such device"):
        plan([ledger(1)], SERVICE, Verified())
