"""Guards of schema versions are removed in turn; the simulation must notice within the stated seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from magnetar.broker.schemas import schema_store
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.common.errors import UnknownOutcome
from magnetar.common.metadata.store import ANY_VERSION, Check, Delete, Op
from magnetar.common.metadata.values import encode
from magnetar.sim.metadata import SimMetadataStore

from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.schema_workload import simulated


def lost_answers(seed: int) -> None:
    simulated(seed, faults=True)


def versions_are_written_over(patch: Patch) -> None:
    """Two writers of one number both succeed."""
    patch.setattr(schema_store, "ABSENT", ANY_VERSION)


def the_latest_version_is_not_checked(patch: Patch) -> None:
    """A version is appended to a history that was erased meanwhile."""
    commit = SimMetadataStore.commit

    async def unguarded(self: SimMetadataStore, ops: Sequence[Op]) -> int:
        return await commit(self, [op for op in ops if not (isinstance(op, Check) and "schemas/" in op.key)])

    patch.setattr(SimMetadataStore, "commit", unguarded)


def erasing_is_not_guarded(patch: Patch) -> None:
    """A version that was added while others were erased stays behind."""

    async def erase(self: Any, topic: Any, history: Any) -> None:
        keys = [self._keys.schema(topic, each.version) for each in history.records]
        if keys:
            await self._metadata.commit([Delete(key) for key in keys])
        self.forget(topic)

    patch.setattr(SchemaStore, "_erase", erase)


def an_unknown_outcome_is_written_again_at_once(patch: Patch) -> None:
    """A version whose answer was lost is written at the next number, without listing the versions again."""
    append = SchemaStore._append

    async def again(self: Any, topic: Any, history: Any, record: Any) -> int:
        try:
            return await append(self, topic, history, record)
        except UnknownOutcome:
            record.version = history.next_version + 1
            await self._metadata.put(self._keys.schema(topic, record.version), encode(record))
            return int(record.version)

    patch.setattr(SchemaStore, "_append", again)


MUTATIONS = [
    noticed(versions_are_written_over, lost_answers, 3),
    noticed(the_latest_version_is_not_checked, lost_answers, 5),
    noticed(erasing_is_not_guarded, lost_answers, 10),
    noticed(an_unknown_outcome_is_written_again_at_once, lost_answers, 3),
]


@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_simulation_notices(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
