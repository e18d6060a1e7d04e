"""A simulated broker: coordinators and topics in one process, and the calls it answers.

The map of owners belongs to the world and is a hint: a broker loads what the map gives it, and keeps what it
has until it loses it to the next owner.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.common.errors import MagnetarError, OwnershipLost, ServiceNotReady
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerConfig, ManagedLedgerContext
from magnetar.sim.loop import SimClock
from magnetar.sim.network import NetworkDown
from magnetar.sim.process import SimProcess

from tests.simulation.quorum.cluster import KEYS, ClientNode, Cluster
from tests.transactions.history import Recorder
from tests.transactions.sim_calls import Address, Caller, CallFailed, answer, failure
from tests.transactions.sim_coordinator import take_over
from tests.transactions.sim_messages import positions_of
from tests.transactions.sim_topic import SimTopic

T = TypeVar("T")

END_TIMEOUT_S: Final = 0.4

CONFIG: Final = ManagedLedgerConfig(
    ledger_entries_max=12,
    ledger_age_min_minutes=0,
    cursor_flush_interval_s=0.02,
    cursor_ledger_entries_max=9,
    cursor_ledger_bytes_min=200,
    cache_megabytes=1,
)


@dataclass(slots=True)
class Owners:
    """Which broker has which party (a topic, or a coordinator by its number), and their present lives."""

    of: dict[str, str] = field(default_factory=dict)
    lives: dict[str, Address] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    """By party: number of its moves."""
    loaded: set[str] = field(default_factory=set)
    """Topics that a broker loaded, which therefore exist from then on."""

    def move(self, party: str, broker: str) -> None:
        """Gives a party to a broker, which has to load it, even if it had it before."""
        if self.of[party] != broker:
            self.of[party] = broker
            self.versions[party] += 1

    def address(self, party: str) -> Address:
        """Raises CallFailed when its owner is away."""
        found = self.lives.get(self.of[party])
        if found is None:
            raise CallFailed("", f"{self.of[party]} is away")
        return found


def coordinator_party(number: int) -> str:
    return f"coordinator {number}"


class SimBroker:
    """One life of a broker."""

    def __init__(
        self, cluster: Cluster, node: ClientNode, owners: Owners, recorder: Recorder, address: Address
    ) -> None:
        self.address = address
        self.node = node
        self.topics: dict[str, SimTopic] = {}
        self.coordinators: dict[int, Coordinator] = {}
        self.on_call: Callable[[SimBroker, str], None] | None = None
        """Called with each call's method before it is answered."""
        self.redelivered_after_s = 0.3
        """Seconds after which topics that it loads deliver an entry again."""
        shape = cluster.shape
        config = replace(
            CONFIG,
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
        )
        self.clock = SimClock(cluster.loop)
        self.ctx = ManagedLedgerContext(
            node.store, node.metadata, KEYS, self.clock, config, EntryCache(1 << 20)
        )
        self._owners = owners
        self._recorder = recorder
        self._clock = cluster.loop.time
        self._caller = Caller(cluster.network, node.process, f"life {address.life}")
        self._loading: dict[str, asyncio.Task[Any]] = {}
        self._versions: dict[str, int] = {}
        """Versions of parties when they were loaded."""
        self._seen: set[str] = set()
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "New": self._new,
            "AddPartition": self._add_partition,
            "AddSubscription": self._add_subscription,
            "End": self._end,
            "EndOnTopic": self._end_on_topic,
            "Send": self._send,
            "Receive": self._receive,
            "Ack": self._ack,
            "GiveBack": self._give_back,
            "Read": self._read,
        }

    @property
    def process(self) -> SimProcess:
        return self.node.process

    # Network

    def open_stream(self, send: Callable[[bytes], None]) -> Any:
        raise NetworkDown("a broker has no streams")

    async def call(self, method: str, request: bytes) -> Sequence[bytes]:
        """Answers a call; a request that arrives twice, or was meant for another life, is dropped."""
        fields = json.loads(request)
        call_id, life = fields.pop("id"), fields.pop("life")
        if life != self.address.life or call_id in self._seen:
            raise NetworkDown("meant for another connection")
        self._seen.add(call_id)
        if self.on_call is not None:
            self.on_call(self, method)
        try:
            return [answer(await self._methods[method](**fields))]
        except MagnetarError as error:
            return [failure(error)]

    # Parties

    async def topic(self, name: str) -> SimTopic:
        """Returns a topic that this broker owns, loaded. Raises ServiceNotReady."""
        found = self.topics.get(name)
        if found is not None and not found.lost:
            if not self._is_outdated(name):
                return found
            self.topics.pop(name).ledger.lose(OwnershipLost(f"{name} was moved"))
        return await self._load(name, self._load_topic(name))

    async def coordinator(self, number: int) -> Coordinator:
        """Returns a coordinator that this broker owns, loaded. Raises ServiceNotReady."""
        party = coordinator_party(number)
        found = self.coordinators.get(number)
        if found is not None and not self._is_outdated(party):
            return found
        if found is not None:
            self.coordinators.pop(number).abandon(f"{party} was moved")
        return await self._load(party, self._load_coordinator(number))

    def serves(self, topic: SimTopic) -> bool:
        """Returns whether a loaded topic is this broker's, as far as is known."""
        return not topic.lost and not self._is_outdated(topic.name)

    def _is_outdated(self, party: str) -> bool:
        """Returns whether the party moved away, and perhaps back, since it was loaded."""
        return self._versions.get(party) != self._owners.versions[party]

    async def _load(self, party: str, loading: Coroutine[Any, Any, T]) -> T:
        if self._owners.of[party] != self.address.name:
            loading.close()
            raise ServiceNotReady(f"{party} belongs to {self._owners.of[party]}")
        task: asyncio.Task[T] | None = self._loading.get(party)
        if task is None:
            self._versions[party] = self._owners.versions[party]
            task = self._loading[party] = asyncio.get_running_loop().create_task(loading)
            task.add_done_callback(lambda _: self._loading.pop(party, None))
        else:
            loading.close()
        found = await asyncio.shield(task)
        if self._is_outdated(party):
            raise ServiceNotReady(f"{party} was moved while it was loaded")
        return found

    async def _load_topic(self, name: str) -> SimTopic:
        self.topics[name] = found = await SimTopic.load(self.ctx, name, self._clock, create=True)
        self._owners.loaded.add(name)
        found.redelivered_after_s = self.redelivered_after_s
        return found

    async def _load_coordinator(self, number: int) -> Coordinator:
        def lost() -> None:
            self.coordinators.pop(number, None)

        self.coordinators[number] = found = await take_over(self.ctx, number, self, lost)
        return found

    async def hand_over(self, party: str) -> None:
        """Closes a topic or coordinator in order, for its next owner."""
        if (topic := self.topics.pop(party, None)) is not None:
            await topic.ledger.close()
        for number in [each for each in self.coordinators if coordinator_party(each) == party]:
            await self.coordinators.pop(number).close()

    # Participants: what a coordinator asks of topics

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        """Ends transactions in topics, wherever they are."""
        return list(await asyncio.gather(*map(self._end_one, ends)))

    async def _end_one(self, end: TransactionEnd) -> EndResult:
        self._recorder.note("watermark", coordinator=end.txn.most, number=end.low_watermark)
        commit = end.action is Action.COMMIT
        try:
            to = self._owners.address(end.topic)
            await self._caller.call(
                to,
                "EndOnTopic",
                END_TIMEOUT_S,
                topic=end.topic,
                txn=list(end.txn),
                commit=commit,
                low_watermark=end.low_watermark,
            )
        except CallFailed as error:
            refused = error.name == "InvalidTxnStatus"
            return EndResult(EndOutcome.REFUSED if refused else EndOutcome.RETRY, "", str(error))
        return EndResult(EndOutcome.DONE)

    async def _end_on_topic(self, topic: str, txn: list[int], commit: bool, low_watermark: int) -> None:
        found = await self.topic(topic)
        await found.end(TxnId(*txn), Action.COMMIT if commit else Action.ABORT, low_watermark)
        self._recorder.note("outcome", by=f"{topic} on {self.address}", txn=txn, commit=commit)

    # Calls of clients

    async def _new(self, coordinator: int, ttl_ms: int) -> list[int]:
        return list(await (await self.coordinator(coordinator)).begin(ttl_ms, ""))

    async def _add_partition(self, txn: list[int], topics: list[str]) -> None:
        await (await self.coordinator(txn[0])).add_partitions(TxnId(*txn), topics, "")

    async def _add_subscription(self, txn: list[int], topic: str, subscription: str) -> None:
        found = await self.coordinator(txn[0])
        await found.add_subscriptions(TxnId(*txn), [(topic, subscription)], "")

    async def _end(self, txn: list[int], commit: bool) -> None:
        found = await self.coordinator(txn[0])
        await found.end(TxnId(*txn), Action.COMMIT if commit else Action.ABORT, "")

    async def _send(self, topic: str, names: list[str], txn: list[int] | None) -> Any:
        found = await self.topic(topic)
        position = await found.publish(names, None if txn is None else TxnId(*txn))
        return positions_of(position, len(names))

    async def _receive(self, topic: str, subscription: str, consumer: str, most: int, ordered: bool) -> Any:
        return await (await self.topic(topic)).receive(subscription, consumer, most, ordered=ordered)

    async def _ack(
        self,
        topic: str,
        subscription: str,
        txn: list[int] | None,
        entries: list[dict[str, Any]],
        cumulative: bool,
    ) -> None:
        found = await self.topic(topic)
        owner = None if txn is None else TxnId(*txn)
        await found.acknowledge(subscription, owner, entries, cumulative=cumulative)

    async def _give_back(self, topic: str, subscription: str, consumer: str) -> None:
        (await self.topic(topic)).give_back(subscription, consumer)

    async def _read(self, topic: str, after: list[int] | None) -> Any:
        found = await self.topic(topic)
        limit, last = found.ledger.read_limit(), found.ledger.last_confirmed
        entries = await found.read(EARLIEST if after is None else Position(*after))
        messages = [
            list(zip(entry.names, positions_of(entry.position, entry.size), strict=True)) for entry in entries
        ]
        return {"limit": list(limit), "last": list(last), "entries": messages}
