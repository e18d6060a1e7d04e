"""The status of offload as Pulsar's clients wait for it, and what is wanted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.admin.routes.topics.offload import last_failure_ms, process_status, wanted_anew
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import LedgerRef, TopicLedger

NOT_YET = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
NONE = Offload.STATE_UNSPECIFIED


def ledger(ledger_id: int, state: Offload.State.ValueType = NONE, **more: Any) -> TopicLedger:
    value = TopicLedger(ref=LedgerRef(id=ledger_id, key=1), last_entry_id=9)
    if state != NONE:
        value.offload.CopyFrom(Offload(state=state, **more))
    return value


def failed(ledger_id: int, wanted_ms: int, error: str) -> TopicLedger:
    return ledger(ledger_id, Offload.WANTED, wanted_ms=wanted_ms, failures=1, error=error)


@pytest.mark.parametrize(
    ("ledgers", "status", "error"),
    [
        ([], "NOT_RUN", ""),
        ([ledger(1)], "NOT_RUN", ""),
        ([ledger(1, Offload.WANTED)], "RUNNING", ""),
        ([ledger(1, Offload.COMPLETE), ledger(2, Offload.RUNNING)], "RUNNING", ""),
        ([failed(1, 5, "no bucket"), ledger(2, Offload.RUNNING)], "RUNNING", ""),
        ([failed(1, 5, "no bucket"), ledger(2, Offload.WANTED)], "RUNNING", ""),
        ([failed(1, 5, "no bucket")], "ERROR", "no bucket"),
        ([ledger(1, Offload.COMPLETE), failed(2, 5, "first"), failed(3, 6, "last")], "ERROR", "last"),
        ([ledger(1, Offload.COMPLETE), ledger(2)], "SUCCESS", ""),
    ],
)
def test_it_runs_while_anything_is_to_be_tried_and_fails_once_all_that_is_left_has(
    ledgers: list[TopicLedger], status: str, error: str
) -> None:
    shown = process_status(ledgers)
    assert (shown["status"], shown["lastError"]) == (status, error)
    if status != "SUCCESS":
        assert shown["firstUnoffloadedMessage"] == NOT_YET


@pytest.mark.parametrize(
    ("ledgers", "position"),
    [
        ([ledger(1, Offload.COMPLETE), ledger(4), ledger(5)], (4, 0)),
        ([ledger(1), ledger(2, Offload.COMPLETE)], (1, 0)),
        ([ledger(1, Offload.COMPLETE), ledger(2, Offload.COMPLETE)], (2, 10)),
    ],
)
def test_the_first_message_that_is_not_offloaded_is_told(
    ledgers: list[TopicLedger], position: tuple[int, int]
) -> None:
    shown = process_status(ledgers)["firstUnoffloadedMessage"]
    assert (shown["ledgerId"], shown["entryId"]) == position


def test_second_trigger_retries_failed_and_leaves_running_offloads() -> None:
    again: dict[str, Any] = {"location": "file:///other", "exact": False, "now_ms": 99}
    anew = wanted_anew(failed(1, 5, "no bucket"), **again)
    assert process_status([anew])["status"] == "RUNNING"
    assert (anew.offload.location, anew.offload.failures) == ("file:///other", 1)
    for state in (Offload.RUNNING, Offload.COMPLETE):
        before = ledger(1, state, location="file:///cold", error="once")
        assert wanted_anew(before, **again) == before


def test_when_a_job_failed_last_is_told_until_another_one_succeeds() -> None:
    assert last_failure_ms([]) == 0
    assert (
        last_failure_ms([failed(1, 5, "a"), failed(2, 9, "b"), ledger(3, Offload.WANTED, wanted_ms=11)]) == 9
    )
    assert last_failure_ms([ledger(1, Offload.COMPLETE, failures=2, wanted_ms=5)]) == 0
