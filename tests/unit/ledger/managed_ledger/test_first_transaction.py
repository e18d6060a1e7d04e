"""The first run in a transaction comes after the record that says that a topic has transactions."""

from __future__ import annotations

from magnetar.common.naming.position import EARLIEST
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.ledger_store import Run

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
