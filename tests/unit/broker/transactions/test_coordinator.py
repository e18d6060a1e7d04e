"""A coordinator keeps its promises: one outcome, told to every topic, the same answer again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from magnetar.broker.transactions import coordinator as coordinators
from magnetar.broker.transactions.coordinator import GRACE_S
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TransactionStatus, TxnState
from magnetar.common.errors import (
    InvalidTxnStatus,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotAllowed,
    TransactionNotFound,
)
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.transaction_log.coordinator_state import OUTCOME_MS, CoordinatorState
from magnetar.ledger.transaction_log.log_loader import LogLoader
from magnetar.ledger.transaction_log.transaction_log import LogLimits

from tests.unit.broker.transactions.harness import ID, RETRY, FakeTopics, Served, ended, opened, serving
from tests.unit.ledger.managed_ledger.harness import until

COMMIT, ABORT = Action.COMMIT, Action.ABORT


def figure(name: str) -> float:
    return REGISTRY.get_sample_value(name, {"cluster": "sim", "coordinator_id": str(ID)}) or 0.0


async def stored(served: Served) -> CoordinatorState:
    """The state that the confirmed records of the log give."""
    ref = served.coordinator.log.ref
    assert ref is not None
    reader = await served.ctx.ledgers.open(ref)
    loader = LogLoader(ID, ref.id)
    for run in await reader.read(0, reader.last_confirmed, 1 << 20):
        for number, data in enumerate(run.entries):
            loader.feed(run.first_entry_id + number, data)
    return loader.finish()


def test_a_transaction_ends_once_every_topic_has_recorded_it() -> None:
    async def scenario(served: Served) -> None:
        coordinator, topics = served.coordinator, served.topics
        txn = await served.begin("a", "b")
        await coordinator.add_subscriptions(txn, [("b", "s"), ("c", "s"), ("c", "t")], "ana")
        assert txn == TxnId(ID, 0), "(3, 0) is an id as any other"
        topics.hanging.add("b")
        ending = asyncio.ensure_future(coordinator.end(txn, COMMIT, "ana"))
        await until(lambda: topics.calls)
        assert coordinator.status(txn).state is TxnState.COMMITTING
        await asyncio.sleep(1)
        assert not ending.done()
        topics.free("b")
        await ending
        assert topics.ended == {(txn, topic): COMMIT for topic in ("a", "b", "c")}
        assert coordinator.status(txn).state is TxnState.COMMITTED

    serving(scenario)


def test_nothing_is_told_before_the_decision_is_durable() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a")
        durable: list[bool] = []
        end = served.topics.end

        async def asked(ends: Sequence[TransactionEnd]) -> list[EndResult]:
            durable.append((await stored(served)).transactions[txn.least].action is COMMIT)
            return await end(ends)

        served.topics.end = asked  # type: ignore[method-assign]
        await served.coordinator.end(txn, COMMIT, "ana")
        assert durable == [True]

    serving(scenario)


def test_a_transaction_without_topics_ends_at_once() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin()
        await served.coordinator.end(txn, ABORT, "ana")
        assert served.topics.calls == []
        assert served.coordinator.status(txn).state is TxnState.ABORTED
        assert served.coordinator.active == 0

    serving(scenario)


def test_a_repeated_end_joins_the_first_and_then_gets_the_same_answer() -> None:
    async def scenario(served: Served) -> None:
        coordinator, topics = served.coordinator, served.topics
        txn = await served.begin("a")
        topics.hanging.add("a")
        endings = [asyncio.ensure_future(coordinator.end(txn, COMMIT, "ana")) for _ in range(3)]
        await until(lambda: topics.calls)
        with pytest.raises(
            InvalidTxnStatus, match=r"\(3,0\) is ending with commit; it cannot end with abort"
        ):
            await coordinator.end(txn, ABORT, "ana")
        endings.append(asyncio.ensure_future(coordinator.end(txn, COMMIT, "ana")))
        await asyncio.sleep(0.1)
        endings.pop(0).cancel()
        topics.free("a")
        await asyncio.gather(*endings)
        await coordinator.end(txn, COMMIT, "ana")
        with pytest.raises(InvalidTxnStatus, match="ended with commit"):
            await coordinator.end(txn, ABORT, "ana")
        assert len(topics.calls) == 1

    serving(scenario)


def test_an_outcome_is_remembered_over_takeovers_and_then_forgotten() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a")
        await served.coordinator.end(txn, COMMIT, "ana")
        await served.begin()  # is durable after the end
        after = await served.taken_over()
        await after.coordinator.end(txn, COMMIT, "ana")
        with pytest.raises(InvalidTxnStatus):
            await after.coordinator.end(txn, ABORT, "ana")
        with pytest.raises(TransactionNotFound):
            await after.coordinator.add_partitions(txn, ["b"], "ana")
        await asyncio.sleep(OUTCOME_MS / 1000 + 1)
        other = await after.begin()
        await after.coordinator.end(other, ABORT, "ana")
        with pytest.raises(TransactionNotFound, match=r"transaction \(3,0\) is not known"):
            await after.coordinator.end(txn, COMMIT, "ana")
        assert after.coordinator.status(txn) == TransactionStatus(TxnState.UNKNOWN)
        assert after.coordinator.low_watermark >= txn.least
        await after.coordinator.close()

    serving(scenario)


def test_only_the_role_that_made_a_transaction_and_super_users_may_act_on_it() -> None:
    async def scenario(served: Served) -> None:
        coordinator = served.coordinator
        txn = await served.begin("a")
        for act in (
            coordinator.end(txn, COMMIT, "bob"),
            coordinator.add_partitions(txn, ["b"], "bob"),
            coordinator.add_subscriptions(txn, [("b", "s")], ""),
        ):
            with pytest.raises(TransactionNotFound):
                await act
        await coordinator.add_partitions(txn, ["b"], None)
        await coordinator.end(txn, COMMIT, None)
        with pytest.raises(TransactionNotFound):
            await coordinator.end(txn, COMMIT, "bob")
        anonymous = await coordinator.begin(1_000, "")
        await coordinator.end(anonymous, ABORT, "bob")

    serving(scenario)


def test_participants_are_refused_once_a_transaction_is_decided_or_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinators, "PARTICIPANTS_MAX", 3)

    async def scenario(served: Served) -> None:
        coordinator = served.coordinator
        txn = await served.begin("a", "b")
        with pytest.raises(TransactionNotAllowed, match="4 topics would take part"):
            await coordinator.add_partitions(txn, ["c", "d"], "ana")
        with pytest.raises(TransactionNotFound):
            await coordinator.add_partitions(TxnId(ID, 77), ["c"], "ana")
        served.topics.hanging.add("a")
        ending = asyncio.ensure_future(coordinator.end(txn, ABORT, "ana"))
        await until(lambda: served.topics.calls)
        with pytest.raises(InvalidTxnStatus, match=r"is not open: its abort is decided \(requested\)"):
            await coordinator.add_partitions(txn, ["c"], "ana")
        with pytest.raises(InvalidTxnStatus):
            await coordinator.add_subscriptions(txn, [("c", "s")], "ana")
        served.topics.free("a")
        await ending

    serving(scenario)


# Limits


def test_a_transaction_beyond_the_limit_is_refused_and_fits_after_an_end() -> None:
    async def scenario(served: Served) -> None:
        first = await served.begin()
        await served.begin()
        with pytest.raises(TooManyTransactions, match="maxActiveTransactionsPerCoordinator is 2"):
            await served.begin()
        await served.coordinator.end(first, COMMIT, "ana")
        await served.begin()

    serving(scenario, active_max=2)


def test_a_log_that_is_behind_refuses_new_work_and_still_decides() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a")
        served.coordinator.log._limits = LogLimits(unconfirmed_max=0)
        with pytest.raises(TooManyTransactions, match="wait for storage; retry later"):
            await served.begin()
        with pytest.raises(TooManyTransactions):
            await served.coordinator.add_partitions(txn, ["b"], "ana")
        await served.coordinator.end(txn, COMMIT, "ana")

    serving(scenario)


# Timeouts


def test_an_open_transaction_is_aborted_at_its_deadline_and_not_before() -> None:
    async def scenario(served: Served) -> None:
        coordinator, before = served.coordinator, figure("pulsar_txn_timeout_total")
        short = await served.begin("a", ttl_ms=2_000)
        long = await served.begin("b", ttl_ms=60_000)
        at_once = await served.begin(ttl_ms=0)
        await asyncio.sleep(1.9)
        assert coordinator.status(at_once).state is TxnState.ABORTED
        assert coordinator.status(short).state is TxnState.OPEN
        await asyncio.sleep(0.2)
        assert coordinator.status(short).state is TxnState.ABORTED
        assert served.topics.ended == {(short, "a"): ABORT}
        with pytest.raises(InvalidTxnStatus, match="ended with abort; it cannot end with commit"):
            await coordinator.end(short, COMMIT, "ana")
        assert coordinator.status(long).state is TxnState.OPEN
        assert figure("pulsar_txn_timeout_total") == before + 2
        await coordinator.end(long, COMMIT, "ana")
        await asyncio.sleep(70)
        assert coordinator.status(long).state is TxnState.COMMITTED

    serving(scenario)


def test_a_decided_commit_does_not_time_out_however_long_it_takes() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a", ttl_ms=1_000)
        served.topics.answers["a"] = RETRY
        ending = asyncio.ensure_future(served.coordinator.end(txn, COMMIT, "ana"))
        await asyncio.sleep(100)
        assert served.coordinator.status(txn).state is TxnState.COMMITTING
        served.topics.answers.clear()
        await ending

    serving(scenario)


def test_after_a_takeover_deadlines_hold_with_one_grace() -> None:
    async def scenario(served: Served) -> None:
        over = await served.begin("a", ttl_ms=1_000)
        later = await served.begin("b", ttl_ms=30_000)
        served.coordinator.abandon("as the test wants it")
        await asyncio.sleep(20)
        after = await served.taken_over()
        assert after.coordinator.status(over) == TransactionStatus(
            TxnState.OPEN, after.coordinator.transaction(over).deadline_ms
        )
        await asyncio.sleep(GRACE_S - 0.1)
        assert after.coordinator.status(over).state is TxnState.OPEN
        await asyncio.sleep(0.2)
        assert after.coordinator.status(over).state is TxnState.ABORTED
        await asyncio.sleep(0.2)
        assert after.coordinator.status(later).state is TxnState.ABORTED, "30 s after its begin"
        await after.coordinator.close()

    serving(scenario)


def test_in_the_grace_after_a_takeover_a_client_still_commits() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a", ttl_ms=1_000)
        served.coordinator.abandon("as the test wants it")
        await asyncio.sleep(20)
        after = await served.taken_over()
        await asyncio.sleep(GRACE_S / 2)
        await after.coordinator.end(txn, COMMIT, "ana")
        assert after.topics.ended == {(txn, "a"): COMMIT}
        await after.coordinator.close()

    serving(scenario)


# Takeovers


def test_the_next_owner_tells_decisions_to_all_topics_again() -> None:
    async def scenario(served: Served) -> None:
        committed, aborted = await served.begin("a", "b"), await served.begin("c")
        open_one = await served.begin("d")
        for topic in "abc":
            served.topics.answers[topic] = RETRY
        endings = [
            asyncio.ensure_future(served.coordinator.end(committed, COMMIT, "ana")),
            asyncio.ensure_future(served.coordinator.end(aborted, ABORT, "ana")),
        ]
        await until(lambda: len(served.topics.asked) == 3)
        after = await served.taken_over()
        await ended(after.coordinator)
        assert after.topics.ended == {
            (committed, "a"): COMMIT,
            (committed, "b"): COMMIT,
            (aborted, "c"): ABORT,
        }
        assert after.coordinator.status(open_one).state is TxnState.OPEN
        assert after.coordinator.low_watermark < open_one.least
        await after.coordinator.close()
        await served.coordinator.close()
        for result in await asyncio.gather(*endings, return_exceptions=True):
            assert isinstance(result, TransactionCoordinatorNotFound)

    serving(scenario)


def test_a_former_owner_answers_nothing_after_its_loss() -> None:
    async def scenario(served: Served) -> None:
        lost: list[bool] = []
        served.coordinator.on_lost = lambda: lost.append(True)
        txn = await served.begin("a")
        after = await served.taken_over()
        with pytest.raises(TransactionCoordinatorNotFound):
            await served.coordinator.end(txn, COMMIT, "ana")
        await until(lambda: lost)
        for act in (served.begin(), served.coordinator.end(txn, ABORT, "ana")):
            with pytest.raises(TransactionCoordinatorNotFound):
                await act
        assert served.topics.calls == []
        assert after.coordinator.status(txn).state is TxnState.OPEN
        await after.coordinator.close()

    serving(scenario)


def test_a_close_answers_waiting_clients_so_that_they_go_to_the_next_owner() -> None:
    async def scenario(served: Served) -> None:
        txn = await served.begin("a")
        served.topics.answers["a"] = RETRY
        ending = asyncio.ensure_future(served.coordinator.end(txn, COMMIT, "ana"))
        await until(lambda: served.topics.calls)
        await served.coordinator.close()
        with pytest.raises(TransactionCoordinatorNotFound, match="moving"):
            await ending
        after = await served.taken_over()
        await after.coordinator.end(txn, COMMIT, "ana")
        await after.coordinator.close()

    serving(scenario)


# Figures


def test_figures_have_pulsars_names_and_end_with_the_coordinator() -> None:
    async def scenario(served: Served) -> None:
        names = ("created", "committed", "aborted", "append_log")
        before = {name: figure(f"pulsar_txn_{name}_total") for name in names}
        fast, slow = (
            figure("pulsar_txn_execution_latency_le_500"),
            figure("pulsar_txn_execution_latency_le_5000"),
        )
        first, second = await served.begin("a"), await served.begin()
        assert figure("pulsar_txn_active_count") == 2
        await asyncio.sleep(0.2)
        await served.coordinator.end(first, COMMIT, "ana")
        await asyncio.sleep(3)
        await served.coordinator.end(second, ABORT, "ana")
        assert figure("pulsar_txn_active_count") == 0
        await served.coordinator.close()
        after = {name: figure(f"pulsar_txn_{name}_total") - before[name] for name in names}
        assert after == {"created": 2, "committed": 1, "aborted": 1, "append_log": 6}
        assert figure("pulsar_txn_execution_latency_le_500") == fast + 1
        assert figure("pulsar_txn_execution_latency_le_5000") == slow + 1
        labels = {"cluster": "sim", "coordinator_id": str(ID)}
        assert REGISTRY.get_sample_value("pulsar_txn_active_count", labels) is None

    serving(scenario)


def test_a_topic_that_recorded_the_other_action_is_counted_and_does_not_hold_the_end_up() -> None:
    async def scenario(served: Served) -> None:
        before = figure("magnetar_txn_end_contradictions_total")
        txn = await served.begin("a", "b")
        served.topics.answers["a"] = EndResult(EndOutcome.REFUSED, reason="aborted before")
        await served.coordinator.end(txn, COMMIT, "ana")
        assert figure("magnetar_txn_end_contradictions_total") == before + 1

    serving(scenario)


def test_what_is_unfinished_is_described_for_operators() -> None:
    async def scenario(served: Served) -> None:
        coordinator = served.coordinator
        txn = await served.begin("a", ttl_ms=7_000)
        found = coordinator.transaction(txn)
        assert (found.owner, found.topics, found.ttl_ms) == ("ana", ("a",), 7_000)
        assert found.deadline_ms - found.began_ms == 7_000
        assert [each.number for each in coordinator.transactions()] == [0]
        assert (coordinator.last_number, coordinator.low_watermark) == (0, -1)
        assert coordinator.recovered_ms >= coordinator.recovery_began_ms
        with pytest.raises(TransactionNotFound):
            coordinator.transaction(TxnId(ID, 1))

    serving(scenario)


def test_topics_have_the_low_watermark_of_the_moment() -> None:
    async def scenario(served: Served) -> None:
        first, second = await served.begin("a"), await served.begin("b")
        await served.coordinator.end(first, COMMIT, "ana")
        await served.begin()
        await served.coordinator.end(second, COMMIT, "ana")
        assert [call[0].low_watermark for call in served.topics.calls] == [-1, 0]

    serving(scenario)


def test_a_coordinator_that_is_opened_twice_belongs_to_the_last_one() -> None:
    async def scenario(served: Served) -> None:
        await served.begin()
        topics = FakeTopics()
        one, other = await asyncio.gather(opened(served.ctx, topics), opened(served.ctx, topics))
        working = []
        for each in (one, other):
            try:
                working.append(await each.begin(1_000, ""))
            except TransactionCoordinatorNotFound:
                continue
        assert len(working) == 1
        for each in (one, other):
            await each.close()

    serving(scenario)
