"""What the simulated network does to streams and calls, and what it never does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from magnetar.sim.network import NetworkDown, NetworkFaults, SimNetwork
from magnetar.sim.process import SimProcess, WorldLoop, run_world


@dataclass(slots=True)
class Echo:
    """Sends everything back; remembers it."""

    streams: list[list[bytes]] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    broken: int = 0

    def open_stream(self, send: Callable[[bytes], None]) -> EchoEnd:
        self.streams.append([])
        return EchoEnd(self, self.streams[-1], send)

    async def call(self, method: str, request: bytes) -> Sequence[bytes]:
        self.calls.append(request)
        await asyncio.sleep(0.001)
        return [method.encode(), request]


@dataclass(slots=True)
class EchoEnd:
    echo: Echo
    heard: list[bytes]
    send: Callable[[bytes], None]

    def receive(self, message: bytes) -> None:
        self.heard.append(message)
        self.send(message)

    def broken(self) -> None:
        self.echo.broken += 1


@dataclass(slots=True)
class World:
    loop: WorldLoop
    network: SimNetwork
    client: SimProcess
    server: SimProcess
    echo: Echo
    heard: list[bytes] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)

    def connect(self) -> Any:
        return self.client.call(
            self.network.connect,
            self.client,
            "server",
            self.heard.append,
            lambda: self.broken.append(self.loop.time()),
        )

    async def call(self, request: bytes) -> Sequence[bytes]:
        return await self.client.spawn(self.network.call(self.client, "server", "Echo", request, 1.0))

    def restart(self) -> None:
        self.server = SimProcess(self.loop, "server")
        self.echo = Echo()
        self.network.listen(self.server, self.echo)


def in_world(
    main: Callable[[World], Coroutine[Any, Any, None]], *, seed: int = 1, faults: NetworkFaults | None = None
) -> str:
    loop = WorldLoop(seed, time_max_s=1000)

    async def start() -> None:
        network = SimNetwork(loop, random.Random(seed), faults)
        world = World(loop, network, SimProcess(loop, "client"), SimProcess(loop, "server"), Echo())
        network.listen(world.server, world.echo)
        await main(world)

    run_world(loop, start())
    return loop.trace_hash()


MESSAGES = [b"%d" % number for number in range(50)]
SEEDS = range(20)


def test_a_stream_delivers_in_order() -> None:
    async def main(world: World) -> None:
        stream = world.connect()
        for message in MESSAGES:
            stream.send(message)
            await asyncio.sleep(0.0002)
        await asyncio.sleep(1)
        assert world.echo.streams == [MESSAGES]
        assert world.heard == MESSAGES
        assert not world.broken

    for seed in SEEDS:
        in_world(main, seed=seed)


def test_a_stream_that_breaks_has_delivered_a_beginning_and_tells_each_side_once() -> None:
    arrived = set()

    async def main(world: World) -> None:
        stream = world.connect()
        for message in MESSAGES:
            stream.send(message)
        await asyncio.sleep(3)
        assert len(world.broken) == 1
        heard = world.echo.streams[0] if world.echo.streams else []
        assert heard == MESSAGES[: len(heard)]
        assert world.heard == heard[: len(world.heard)]
        assert world.echo.broken == len(world.echo.streams)
        arrived.add((len(heard), len(world.heard)))

    for seed in SEEDS:
        in_world(main, seed=seed, faults=NetworkFaults(break_probability=0.1))
    assert len(arrived) > 5, "breaks come at different moments"


def test_blocked_calls_arrive_in_order_after_healing() -> None:
    async def main(world: World) -> None:
        stream = world.connect()
        stream.send(b"first")
        await asyncio.sleep(0.2)
        world.network.partition(["client"], ["server"])
        for message in MESSAGES:
            stream.send(message)
        await asyncio.sleep(0.3)
        assert world.heard == [b"first"]
        world.network.heal()
        await asyncio.sleep(0.3)
        assert world.heard == [b"first", *MESSAGES]
        assert not world.broken

    for seed in SEEDS:
        in_world(main, seed=seed)


@pytest.mark.parametrize("blocked", [("client", "server"), ("server", "client")])
def test_a_stream_without_an_answer_is_given_up_and_may_still_arrive(blocked: tuple[str, str]) -> None:
    late = set()

    async def main(world: World) -> None:
        stream = world.connect()
        await asyncio.sleep(0.2)
        world.network.block(*blocked)
        for message in MESSAGES:
            stream.send(message)
        await asyncio.sleep(3)
        assert len(world.broken) == 1
        heard = len(world.heard)
        world.network.heal()
        await asyncio.sleep(1)
        assert len(world.heard) == heard, "nothing comes out of a broken stream"
        late.add(len(world.echo.streams[0]))

    for seed in SEEDS:
        in_world(main, seed=seed)
    assert max(late) == len(MESSAGES) if blocked[0] == "server" else len(late) > 3


def test_a_call_is_answered_or_its_fate_is_unknown() -> None:
    fates = set()

    async def main(world: World) -> None:
        for message in MESSAGES:
            before = len(world.echo.calls)
            try:
                assert await world.call(message) == [b"Echo", message]
                answered = True
            except NetworkDown:
                answered = False
            await asyncio.sleep(0.5)
            fates.add((answered, len(world.echo.calls) - before))

    in_world(main, faults=NetworkFaults(loss_probability=0.3, duplicate_probability=0.3))
    assert fates == {(True, 1), (True, 2), (False, 0), (False, 1), (False, 2)}


def test_calls_overtake_each_other() -> None:
    async def main(world: World) -> None:
        await asyncio.gather(*(world.call(message) for message in MESSAGES))
        assert sorted(world.echo.calls) == sorted(MESSAGES)
        assert world.echo.calls != MESSAGES

    in_world(main)


def test_the_death_of_a_service_breaks_its_streams_and_a_restart_knows_nothing_of_them() -> None:
    told = set()

    async def main(world: World) -> None:
        stream = world.connect()
        stream.send(b"1")
        await asyncio.sleep(0.2)
        died = world.loop.time()
        world.server.kill()
        stream.send(b"2")
        await asyncio.sleep(0.6)
        world.restart()
        stream.send(b"3")
        await asyncio.sleep(2)
        assert world.heard == [b"1"]
        assert len(world.broken) == 1
        assert world.echo.streams == []
        told.add(world.broken[0] - died < 0.5)

    for seed in SEEDS:
        in_world(main, seed=seed)
    assert told == {True, False}, "the end comes at once, or only when somebody is there again"


def test_a_stream_that_was_refused_stays_refused() -> None:
    async def main(world: World) -> None:
        world.server.kill()
        stream = world.connect()
        await asyncio.sleep(0.0005)
        stream.send(b"1")
        world.network.loop.call_later(0.0005, world.restart)
        for message in MESSAGES:
            stream.send(message)
            await asyncio.sleep(0.0001)
        await asyncio.sleep(2)
        assert len(world.broken) == 1
        assert world.echo.streams in ([], [[b"1", *MESSAGES][: len(world.heard)]])

    for seed in SEEDS:
        in_world(main, seed=seed)


def test_calls_of_a_dead_client_get_no_response() -> None:
    async def main(world: World) -> None:
        answered: list[object] = []

        async def ask() -> None:
            answered.append(await world.network.call(world.client, "server", "Echo", b"x", 1.0))

        world.client.spawn(ask())
        await asyncio.sleep(0)
        world.client.kill()
        await asyncio.sleep(2)
        assert world.echo.calls == [b"x"]
        assert not answered

    in_world(main, faults=NetworkFaults(slow_probability=0))


def test_requests_wait_for_a_service_that_stands_still() -> None:
    async def main(world: World) -> None:
        world.server.pause(3)
        with pytest.raises(NetworkDown):
            await world.call(b"x")
        assert world.echo.calls == []
        await asyncio.sleep(3)
        assert world.echo.calls == [b"x"]

    in_world(main)


def test_the_same_seed_gives_the_same_trace() -> None:
    async def main(world: World) -> None:
        stream = world.connect()
        for message in MESSAGES:
            stream.send(message)
            await asyncio.sleep(0.001)

    faults = NetworkFaults(break_probability=0.01, slow_probability=0.3)
    assert in_world(main, seed=3, faults=faults) == in_world(main, seed=3, faults=faults)
    assert in_world(main, seed=3, faults=faults) != in_world(main, seed=4, faults=faults)


def test_an_address_may_be_another_processes_by_now_and_its_paths_are_that_ones() -> None:
    async def main(world: World) -> None:
        network, heir = world.network, Echo()
        assert network.host("server") == "server"
        world.server.kill()
        await asyncio.sleep(0)
        network.listen(SimProcess(world.loop, "heir"), heir, "server")
        network.block("client", "server")
        assert await world.call(b"a") == [b"Echo", b"a"]
        stream = world.connect()
        stream.send(b"b")
        await asyncio.sleep(0.2)
        assert (heir.calls, heir.streams, world.heard) == ([b"a"], [[b"b"]], [b"b"])
        network.block("heir", "client")
        with pytest.raises(NetworkDown):
            await world.call(b"c")
        assert network.host("server") == "heir"

    in_world(main)


def test_a_service_may_end_a_stream_that_it_does_not_want() -> None:
    class Refusing(EchoEnd):
        def receive(self, message: bytes) -> None:
            raise NetworkDown("not here")

    class Service(Echo):
        def open_stream(self, send: Callable[[bytes], None]) -> EchoEnd:
            return Refusing(self, [], send)

    async def main(world: World) -> None:
        world.network.listen(SimProcess(world.loop, "server"), Service())
        stream = world.connect()
        stream.send(b"a")
        stream.send(b"b")
        await asyncio.sleep(0.2)
        assert len(world.broken) == 1
        assert not world.heard

    in_world(main)
