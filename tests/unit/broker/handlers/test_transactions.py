"""Commands of transactions: routed to the coordinator, answered in their own form, bounded by roles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from magnetar.broker.handlers import transactions as module
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.routes import route
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    NotAllowed,
    OwnershipLost,
    ServiceNotReady,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.principal import Principal
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.topics.world import ListeningPeer

TOPIC = "persistent://public/default/t"
DONE = EndResult(EndOutcome.DONE)
IDS = {"txnid_most_bits": 3, "txnid_least_bits": 7}
TXN = TxnId(3, 7)


@dataclass
class Coordinator:
    """Writes down what it is asked; begins transactions from 0."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    failure: MagnetarError | None = None
    low_watermark: int = -1

    async def begin(self, ttl_ms: int, owner: str) -> TxnId:
        self._note("begin", ttl_ms, owner)
        return TxnId(3, 0)

    async def add_partitions(self, txn: TxnId, topics: Sequence[str], caller: str | None) -> None:
        self._note("partitions", txn, topics, caller)

    async def add_subscriptions(
        self, txn: TxnId, subscriptions: Sequence[tuple[str, str]], caller: str | None
    ) -> None:
        self._note("subscriptions", txn, subscriptions, caller)

    async def end(self, txn: TxnId, action: Action, caller: str | None) -> None:
        self._note("end", txn, action, caller)

    def _note(self, *what: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked.append(what)


@dataclass
class Coordinators:
    """Has coordinator 3; it is the topics, too."""

    three: Coordinator = field(default_factory=Coordinator)
    connected: list[int] = field(default_factory=list)
    ended: list[TransactionEnd] = field(default_factory=list)
    result: EndResult = DONE

    async def connect(self, tc_id: int) -> None:
        if tc_id != 3:
            raise ServiceNotReady(f"coordinator {tc_id} is elsewhere")
        self.connected.append(tc_id)

    async def of(self, tc_id: int) -> Coordinator:
        await self.connect(tc_id)
        return self.three

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        self.ended += ends
        return [self.result] * len(ends)


@dataclass
class World:
    """A client that is connected to a broker with coordinator 3."""

    coordinators: Coordinators = field(default_factory=Coordinators)
    peer: ListeningPeer = field(default_factory=ListeningPeer)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        services = bare_services(None)

        @dataclass
        class Transactions:
            coordinators: Coordinators | None
            topics: Coordinators

        services.transactions = cast(Any, Transactions(self.coordinators, self.coordinators))
        self.client = Client(services, cast(Any, self.peer), connected=True)

    def of_role(self, role: str | None, *, super_users: frozenset[str] = frozenset()) -> World:
        """The same with authorization on, in which every role may use every topic."""
        config = AuthorizationConfig(enabled=True, super_user_roles=tuple(super_users))
        self.client.services.authorizer = _Permissive(config, cast(Any, None), Keys("standalone"))
        self.client.principal = Principal(role)
        return self

    def ask(self, name: str, **fields: Any) -> Any:
        """Sends a command; returns its answer. Raises what the connection would answer as an error."""
        command = BaseCommand(type=BaseCommand.Type.Value(_type_of(name)))
        getattr(command, name).MergeFrom(type(getattr(command, name))(request_id=9, **fields))

        async def served() -> None:
            rest = route(self.client, command)
            if rest is not None:
                await rest

        asyncio.run(served())
        return self.peer.commands[-1]


class _Permissive(Authorizer):
    async def check_produce(self, principal: Principal | None, topic: Any) -> None:
        pass

    async def check_consume(self, principal: Principal | None, topic: Any, subscription: str = "") -> None:
        pass


def _type_of(name: str) -> str:
    (number,) = (each.number for each in BaseCommand.DESCRIPTOR.fields if each.name == name)
    return BaseCommand.Type.Name(cast(Any, number))


def test_a_client_connects_to_a_coordinator_of_this_broker() -> None:
    world = World()
    answer = world.ask("tcClientConnectRequest", tc_id=3)
    assert answer.tcClientConnectResponse.request_id == 9
    assert not answer.tcClientConnectResponse.HasField("error")
    assert world.coordinators.connected == [3]


def test_a_coordinator_of_another_broker_is_not_ready() -> None:
    with pytest.raises(ServiceNotReady):
        World().ask("tcClientConnectRequest", tc_id=4)


def test_the_go_client_gets_a_plain_error_when_it_cannot_connect() -> None:
    world = World()
    world.client.client_version = "Pulsar-Go-0.19.0"
    answer = world.ask("tcClientConnectRequest", tc_id=4)
    assert (answer.error.request_id, answer.error.error) == (9, ServerError.ServiceNotReady)


def test_a_transaction_begins_with_its_time_to_live_in_milliseconds() -> None:
    world = World()
    answer = world.ask("newTxn", tc_id=3, txn_ttl_seconds=60_000).newTxnResponse
    assert world.coordinators.three.asked == [("begin", 60_000, "")]
    assert answer.HasField("txnid_least_bits")
    assert (answer.txnid_most_bits, answer.txnid_least_bits) == (3, 0)


def test_a_time_to_live_beyond_all_measure_is_cut() -> None:
    world = World()
    world.ask("newTxn", tc_id=3, txn_ttl_seconds=2**64 - 1)
    assert world.coordinators.three.asked == [("begin", module.TTL_MS_MAX, "")]


def test_topics_and_subscriptions_are_registered_by_full_name() -> None:
    world = World()
    answer = world.ask("addPartitionToTxn", partitions=["t", "a/b/c"], **IDS).addPartitionToTxnResponse
    assert (answer.request_id, answer.txnid_most_bits, answer.txnid_least_bits) == (9, 3, 7)
    added = [{"topic": "t", "subscription": "s"}]
    answer = world.ask("addSubscriptionToTxn", subscription=added, **IDS).addSubscriptionToTxnResponse
    assert (answer.txnid_most_bits, answer.txnid_least_bits) == (3, 7)
    assert world.coordinators.three.asked == [
        ("partitions", TXN, [TOPIC, "persistent://a/b/c"], ""),
        ("subscriptions", TXN, [(TOPIC, "s")], ""),
    ]


@pytest.mark.parametrize(
    "topic", ["non-persistent://public/default/t", "persistent://pulsar/system/t"], ids=["volatile", "system"]
)
def test_a_topic_that_cannot_take_part_is_refused_before_anything_is_sent_to_it(topic: str) -> None:
    world = World()
    with pytest.raises(NotAllowed):
        world.ask("addPartitionToTxn", partitions=[topic], **IDS)
    with pytest.raises(NotAllowed):
        world.ask("addSubscriptionToTxn", subscription=[{"topic": topic, "subscription": "s"}], **IDS)
    assert world.coordinators.three.asked == []


@pytest.mark.parametrize(("code", "action"), [("COMMIT", Action.COMMIT), ("ABORT", Action.ABORT)])
def test_an_end_is_answered_with_the_ids(code: str, action: Action) -> None:
    world = World()
    answer = world.ask("endTxn", txn_action=code, **IDS).endTxnResponse
    assert (answer.request_id, answer.txnid_most_bits, answer.txnid_least_bits) == (9, 3, 7)
    assert world.coordinators.three.asked == [("end", TXN, action, "")]


def test_an_end_without_an_action_is_refused() -> None:
    world = World()
    with pytest.raises(NotAllowed):
        world.ask("endTxn", **IDS)
    assert world.coordinators.three.asked == []


@pytest.mark.parametrize("error", [ServiceNotReady("moved"), OwnershipLost("fenced")])
def test_what_may_pass_is_the_one_error_after_which_clients_look_the_coordinator_up(
    error: MagnetarError,
) -> None:
    world = World()
    world.coordinators.three.failure = error
    with pytest.raises(TransactionCoordinatorNotFound, match=str(error)):
        world.ask("endTxn", txn_action="COMMIT", **IDS)
    assert world.peer.connected


@pytest.mark.parametrize("error", [InvalidTxnStatus("x"), TransactionNotFound("x"), TooManyTransactions("x")])
def test_what_the_user_has_to_know_stays_as_it_is(error: MagnetarError) -> None:
    world = World()
    world.coordinators.three.failure = error
    with pytest.raises(type(error)):
        world.ask("newTxn", tc_id=3)


def test_the_go_client_is_disconnected_to_look_the_coordinator_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_DELAY_S", 0.0)
    world = World()
    world.client.client_version = "Pulsar-Go-0.19.0"
    with pytest.raises(TransactionCoordinatorNotFound):
        world.ask("newTxn", tc_id=4)
    assert not world.peer.connected


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("tcClientConnectRequest", {"tc_id": 3}),
        ("newTxn", {"tc_id": 3}),
        ("addPartitionToTxn", {"partitions": [TOPIC]}),
        ("addSubscriptionToTxn", {}),
        ("endTxn", {"txn_action": "COMMIT"}),
        ("endTxnOnPartition", {"topic": TOPIC, "txn_action": "COMMIT"}),
        ("endTxnOnSubscription", {"subscription": {"topic": TOPIC, "subscription": "s"}}),
    ],
)
def test_with_transactions_off_every_command_is_answered_with_a_plain_error(
    name: str, fields: dict[str, Any]
) -> None:
    world = World()
    world.client.services.transactions.coordinators = None
    answer = world.ask(name, **fields).error
    assert (answer.request_id, answer.error) == (9, ServerError.NotAllowedError)
    assert world.coordinators.ended == []


