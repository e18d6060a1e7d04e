"""One simulated run: brokers with coordinators and topics over bookies, workers, faults, and the history.

In the end everything heals, every transaction has to end by itself, and all topics are loaded anew from
storage.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from dataclasses import replace
from typing import Final

from magnetar.common.errors import MagnetarError, MetadataError, StorageError
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.sim.process import SimProcess

from tests.simulation.quorum.cluster import ClientNode, Cluster
from tests.transactions.checker import check
from tests.transactions.history import Answer, History, Recorder
from tests.transactions.sim_broker import Owners, SimBroker, coordinator_party
from tests.transactions.sim_calls import Address, Caller
from tests.transactions.sim_coordinator import GRACE_S
from tests.transactions.sim_nemesis import BrokerNemesis
from tests.transactions.sim_storage import RemoteStore, open_shared_log
from tests.transactions.sim_topic import SimTopic
from tests.transactions.sim_workers import TTL_S, Client, Reader, Stage, Worker

IN, OUT = TOPICS = tuple(f"persistent://public/default/{name}" for name in ("in", "out"))
SHARED: Final = Stage(IN, "shared", (OUT,))
ORDERED: Final = Stage(OUT, "ordered", (IN,), cumulative=True)
"""Its outputs are inputs of the other stage."""
STAGES: Final = ((SHARED, SHARED), (SHARED, SHARED), (SHARED, ORDERED))
"""Workers of a run, by its seed."""
SUBSCRIPTIONS: Final = ((IN, "shared"), (OUT, "ordered"))
BROKERS: Final = ("n0", "n1")
BATCHES: Final = (1, 3, 1)
"""Messages of each entry that is there at the beginning."""
TRANSACTIONS_OF_A_WORKER: Final = 2
WORK_S: Final = 1.5
"""Longest time that workers have before the faults end."""
MARK_INTERVAL_MS: Final = 200
"""Bookies mark their progress seldom, because idle time would be the most expensive part of a run."""
ENDS_WITHIN_S: Final = 20.0
LOADED_WITHIN_S: Final = 20.0


class TransactionWorkload:
    """One run over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Brokers use the cluster's bookies, or one shared log where it has none."""
        self.recorder = Recorder(cluster.loop.time)
        self.rng = random.Random(f"transactions {cluster.seed}")
        self.brokers: dict[str, SimBroker] = {}
        self._cluster = cluster
        self._owners = Owners()
        self.nemesis: BrokerNemesis | None = None
        self._over = False
        self._lives = 0
        self._log: LocalLedgerStore | None = None
        self._append_max_s = self.rng.choice((0.0005, 0.002, 0.01))
        self._coordinators = 1 + cluster.seed % 2
        self._redelivered_after_s = self.rng.choice((0.0, 0.03, 0.3))
        self._stages = STAGES[cluster.seed % len(STAGES)]
        cluster.core_config = replace(cluster.core_config, mark_interval_ms=MARK_INTERVAL_MS)

    @property
    def owners(self) -> Owners:
        return self._owners

    @property
    def history(self) -> History:
        return self.recorder.history

    async def run(self) -> None:
        """Everything, from the first bookie's start to the verdict."""
        cluster, rng = self._cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        if cluster.bookies:
            await asyncio.sleep(0.1)
        else:
            self._log = await open_shared_log(cluster)
        for name in BROKERS:
            await self.start_broker(name)
        parties = [*TOPICS, *(coordinator_party(number) for number in range(self._coordinators))]
        self._owners.of.update({party: rng.choice(BROKERS) for party in parties})
        clients = await cluster.client("clients")
        await clients.process.spawn(self._open(self._client("opening", clients.process)))
        nemesis = self.nemesis = BrokerNemesis(cluster, self)
        for broker in self.brokers.values():
            broker.on_call = nemesis.called
        workers, readers = self._begin_work(clients.process)
        trouble = asyncio.ensure_future(nemesis.run())
        await asyncio.wait(workers, timeout=WORK_S)
        nemesis.stop()
        await trouble
        for name in BROKERS:
            if name not in self.brokers:
                await self.start_broker(name)
        self.recorder.note("quiet")
        self._over = True
        await asyncio.wait([*workers, *readers], timeout=ENDS_WITHIN_S)
        await self._wait_for_ends()
        self.recorder.note("clock error", seconds=nemesis.clock_error_s)
        for broker in list(self.brokers.values()):
            broker.process.kill()
        await self._read_everything()
        if cluster.bookies:
            cluster.checker.raise_broken()
        broken = check(self.history)
        assert not broken, "\n".join(broken)

    # Brokers

    async def start_broker(self, name: str) -> None:
        """Starts a life of a broker, which may die before it serves."""
        self._lives += 1
        node = await self._node(name)
        address = Address(name, self._lives)
        broker = SimBroker(self._cluster, node, self._owners, self.recorder, address)
        broker.redelivered_after_s = self._redelivered_after_s
        self.brokers[name] = broker
        self._owners.lives[name] = address
        node.process.on_death(lambda: self._died(broker))
        self._cluster.network.listen(node.process, broker)
        if self.nemesis is not None:
            broker.on_call = self.nemesis.called

    async def _node(self, name: str) -> ClientNode:
        node = await self._cluster.client(name)
        if self._log is not None:
            node.store = RemoteStore(self._log, node.process, self._cluster.rng, self._append_max_s)
        return node

    def _died(self, broker: SimBroker) -> None:
        if self.brokers.get(broker.address.name) is broker:
            del self.brokers[broker.address.name]
            self._owners.lives.pop(broker.address.name, None)
        self._cluster.clients.remove(broker.node)

    # Clients

    def _client(self, name: str, process: SimProcess) -> Client:
        caller = Caller(self._cluster.network, process, name)
        return Client(name, caller, self._owners, self.recorder, random.Random(self.rng.getrandbits(64)))

    async def _open(self, client: Client) -> None:
        """Publishes the inputs, some of them as a batch."""
        names = (f"i{number}" for number in itertools.count())
        for count in BATCHES:
            batch = list(itertools.islice(names, count))
            calls = [
                self.recorder.begin("send", client.name, topic=IN, message=name, txn=None) for name in batch
            ]
            fields = {"topic": IN, "names": batch, "txn": None}
            positions = await client.caller.call(self._owners.address(IN), "Send", 30.0, **fields)
            for call, position in zip(calls, positions, strict=True):
                self.recorder.answer(call, Answer.OK, position=position)

    def _begin_work(self, process: SimProcess) -> tuple[list[asyncio.Task[None]], ...]:
        """Starts workers and readers."""
        workers, readers = [], []
        for number, stage in enumerate(self._stages):
            client = self._client(f"w{number}", process)
            worker = Worker(client, stage, self._coordinators, self._is_over, TRANSACTIONS_OF_A_WORKER)
            workers.append(process.spawn(worker.run()))
        for topic in TOPICS:
            client = self._client(f"reader of {topic}", process)
            readers.append(process.spawn(Reader(client, topic, self._is_over).run()))
        return workers, readers

    def _is_over(self) -> bool:
        return self._over

    # The end

    async def _wait_for_ends(self) -> None:
        """Every transaction ends by itself: by its timeout, or because its decision is carried out."""
        loop = self._cluster.loop
        deadline = loop.time() + ENDS_WITHIN_S + GRACE_S + TTL_S
        while self._unfinished() and loop.time() < deadline:
            for number in range(self._coordinators):
                broker = self.brokers[self._owners.of[coordinator_party(number)]]
                broker.process.spawn(_loaded(broker, number))
            await asyncio.sleep(0.1)
        for party, txn in self._unfinished():
            self.recorder.note("unfinished", party=party, txn=list(txn))

    def _unfinished(self) -> list[tuple[str, tuple[int, int]]]:
        found: list[tuple[str, tuple[int, int]]] = []
        for number in range(self._coordinators):
            party = coordinator_party(number)
            coordinator = self.brokers[self._owners.of[party]].coordinators.get(number)
            if coordinator is None:
                found.append((party, (number, -1)))
            else:
                found += [(party, (number, each.number)) for each in coordinator.transactions()]
        for name in TOPICS:
            broker = self.brokers[self._owners.of[name]]
            topic = broker.topics.get(name)
            if topic is not None and broker.serves(topic) and topic.ledger.transactions is not None:
                found += [(name, (txn.most, txn.least)) for txn in topic.ledger.transactions.open]
        return found

    async def _read_everything(self) -> None:
        node = await self._node("last")
        broker = SimBroker(self._cluster, node, self._owners, self.recorder, Address("last", 0))
        await asyncio.wait_for(node.process.spawn(self._read_with(broker)), LOADED_WITHIN_S)

    async def _read_with(self, broker: SimBroker) -> None:
        for name in TOPICS:
            topic = await self._loaded_anew(broker, name)
            limit, last = topic.ledger.read_limit(), topic.ledger.last_confirmed
            for txn in topic.transactions.open:
                self.recorder.note("unfinished", party=f"{name} loaded anew", txn=list(txn))
            assert topic.transactions.open or limit == last, f"{name} may be read up to {limit} of {last}"
            messages = await topic.everything()
            self.recorder.note("content", topic=name, messages=messages)
            for source, subscription in SUBSCRIPTIONS:
                if source == name:
                    left = await topic.left(subscription)
                    self.recorder.note("left", topic=name, subscription=subscription, messages=left)

    async def _loaded_anew(self, broker: SimBroker, name: str) -> SimTopic:
        """Loads a topic; one that no broker loaded may be missing, and is empty (seed 8880)."""
        create = name not in self._owners.loaded
        while True:
            try:
                return await SimTopic.load(broker.ctx, name, self._cluster.loop.time, create=create)
            except (StorageError, MetadataError):
                await asyncio.sleep(0.05)


async def _loaded(broker: SimBroker, number: int) -> None:
    with suppress(MagnetarError):
        await broker.coordinator(number)
