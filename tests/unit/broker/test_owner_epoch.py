"""One owner at a time, as far as metadata can tell, and what each broker learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from magnetar.broker.owner_epoch import OwnerEpoch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import Leader, decode
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = Keys("test")
TTL_MS = 10_000


@dataclass
class Broker:
    """One broker's process: its store, its term, and the owners that it waited for."""

    name: str
    server: SimMetadataServer
    address: str = ""
    store: SimMetadataStore = field(init=False)
    owner: OwnerEpoch = field(init=False)
    waited_for: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.store = SimMetadataStore(self.server, loop.rng)
        self.owner = OwnerEpoch(
            self.store,
            KEYS,
            SimClock(loop),
            broker_id=self.name,
            address=self.address,
            session_ttl_ms=TTL_MS,
        )

    async def acquire(self) -> None:
        await self.owner.acquire(lambda leader: self.waited_for.append(leader.id))

    def waiting(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.acquire(), name=f"{self.name} waits")


def simulated(body: Callable[[SimMetadataServer], Awaitable[None]], seed: int = 1) -> None:
    loop = SimLoop(seed)

    async def main() -> None:
        await body(SimMetadataServer())

    run(loop, main())


def leader_in(server: SimMetadataServer) -> Leader | None:
    data = server.dump().get(KEYS.owner)
    return None if data is None else decode(Leader, data)


def test_the_first_broker_is_the_owner_and_says_so_with_its_epoch() -> None:
    async def body(server: SimMetadataServer) -> None:
        a = Broker("a", server, "host:6650")
        await a.acquire()
        leader = leader_in(server)
        assert leader is not None
        assert (leader.id, leader.address, leader.epoch) == ("a", "host:6650", a.owner.epoch)
        assert a.owner.epoch > 0
        await a.owner.release()
        await a.store.close()

    simulated(body)


def test_a_second_broker_waits_until_the_owner_gives_up_and_has_a_higher_epoch() -> None:
    async def body(server: SimMetadataServer) -> None:
        a, b = Broker("a", server), Broker("b", server)
        await a.acquire()
        waiting = b.waiting()
        await asyncio.sleep(5 * TTL_MS / 1000)
        assert not waiting.done()
        assert b.waited_for == ["a"]
        await a.owner.release()
        async with asyncio.timeout(1):
            await waiting
        assert b.owner.epoch > a.owner.epoch
        for each in (a, b):
            await each.owner.release()
            await each.store.close()

    simulated(body)


def test_a_dead_owner_is_followed_within_its_session_and_a_little() -> None:
    async def body(server: SimMetadataServer) -> None:
        a, b = Broker("a", server), Broker("b", server)
        await a.acquire()
        waiting = b.waiting()
        await asyncio.sleep(1)
        a.store.crash()
        async with asyncio.timeout(2 * TTL_MS / 1000):
            await waiting
        assert b.owner.epoch > a.owner.epoch
        await b.owner.release()
        await b.store.close()

    simulated(body)


def test_a_broker_that_starts_again_at_its_address_takes_over_from_its_former_run_at_once() -> None:
    async def body(server: SimMetadataServer) -> None:
        a = Broker("a1", server, "host:6650")
        await a.acquire()
        a.store.crash()
        again = Broker("a2", server, "host:6650")
        async with asyncio.timeout(1):
            await again.acquire()
        assert again.owner.epoch > a.owner.epoch
        await again.owner.release()
        await again.store.close()

    simulated(body)


def test_an_owner_learns_that_its_session_has_ended() -> None:
    async def body(server: SimMetadataServer) -> None:
        a = Broker("a", server)
        await a.acquire()
        lost = asyncio.create_task(a.owner.lost())
        await asyncio.sleep(30)
        assert not lost.done()
        for session in list(a.store._sessions):
            session.expire()
        async with asyncio.timeout(1):
            assert "ended" in await lost or "gone" in await lost
        await a.owner.release()
        await a.store.close()

    simulated(body)


def test_an_owner_learns_that_another_broker_has_its_key() -> None:
    async def body(server: SimMetadataServer) -> None:
        a, b = Broker("a", server), Broker("b", server)
        await a.acquire()
        lost = asyncio.create_task(a.owner.lost())
        await b.store.delete(KEYS.owner)
        await b.acquire()
        async with asyncio.timeout(1):
            reason = await lost
        assert "b is the owner" in reason or "gone" in reason
        for each in (a, b):
            await each.owner.release()
            await each.store.close()

    simulated(body)


def test_an_owner_that_cannot_reach_metadata_goes_on_until_metadata_says_otherwise() -> None:
    async def body(server: SimMetadataServer) -> None:
        a, b = Broker("a", server), Broker("b", server)
        await a.acquire()
        lost = asyncio.create_task(a.owner.lost())
        heard_s = a.owner.heard_s
        a.store.faults.unreachable = True
        await b.acquire()  # once the session of a has ended
        await asyncio.sleep(60)
        assert not lost.done()
        assert asyncio.get_running_loop().time() - a.owner.heard_s > 60
        assert a.owner.heard_s >= heard_s
        a.store.faults.unreachable = False
        async with asyncio.timeout(TTL_MS / 1000):
            await lost
        for each in (a, b):
            await each.owner.release()
            await each.store.close()

    simulated(body)


def test_an_owner_that_metadata_confirms_is_heard_of_again_and_again() -> None:
    async def body(server: SimMetadataServer) -> None:
        a = Broker("a", server)
        await a.acquire()
        lost = asyncio.create_task(a.owner.lost())
        for _ in range(5):
            await asyncio.sleep(TTL_MS / 1000)
            assert asyncio.get_running_loop().time() - a.owner.heard_s < TTL_MS / 1000
        lost.cancel()
        await a.owner.release()
        await a.store.close()

    simulated(body)


def test_outcomes_that_get_lost_leave_exactly_one_owner() -> None:
    for seed in range(40):

        async def body(server: SimMetadataServer) -> None:
            brokers = [Broker(name, server) for name in "abc"]
            for each in brokers:
                each.store.faults.unknown_probability = 0.4
                each.store.faults.delay_max_s = 0.2
            waiting = [each.waiting() for each in brokers]
            epochs = []
            for _ in brokers:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                owners = [each for each, task in zip(brokers, waiting, strict=True) if task.done()]
                assert len(owners) == 1
                leader = leader_in(server)
                assert leader is not None
                assert (leader.id, leader.epoch) == (owners[0].name, owners[0].owner.epoch)
                epochs.append(leader.epoch)
                at = brokers.index(owners[0])
                owners[0].store.crash()
                del brokers[at], waiting[at]
            assert epochs == sorted(set(epochs))

        simulated(body, seed)
