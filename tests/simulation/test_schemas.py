"""Versions of a topic's schemas have one order, whatever becomes of answers, watches and brokers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from magnetar.broker.schemas import schema_store
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.common.metadata.store import ANY_VERSION, Check, Op
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataStore

from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.schema_workload import SchemaWorkload


def simulated(seed: int, *, faults: bool, steps: int = 60) -> SchemaWorkload:
    loop = SimLoop(seed)
    made: list[SchemaWorkload] = []

    async def main() -> None:
        made.append(SchemaWorkload(loop, faults=faults))
        await made[0].drive(steps)

    run(loop, main())
    made[0].check()
    return made[0]


@pytest.mark.seeds(3, full=20, nightly=100)
def test_concurrent_schemas_get_one_order_and_each_fits_the_one_before(seed: int) -> None:
    workload = simulated(seed, faults=False)
    assert workload.done["put"] > 20, workload.done
    assert workload.done["refused"] > 5, workload.done
    assert not workload.done["failed"]


@pytest.mark.seeds(6, full=40, nightly=200)
def test_lost_answers_and_dead_brokers_leave_whole_versions_without_holes(seed: int) -> None:
    workload = simulated(seed, faults=True)
    assert workload.done["put"] > 20, workload.done


def versions_are_written_over(patch: Patch) -> None:
    patch.setattr(schema_store, "ABSENT", ANY_VERSION)


def the_latest_version_is_not_checked(patch: Patch) -> None:
    commit = SimMetadataStore.commit

    async def unguarded(self: SimMetadataStore, ops: Sequence[Op]) -> int:
        kept = [op for op in ops if not (isinstance(op, Check) and "/schemas/" in f"/{op.key}")]
        return await commit(self, kept)

    patch.setattr(SimMetadataStore, "commit", unguarded)


def an_unknown_outcome_is_written_again_at_once(patch: Patch) -> None:
    """Writes at the next number without listing the versions again."""
    append = SchemaStore._append

    async def again(self, topic, history, record):  # type: ignore[no-untyped-def]
        try:
            return await append(self, topic, history, record)
        except schema_store.UnknownOutcome:
            record.version = history.next_version + 1
            key = self._keys.schema(topic, record.version)
            await self._metadata.put(key, schema_store.encode(record))
            return record.version

    patch.setattr(SchemaStore, "_append", again)


def with_faults(seed: int) -> object:
    return simulated(seed, faults=True)


MUTATIONS = [
    noticed(versions_are_written_over, with_faults, 3),
    noticed(the_latest_version_is_not_checked, with_faults, 40),
    noticed(an_unknown_outcome_is_written_again_at_once, with_faults, 3),
]


@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
