"""The election: one at a time, epochs that only grow, and an end with the session."""

from __future__ import annotations

import asyncio
import random

import pytest
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.election import Candidate, Leadership
from magnetar.common.metadata.store import Put, Session
from magnetar.common.metadata.values import Leader, decode, encode
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEY = "/office"


class Office:
    """Candidates a, b, c; who leads now, and every term there was."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.server = SimMetadataServer()
        self.stores: dict[str, SimMetadataStore] = {}
        self.leading: dict[str, int] = {}
        self.terms: list[tuple[str, int]] = []
        self.tasks = TaskOwner("candidates")
        self.failure: BaseException | None = None

    def stand(self, name: str) -> None:
        store = self.stores[name] = SimMetadataStore(self.server, random.Random(self.loop.rng.random()))
        sessions: list[Session] = []

        async def session() -> Session:
            if not sessions:
                made = await store.session(1000)
                sessions.append(made)
                self.tasks.spawn(ends(made), f"session of {name}")
            return sessions[0]

        async def ends(made: Session) -> None:
            await made.expired()
            sessions.remove(made)

        leader = Leader(id=name, address=f"at {name}")
        clock = SimClock(self.loop)
        candidate = Candidate(store, KEY, session, clock, leader, lambda office: self.lead(name, office))
        self.tasks.spawn(candidate.run(), name)

    async def lead(self, name: str, office: Leadership) -> None:
        self.leading[name] = office.epoch
        self.terms.append((name, office.epoch))
        found = self.server.get(KEY)
        assert found is not None
        assert found.version == office.version
        assert decode(Leader, found.value).id == name
        assert decode(Leader, found.value).epoch == office.epoch
        assert decode(Leader, found.value).address == f"at {name}"
        try:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            await asyncio.Event().wait()
        finally:
            del self.leading[name]


@pytest.mark.parametrize("seed", range(10))
def test_there_is_one_leader_and_after_its_death_another_with_a_higher_epoch(seed: int) -> None:
    loop = SimLoop(seed, time_max_s=10_000)

    async def main() -> None:
        office = Office(loop)
        for name in "abcd":
            office.stand(name)
        for _ in range(3):
            await asyncio.sleep(5)
            [leader] = office.leading
            office.stores[leader].crash()
            await asyncio.sleep(5)
            office.leading.pop(leader)  # the dead one never hears of it
        await asyncio.sleep(1)
        epochs = [epoch for _, epoch in office.terms]
        assert len(epochs) == 4
        assert epochs == sorted(set(epochs))
        office.leading.clear()
        await close(office)

    run(loop, main())


def test_a_leader_whose_session_ends_leads_no_longer_and_may_be_elected_again() -> None:
    loop = SimLoop(3, time_max_s=10_000)

    async def main() -> None:
        office = Office(loop)
        office.stand("a")
        await asyncio.sleep(1)
        assert office.leading == {"a": 1}
        [session] = office.stores["a"]._sessions
        session.expire()
        await asyncio.sleep(5)
        assert [name for name, _ in office.terms] == ["a", "a"]
        assert office.terms[1][1] > office.terms[0][1]
        await close(office)

    run(loop, main())


@pytest.mark.parametrize("applied", [True, False])
def test_an_election_of_unknown_outcome_is_read_again(applied: bool) -> None:
    loop = SimLoop(4, time_max_s=10_000)

    async def main() -> None:
        office = Office(loop)
        office.stand("a")
        office.stores["a"]._lose_outcomes.append(True)  # that of the session itself
        office.stores["a"].lose_next_outcome(applied=applied)
        await asyncio.sleep(30)
        assert len(office.leading) == 1
        await close(office)

    run(loop, main())


@pytest.mark.parametrize("failure", [MetadataError("away"), ValueError("a bug")])
def test_a_leader_that_fails_gives_the_office_up(failure: Exception) -> None:
    loop = SimLoop(5, time_max_s=10_000)

    async def main() -> None:
        office = Office(loop)
        office.failure = failure
        office.stand("a")
        office.stand("b")
        await asyncio.sleep(10)
        assert len(office.leading) == 1
        assert len(office.terms) == 2
        await close(office)

    run(loop, main())


@pytest.mark.parametrize("value", [encode(Leader(id="a", epoch=1)), b"no leader at all"])
def test_held_leadership_is_taken_only_from_the_same_process(value: bytes) -> None:
    loop = SimLoop(6, time_max_s=10_000)

    async def main() -> None:
        office = Office(loop)
        office.server.commit([Put(KEY, value)])  # a claim of a's that came through late; or somebody else's
        office.stand("a")
        await asyncio.sleep(10)
        assert len(office.leading) == (1 if value != b"no leader at all" else 0)
        await close(office)

    run(loop, main())


async def close(office: Office) -> None:
    await office.tasks.close()
    for store in office.stores.values():
        await store.close()
