"""Transaction coordinators and their transactions over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from magnetar.broker.admin.routes.transactions import coordinators
from magnetar.broker.transactions.coordinator_views import CoordinatorFigures, LogFigures, TransactionFigures
from magnetar.common.errors import InvalidTxnStatus, ServiceNotReady, TransactionNotFound
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId

from tests.unit.broker.admin.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ROOT = "/admin/v3/transactions"
TOPIC = "persistent://acme/demo/t"
STATS = {
    "state": "Ready",
    "leastSigBits": 41,
    "lowWaterMark": 7,
    "ongoingTxnSize": 2,
    "recoverStartTime": 5,
    "recoverEndTime": 6,
}
NOW_MS = 2_000_000


@dataclass
class Coordinator:
    """A coordinator with the transactions that a test gives it."""

    found: list[TransactionFigures] = field(default_factory=list)
    aborted: list[TxnId] = field(default_factory=list)
    refuses: Exception | None = None
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def figures(self) -> CoordinatorFigures:
        return CoordinatorFigures("Ready", 41, 7, 2, 5, 6)

    def log(self) -> LogFigures:
        return LogFigures("transactions/1", Position(64, 2), 125, 1_600_000_000_000)

    def transaction(self, txn: TxnId) -> TransactionFigures:
        for each in self.found:
            if each.id == txn:
                return each
        raise TransactionNotFound(f"transaction {txn} not found")

    def transactions(self) -> Iterable[TransactionFigures]:
        return iter(self.found)

    async def abort(self, txn: TxnId) -> None:
        if self.refuses is not None:
            raise self.refuses
        await self.confirmed.wait()
        self.aborted.append(txn)
        self.ended.set()


@dataclass
class Coordinators:
    """Two coordinators, of this broker."""

    each: list[Coordinator] = field(default_factory=lambda: [Coordinator(), Coordinator()])
    loads: list[int] = field(default_factory=list)
    grown: list[int] = field(default_factory=list)

    async def count(self) -> int:
        return len(self.each)

    async def grow(self, count: int) -> bool:
        if count > len(self.each):
            self.grown.append(count)
        return count > len(self.each)

    async def coordinator(self, coordinator_id: int) -> Coordinator:
        self.loads.append(coordinator_id)
        return self.each[coordinator_id]


def with_two(http: Http) -> Coordinators:
    http.root = ROOT
    found = http.broker.coordinators = Coordinators()
    return found


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "coordinators"),
        ("GET", "coordinatorStats"),
        ("GET", "coordinatorStats?coordinatorId=0"),
        ("GET", "coordinatorInternalStats/0"),
        ("POST", "transactionCoordinator/replicas"),
        ("GET", "transactionMetadata/0/1"),
        ("POST", "abortTransaction/0/1"),
        ("GET", "slowTransactions/1000"),
    ],
)
def test_with_transactions_off_each_call_says_which_setting(serving: Serving, method: str, path: str) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        reason = await http.reason(503, method, f"/{path}", 3 if "replicas" in path else None)
        assert reason == "This Broker is not configured with transactionCoordinatorEnabled=true."

    serving(body)


def test_coordinators_are_listed_with_their_brokers(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with_two(http)
        url = http.broker.urls.broker_url
        assert await http.ask("/coordinators") == [
            {"id": 0, "brokerServiceUrl": url},
            {"id": 1, "brokerServiceUrl": url},
        ]

    serving(body)


def test_statistics_are_those_of_one_coordinator_or_by_id(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with_two(http)
        assert await http.ask("/coordinatorStats?coordinatorId=0") == STATS
        assert await http.ask("/coordinatorStats") == {"0": STATS, "1": STATS}

    serving(body)


def test_the_log_has_the_shape_of_a_managed_ledger(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with_two(http)
        log = (await http.ask("/coordinatorInternalStats/1"))["transactionLogStats"]
        assert log["managedLedgerName"] == "transactions/1"
        stats = log["managedLedgerInternalStats"]
        assert (stats["numberOfEntries"], stats["totalSize"]) == (3, 125)
        assert stats["lastConfirmedEntry"] == "64:2"
        assert stats["lastLedgerCreatedTimestamp"] == "2020-09-13T12:26:40Z"
        assert [each["ledgerId"] for each in stats["ledgers"]] == [64]

    serving(body)


def test_an_unknown_coordinator_is_not_found_and_loads_nothing(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        for path in (
            "coordinatorStats?coordinatorId=2",
            "coordinatorInternalStats/2",
            "transactionMetadata/2/0",
            "slowTransactions/1?coordinatorId=2",
        ):
            reason = await http.reason(404, "GET", f"/{path}")
            assert reason == "Transaction coordinator not found! coordinator id : 2"
        await http.reason(404, "POST", "/abortTransaction/2/0")
        assert found.loads == []

    serving(body)


@pytest.mark.parametrize(
    "path", ["transactionMetadata/-1/0", "transactionMetadata/0/x", "transactionMetadata/0/-1"]
)
def test_halves_of_an_id_are_natural_numbers(serving: Serving, path: str) -> None:
    async def body(http: Http) -> None:
        with_two(http)
        await http.reason(400, "GET", f"/{path}")

    serving(body)


def test_a_transaction_is_shown_with_participants_that_cannot_be_asked(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        found.each[1].found = [
            TransactionFigures(
                TxnId(1, 0), "OPEN", 1_000, 300_000, "bob", [TOPIC], [(TOPIC, "one"), (TOPIC, "two")]
            )
        ]
        http.broker.registry = _Nothing()
        assert await http.ask("/transactionMetadata/1/0") == {
            "txnId": "(1,0)",
            "status": "OPEN",
            "openTimestamp": 1_000,
            "timeoutAt": 300_000,
            "owner": "bob",
            "producedPartitions": {TOPIC: {}},
            "ackedPartitions": {TOPIC: {"one": {}, "two": {}}},
        }

    serving(body)


class _Nothing:
    """A registry whose topics cannot be loaded."""

    async def get(self, *_: object, **_more: object) -> None:
        raise ServiceNotReady("the topic is moving")


def test_an_unknown_transaction_is_not_found(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with_two(http).each[0].refuses = TransactionNotFound("no")
        wanted = "The transaction with this txdID `(0,9999)`not found "
        assert await http.reason(404, "GET", "/transactionMetadata/0/9999") == wanted
        assert await http.reason(404, "POST", "/abortTransaction/0/9999") == wanted

    serving(body)


def test_an_abort_waits_for_the_participants(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        found.each[0].confirmed.set()
        assert await http.send("POST", "/abortTransaction/0/0") == (204, "")
        assert found.each[0].aborted == [TxnId(0, 0)]

    serving(body)


def test_an_abort_that_takes_long_goes_on_without_its_request(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        with patch.object(coordinators, "ABORT_S", 0.01):
            reason = await http.reason(503, "POST", "/abortTransaction/0/3")
        assert "transaction (0,3) is being aborted" in reason
        found.each[0].confirmed.set()
        await found.each[0].ended.wait()
        assert found.each[0].aborted == [TxnId(0, 3)]

    serving(body)


def test_a_committed_transaction_is_not_aborted(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with_two(http).each[0].refuses = InvalidTxnStatus("transaction (0,3) is committed")
        assert "is committed" in await http.reason(409, "POST", "/abortTransaction/0/3")

    serving(body)


def test_slow_transactions_are_those_with_a_longer_timeout(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        found.each[0].found = [TransactionFigures(TxnId(0, 1), "OPEN", NOW_MS - 60_000, 5_000)]
        found.each[1].found = [TransactionFigures(TxnId(1, 1), "OPEN", NOW_MS - 1, 5_001)]
        with patch.object(type(http.broker.ledgers.clock), "wall_ms", lambda _: NOW_MS):
            assert list(await http.ask("/slowTransactions/4999")) == ["(0,1)", "(1,1)"]
            assert list(await http.ask("/slowTransactions/5000")) == ["(1,1)"]
            assert list(await http.ask("/slowTransactions/0?coordinatorId=0")) == ["(0,1)"]
            assert list(await http.ask("/slowTransactions/0?openAtLeastMs=60000")) == ["(0,1)"]
            assert list(await http.ask("/slowTransactions/0?openAtLeastMs=60001")) == []

    serving(body)


def test_the_list_of_slow_transactions_is_bounded(serving: Serving) -> None:
    async def body(http: Http) -> None:
        asked: list[str] = []

        class Registry:
            async def get(self, topic: object, **_: object) -> None:
                asked.append(str(topic))
                raise ServiceNotReady("the topic is moving")

        http.broker.registry = Registry()
        with_two(http).each[0].found = [
            TransactionFigures(TxnId(0, number), "OPEN", number, 10, topics=[TOPIC])
            for number in range(coordinators.SLOW_MAX + 5)
        ]
        found = await http.ask("/slowTransactions/0?coordinatorId=0")
        assert list(found)[-1] == f"(0,{coordinators.SLOW_MAX - 1})"
        assert found["(0,999)"]["producedPartitions"] == {TOPIC: {}}
        assert len(asked) == coordinators.DETAILED_MAX
        topics = [f"{TOPIC}-{number}" for number in range(coordinators.PARTICIPANTS_MAX + 5)]
        with_many = TransactionFigures(TxnId(1, 0), "OPEN", 0, 10, topics=topics)
        http.broker.coordinators.each[1].found = [with_many]
        shown = await http.ask("/slowTransactions/0?coordinatorId=1")
        assert list(shown["(1,0)"]["producedPartitions"]) == topics[: coordinators.PARTICIPANTS_MAX]
        assert list((await http.ask("/transactionMetadata/1/0"))["producedPartitions"]) == topics

    serving(body)


def test_the_number_of_coordinators_only_grows(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        path = "/transactionCoordinator/replicas"
        assert await http.send("POST", path, 3) == (204, "")
        assert found.grown == [3]
        for count in (0, 1, 2):
            reason = await http.reason(406, "POST", path, count)
            assert reason.startswith("Number of transaction coordinators should be more than the current")
        assert "at most 256" in await http.reason(412, "POST", path, 257)
        await http.reason(400, "POST", path, {"replicas": 5})
        assert found.grown == [3]

    serving(body)


def test_a_call_about_another_brokers_coordinator_is_redirected(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = with_two(http)
        http.broker.cluster = FakeCluster()
        for method, path in (
            ("GET", "coordinatorStats?coordinatorId=1"),
            ("GET", "coordinatorInternalStats/1"),
            ("GET", "transactionMetadata/1/0"),
            ("GET", "slowTransactions/5?coordinatorId=1"),
            ("POST", "abortTransaction/1/0"),
        ):
            assert (await http.send(method, f"/{path}"))[0] == 307, path
        wanted = "persistent://pulsar/system/transaction_coordinator_assign-partition-1"
        assert set(http.broker.cluster.asked) == {wanted}
        assert found.loads == []

    serving(body)
