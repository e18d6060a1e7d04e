"""Recovery against counting by hand: any quorums, any placement, any trouble that is allowed.

What a recovery decides is compared with what can be said from the placement alone, in the simplest way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnetar.common.errors import NotEnoughBookies
from magnetar.ledger.bookie_protocol.bookie_client import AppendDone
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, Code
from magnetar.ledger.bookie_protocol.records import encode_append
from magnetar.ledger.ledger_store import ClosedLedger
from magnetar.ledger.quorum.striping import Striping
from magnetar.sim.loop import SimLoop, run

from tests.examples import examples
from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, a_run, entry


@dataclass(frozen=True, slots=True)
class Placement:
    """What an old writer left: entries up to `confirmed` on Qa or more of their write sets."""

    striping: Striping
    confirmed: int
    copies: list[frozenset[int]]
    """By entry id: the positions that have it."""
    lacs: list[int]
    """By position; never above `confirmed`."""


@st.composite
def stripings(draw: st.DrawFn) -> Striping:
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    return Striping(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    striping = draw(stripings())
    confirmed = draw(st.integers(-1, 8))
    copies = []
    for n in range(confirmed + 1 + draw(st.integers(0, 5))):
        least = striping.ack_quorum if n <= confirmed else 0
        write_set = st.sampled_from(striping.write_set(n))
        copies.append(draw(st.frozensets(write_set, min_size=least)))
    lacs = [draw(st.integers(-1, confirmed)) for _ in range(striping.ensemble_size)]
    return Placement(striping, confirmed, copies, lacs)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Positions that are in it."""

    quiet: frozenset[int]
    """They do not answer; whether at once or never is the same."""
    limbo: frozenset[int]
    damaged: frozenset[tuple[int, int]]
    """(position, entry id)"""

    def sound(self, placement: Placement, n: int) -> set[int]:
        """Who gives entry `n`."""
        if n >= len(placement.copies):
            return set()
        return {p for p in placement.copies[n] - self.quiet if (p, n) not in self.damaged}

    def certain(self, placement: Placement, n: int) -> set[int]:
        """Who is certain to lack entry `n`."""
        copies = placement.copies[n] if n < len(placement.copies) else frozenset()
        return set(placement.striping.write_set(n)) - copies - self.quiet - self.limbo


def must_stop(placement: Placement, trouble: Trouble) -> bool:
    """Whether no end can be told, if everybody who answers is heard."""
    striping = placement.striping
    everybody = set(range(striping.ensemble_size))
    write_sets = [set(striping.write_set(n)) for n in range(striping.ensemble_size)]
    if any(len(each & trouble.quiet) >= striping.ack_quorum for each in write_sets):
        return True
    n = 1 + max(placement.lacs[p] for p in everybody - trouble.quiet)
    while trouble.sound(placement, n):
        if len(set(striping.write_set(n)) - trouble.quiet) < striping.ack_quorum:
            return True
        n += 1
    return len(trouble.certain(placement, n)) < striping.write_quorum - striping.ack_quorum + 1


def play(
    striping: Striping, scenario: Callable[[ReplicaWorld], Coroutine[None, None, None]], spares: int = 0
) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        await scenario(ReplicaWorld(loop, striping, spares))

    run(loop, main())


async def recover(world: ReplicaWorld, placement: Placement, trouble: Trouble) -> ClosedLedger | None:
    """What a recovery decides; None when it stops."""
    for n, positions in enumerate(placement.copies):
        world.put(range(n, n + 1), sorted(positions))
    for position, bookie_id in enumerate(world.ensemble):
        bookie = world.bookies[bookie_id]
        bookie.lac = placement.lacs[position]
        bookie.limbo = position in trouble.limbo
        bookie.down = position in trouble.quiet and position % 2 == 0
        bookie.silent = position in trouble.quiet and position % 2 == 1
        bookie.damaged = {n for p, n in trouble.damaged if p == position and n in bookie.held}
        if bookie.silent:
            bookie.silence_ends_s = 2.0
    try:
        _, closed = await world.recovery(batch_bytes=16).recover(REF)
    except NotEnoughBookies:
        return None
    return closed


def check_end(world: ReplicaWorld, placement: Placement, trouble: Trouble, last: int) -> None:
    assert last >= placement.confirmed, "a confirmed entry was lost"
    certain = trouble.certain(placement, last + 1)
    assert len(certain) >= placement.striping.absences_needed, "the end was a guess"
    first = 1 + max(lac for p, lac in enumerate(placement.lacs) if p not in trouble.quiet)
    gaps = {
        (gap.bookie_id, n)
        for gap in world.stored().gaps
        for n in range(gap.first_entry_id, gap.last_entry_id + 1)
    }
    layout = world.layout()
    for n in range(first, last + 1):
        write_set = layout.bookies_of(n)
        having = [b for b in write_set if world.bookies[b].held.get(n) == entry(n)]
        assert len(having) >= placement.striping.ack_quorum
        for bookie_id in write_set:
            assert bookie_id in having or (bookie_id, n) in gaps, "neither written nor recorded"


@given(placements(), st.data())
def test_recovery_never_ends_below_a_confirmed_entry_whatever_qw_minus_qa_bookies_are_silent(
    placement: Placement, data: st.DataObject
) -> None:
    striping = placement.striping
    positions = st.integers(0, striping.ensemble_size - 1)
    quiet = data.draw(st.frozensets(positions, max_size=striping.write_quorum - striping.ack_quorum))
    trouble = Trouble(quiet, frozenset(), frozenset())

    async def scenario(world: ReplicaWorld) -> None:
        closed = await recover(world, placement, trouble)
        if closed is not None:
            check_end(world, placement, trouble, closed.last_entry_id)
        else:
            assert must_stop(placement, trouble)

    play(striping, scenario)


