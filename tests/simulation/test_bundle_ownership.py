"""Bundles are owned once, whatever becomes of sessions, answers and watches."""

from __future__ import annotations

import pytest
from magnetar.sim.loop import SimLoop, run

from tests.simulation.ownership_workload import OwnershipWorkload


def simulated(seed: int, *, faults: bool, steps: int) -> OwnershipWorkload:
    loop = SimLoop(seed)
    made: list[OwnershipWorkload] = []

    async def main() -> None:
        made.append(OwnershipWorkload(loop, faults=faults))
        await made[0].drive(steps)

    run(loop, main())
    return made[0]


@pytest.mark.seeds(2, full=7, nightly=40)
def test_brokers_share_bundles_and_agree_who_owns_which(seed: int) -> None:
    workload = simulated(seed, faults=False, steps=100)
    for operation in ("_take", "_release", "_hand_over", "_split", "_merge", "_find"):
        assert workload.done[operation] > 5, workload.done
    assert workload.merged > 0
    assert all(broker.runs == 1 for broker in workload.brokers)


@pytest.mark.seeds(6, full=25, nightly=150)
def test_no_hash_has_two_owners_and_stale_ownership_ends_soon(seed: int) -> None:
    workload = simulated(seed, faults=True, steps=100)
    assert workload.done["_take"] > 5
