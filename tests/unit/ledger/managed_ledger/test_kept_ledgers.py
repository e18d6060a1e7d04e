"""The reasons to keep ledgers are those that trimming goes by."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
from hypothesis import given, settings
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.kept_ledgers import Holder, HolderKind, Kept, kept_ledgers
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.trimming import Keeper, Retention, trimmable

from tests.examples import examples
from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import ledger_ids, load, simulated

POSITIONS = st.builds(Position, st.integers(9, 16), st.integers(-1, 4))
RETENTIONS = st.builds(
    Retention, st.sampled_from([-1, 0, 10, 50]), st.sampled_from([-1, 0, 120, 250]), POSITIONS
)


@st.composite
def ledger_lists(draw: st.DrawFn) -> list[LedgerSpan]:
    spans = []
    for number in range(draw(st.integers(0, 6))):
        span = LedgerSpan(LedgerRef(10 + number, 0), entries=5, byte_length=draw(st.integers(1, 100)))
        span.closed = draw(st.sampled_from([True, True, True, False]))
        span.closed_ms = draw(st.integers(0, 100))
        spans.append(span)
    return spans


@given(spans=ledger_lists(), retention=RETENTIONS, positions=st.lists(POSITIONS, max_size=3))
@settings(max_examples=examples(300), deadline=None)
def test_the_first_ledgers_without_a_keeper_are_those_that_are_deleted(
    spans: list[LedgerSpan], retention: Retention, positions: list[Position]
) -> None:
    holders = [Holder(HolderKind.SUBSCRIPTION, each, f"s{n}") for n, each in enumerate(positions)]
    kept = Kept(holders, retention, (), suspended=False)
    found = kept_ledgers(spans, kept, 100)
    assert [each.span for each in found] == spans
    deleted = [each for each in found if each.keeper is None and not each.behind]
    assert deleted == found[: trimmable(spans, kept.needed, retention, 100)]
    for each in found:
        assert bool(each.holders) == (each.keeper is Keeper.NEEDED)
        assert all(one.position < each.span.last_position for one in each.holders)
        if each.behind:
            assert each.keeper is None


def test_subscriptions_deduplication_compaction_and_transactions_hold_ledgers() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, ledger_age_min_minutes=0)
        ledger = topic.ledger
        await ledger.create_cursor("slow", ledger.last_position, {})
        await ledger.create_cursor("fast", ledger.last_position, {})
        for count in (11, 11, 1):
            await topic.publish_confirmed(count)
            await asyncio.sleep(5)
        _, second, _ = ledger_ids(topic)
        assert {(each.kind, each.name) for each in ledger.kept().holders} == {
            (HolderKind.SUBSCRIPTION, "slow"),
            (HolderKind.SUBSCRIPTION, "fast"),
        }
        ledger.cursors["fast"].ack_cumulative(Position(second, 4))
        await topic.flushed()
        found = kept_ledgers(ledger.spans.spans, ledger.kept(), ledger.now_ms())
        assert [[one.name for one in each.holders] for each in found] == [["slow"], ["slow", "fast"], []]
        assert [each.keeper for each in found] == [Keeper.NEEDED, Keeper.NEEDED, Keeper.OPEN]
        ledger.compaction.hold(True)
        ledger.use_transactions()
        kinds = {each.kind for each in ledger.kept().holders}
        assert kinds >= {HolderKind.COMPACTION, HolderKind.TRANSACTIONS}
        assert ledger.kept().needed == EARLIEST

    simulated(scenario)