@given(placements(), st.data())
@settings(max_examples=examples(200))
def test_recovery_stops_when_it_must_and_only_then(placement: Placement, data: st.DataObject) -> None:
    striping = placement.striping
    positions = st.integers(0, striping.ensemble_size - 1)
    entry_ids = st.integers(0, max(len(placement.copies) - 1, 0))
    trouble = Trouble(
        data.draw(st.frozensets(positions)),
        data.draw(st.frozensets(positions)),
        data.draw(st.frozensets(st.tuples(positions, entry_ids), max_size=6)),
    )

    async def scenario(world: ReplicaWorld) -> None:
        closed = await recover(world, placement, trouble)
        if closed is not None:
            check_end(world, placement, trouble, closed.last_entry_id)
        else:
            assert must_stop(placement, trouble)

    play(striping, scenario)


@given(placements(), st.data())
@settings(max_examples=examples(200))
def test_recovery_waits_shortly_for_bookies_that_do_not_answer_though_enough_do(
    placement: Placement, data: st.DataObject
) -> None:
    """Of the ensemble or of those that could take their places, from the beginning or from a moment on."""
    striping = placement.striping
    positions = st.integers(0, striping.ensemble_size - 1)
    spare = striping.write_quorum - striping.ack_quorum
    quiet = data.draw(st.frozensets(positions, max_size=spare))
    spares = data.draw(st.lists(st.booleans(), max_size=3))
    from_s = data.draw(st.floats(0, 0.02))

    async def scenario(world: ReplicaWorld) -> None:
        for n, having in enumerate(placement.copies):
            world.put(range(n, n + 1), sorted(having))
        for position, bookie_id in enumerate(world.ensemble):
            world.bookies[bookie_id].lac = placement.lacs[position]
        silent = [
            *(world.ensemble[p] for p in quiet),
            *(b for b, s in zip(world.spares, spares, strict=True) if s),
        ]

        def fall_silent() -> None:
            for bookie_id in silent:
                world.bookies[bookie_id].silent = True

        world.loop.call_later(from_s, fall_silent)
        try:
            _, closed = await world.recovery(batch_bytes=16).recover(REF)
        except NotEnoughBookies:
            return  # they were needed
        assert closed.last_entry_id >= placement.confirmed
        assert world.loop.time() < 5

    play(striping, scenario, len(spares))


@given(placements())
@example(
    # The second bookie has entry 1 and lacks entry 0: its bytes are not those of the ledger.
    Placement(
        Striping(ensemble_size=4, write_quorum=4, ack_quorum=1),
        confirmed=0,
        copies=[frozenset([0]), frozenset([1]), frozenset(), frozenset(), frozenset([0])],
        lacs=[0, 0, 0, 0],
    )
)
def test_with_every_bookie_well_recovery_always_finds_an_end(placement: Placement) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        trouble = Trouble(frozenset(), frozenset(), frozenset())
        closed = await recover(world, placement, trouble)
        assert closed is not None
        check_end(world, placement, trouble, closed.last_entry_id)
        assert closed.byte_length == sum(len(entry(n)) for n in range(closed.last_entry_id + 1))

    play(placement.striping, scenario)


@dataclass(slots=True)
class OldWriter:
    """Goes on writing while it is being recovered; confirms by counting."""

    world: ReplicaWorld
    acks: dict[int, int] = field(default_factory=dict)
    confirmed: int = -1
    fenced: bool = False

    async def write(self, delays: list[float]) -> None:
        for n, delay in enumerate(delays):
            await asyncio.sleep(delay)
            if self.fenced:
                return
            append = encode_append(a_run(n, n), REF, self.confirmed)
            for bookie_id in self.world.layout().bookies_of(n):
                self.world.bookies[bookie_id].append(append, self.answered_of(n))

    def answered_of(self, n: int) -> AppendDone:
        return lambda code, _: self._answered(n, code)

    def _answered(self, n: int, code: Code.ValueType) -> None:
        if code != OK:
            self.fenced = True
            return
        self.acks[n] = self.acks.get(n, 0) + 1
        while self.acks.get(self.confirmed + 1, 0) >= self.world.striping.ack_quorum:
            self.confirmed += 1


@given(
    stripings(),
    st.lists(st.floats(0, 0.004), min_size=1, max_size=40),
    st.lists(st.floats(0.0005, 0.02), min_size=5, max_size=5),
    st.floats(0, 0.1),
    st.integers(1, 3),
)
def test_an_old_writer_that_goes_on_never_confirms_beyond_the_end(
    striping: Striping, delays: list[float], bookie_delays: list[float], start_s: float, recoveries: int
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for bookie, delay in zip(world.bookies.values(), bookie_delays, strict=False):
            bookie.delay_s = delay
        writer = OldWriter(world)
        writing = asyncio.create_task(writer.write(delays))
        await asyncio.sleep(start_s)
        results = await asyncio.gather(
            *(world.recovery(batch_bytes=32).recover(REF) for _ in range(recoveries))
        )
        await writing
        await asyncio.sleep(1)
        [last] = {closed.last_entry_id for _, closed in results}
        assert writer.confirmed <= last, "a confirmed entry was lost"
        reader = world.reader(end=last)
        found = [
            data
            for first in range(last + 1)
            for r in await reader.read(first, first, 1)
            for data in r.entries
        ]
        assert found == [entry(n) for n in range(last + 1)]

    play(striping, scenario)