def test_the_role_of_a_client_owns_its_transactions_and_a_super_user_may_act_on_all() -> None:
    world = World().of_role("app", super_users=frozenset({"admin"}))
    world.ask("newTxn", tc_id=3)
    world.ask("endTxn", txn_action="ABORT", **IDS)
    world.of_role("admin", super_users=frozenset({"admin"}))
    world.ask("endTxn", txn_action="ABORT", **IDS)
    assert world.coordinators.three.asked == [
        ("begin", 0, "app"),
        ("end", TXN, Action.ABORT, "app"),
        ("end", TXN, Action.ABORT, None),
    ]


def test_behind_a_proxy_the_original_role_owns_the_transaction() -> None:
    world = World().of_role("proxy")
    world.client.principal = replace(Principal("proxy"), original="app")
    world.ask("newTxn", tc_id=3)
    assert world.coordinators.three.asked == [("begin", 0, "app")]


def test_a_topic_ends_a_transaction_for_a_super_user_only() -> None:
    world = World().of_role("app", super_users=frozenset({"admin"}))
    end = {"topic": "t", "txn_action": "COMMIT", **IDS}
    with pytest.raises(TransactionNotFound):
        world.ask("endTxnOnPartition", **end)
    assert world.coordinators.ended == []
    world.of_role("admin", super_users=frozenset({"admin"}))
    answer = world.ask("endTxnOnPartition", txnid_least_bits_of_low_watermark=5, **end)
    assert answer.endTxnOnPartitionResponse.txnid_least_bits == 7
    subscription = {"topic": "t", "subscription": "s"}
    answer = world.ask("endTxnOnSubscription", subscription=subscription, txn_action="ABORT", **IDS)
    assert answer.endTxnOnSubscriptionResponse.txnid_least_bits == 7
    assert world.coordinators.ended == [
        TransactionEnd(TXN, TOPIC, Action.COMMIT, 5),
        TransactionEnd(TXN, TOPIC, Action.ABORT, -1),
    ]


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (EndOutcome.GONE, None),
        (EndOutcome.NOT_MINE, ServiceNotReady),
        (EndOutcome.RETRY, ServiceNotReady),
        (EndOutcome.REFUSED, InvalidTxnStatus),
    ],
)
def test_a_missing_topic_is_a_success_and_another_owner_is_not(
    outcome: EndOutcome, error: type[MagnetarError] | None
) -> None:
    world = World()
    world.coordinators.result = EndResult(outcome)
    ask = {"topic": "t", "txn_action": "COMMIT", **IDS}
    if error is None:
        assert world.ask("endTxnOnPartition", **ask).endTxnOnPartitionResponse.request_id == 9
        return
    with pytest.raises(error):
        world.ask("endTxnOnPartition", **ask)
