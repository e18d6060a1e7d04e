"""The driver's plan: describes topics, reads manifests and lays out the work of tasks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from magnetar.common.errors import MagnetarError
from magnetar.ledger.cold.layout import Manifest
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.source.cold_parts import read_manifests
from magnetar.spark.source.range_reader import GONE
from magnetar.spark.source.reading_plan import (
    NO_TIMES,
    ColdLedger,
    TimeBounds,
    TopicLedgers,
    TopicRange,
    cold_ledger,
    share_out,
    spans,
    topic_ranges,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of one topic to read."""

    described: TopicLedgers
    start: MessageAt
    end: MessageAt
    only: Container[int] | None = None
    """Ids of ledgers; None: all."""


def plan_tasks(
    wanted: Sequence[Wanted],
    *,
    task_bytes: int,
    joins: bool,
    times: TimeBounds = NO_TIMES,
    fail_on_data_loss: bool = True,
) -> list[tuple[TopicRange, ...]]:
    """The ranges of each task. Raises why a manifest cannot be read, where no bookie has the ledger.

    Where a loss is to be borne, a manifest that is gone or damaged is left to the task, which says so.
    """
    manifests = load_manifests(wanted, times, fail_on_data_loss=fail_on_data_loss)
    return share_out(
        (
            (
                each.described,
                each.start,
                each.end,
                topic_ranges(
                    each.described,
                    each.start,
                    each.end,
                    manifests.get,
                    range_bytes=task_bytes,
                    times=times,
                    only=each.only,
                ),
            )
            for each in wanted
        ),
        task_bytes,
        joins=joins,
    )


def load_manifests(
    wanted: Iterable[Wanted], times: TimeBounds, *, fail_on_data_loss: bool = True
) -> dict[ColdLedger, Manifest]:
    """Those of the offloaded ledgers that are to be read. One that cannot be read is left out while brokers
    still have the ledger; otherwise its error is raised."""
    needed: dict[ColdLedger, bool] = {}
    for each in wanted:
        for ledger, _, _ in spans(each.described.ledgers, each.start, each.end):
            cold = cold_ledger(ledger)
            if cold is None or not times.may_hold(ledger):
                continue
            if each.only is None or ledger.ledger_id in each.only:
                needed[cold] = bool(ledger.offload.left_bookies_ms)
    found: dict[ColdLedger, Manifest] = {}
    for (cold, alone), manifest in zip(needed.items(), read_manifests(list(needed)), strict=True):
        if isinstance(manifest, Manifest):
            found[cold] = manifest
        elif not isinstance(manifest, MagnetarError) or (
            alone and (fail_on_data_loss or not isinstance(manifest, GONE))
        ):
            raise manifest
    return found
