"""The first run in a transaction comes after the record that says that a topic has transactions."""

from __future__ import annotations

from typing import Any, cast

from magnetar.common.naming.position import EARLIEST
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import context, load, load_again, simulated, until


def test_an_open_transaction_is_found_after_a_kill_right_after_its_first_run() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("its cursor ledger is open", EARLIEST, {})
        topic.ledger.use_transactions()
        topic.ledger.append(Run([b"0"], txn=TxnId(0, 0)), None)
        await until(lambda: topic.listener.confirmed)
        ((position, _),) = topic.listener.confirmed
        process.world.kill()
        again = await load_again(context(process, await process.open_store(), topic.ctx.config))
        assert again.ledger.transactions is not None
        assert list(again.ledger.transactions.open) == [TxnId(0, 0)]
        assert again.ledger.read_limit() < position

    simulated(scenario)


class WaitingTopic:
    """A topic whose cursor ledger has not confirmed anything yet."""

    name = "t"
    last_confirmed = EARLIEST

    def __init__(self) -> None:
        self.appended: list[Run] = []
        self.held: list[Run] = []
        self.flushes: list[Any] = []

    @property
    def appender(self) -> WaitingTopic:
        return self

    def now_ms(self) -> int:
        return 1

    def append(self, run: Run, context: object) -> None:
        self.appended.append(run)

    def append_held(self, run: Run, context: object) -> None:
        self.held.append(run)

    def release(self) -> None:
        self.appended, self.held = self.held, []

    def flush(self, done: Any) -> None:
        self.flushes.append(done)

    def limit(self, position: object) -> None:
        """Limits no reads: there are none."""


def test_the_first_run_waits_until_the_record_is_confirmed() -> None:
    topic = WaitingTopic()
    transactions = TopicTransactions(cast(Any, topic), None)
    transactions.introduce()
    run = Run([b"0"], txn=TxnId(0, 0))
    transactions.append(run, None)
    assert (topic.appended, topic.held) == ([], [run])
    (confirmed,) = topic.flushes
    confirmed(None)
    assert (topic.appended, topic.held) == ([run], [])
