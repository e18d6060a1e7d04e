"""What a broker answers to jobs, over simulated storage and metadata, without sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.job_calls import JobCalls
from magnetar.broker.offload.ledger_messages import BookieAddress
from magnetar.broker.offload.topic_owners import SoleOwner, TopicOwners
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import (
    BeginRequest,
    CompleteRequest,
    Ledger,
    ReadRequest,
    WantedRequest,
    WantRequest,
)
from magnetar.ledger.bookie_protocol.record_stream import decode_records
from magnetar.ledger.ledger_store import LedgerRef

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends
from tests.unit.ledger.managed_ledger.harness import until

LOCATION = "file:///objects"
A, B = b"a" * 16, b"b" * 16
SHA = b"s" * 32
STALE_MS = 60_000


class Elsewhere:
    """Every topic is another broker's."""

    async def elsewhere(self, topic: TopicName) -> str:
        return "other:6750"


@dataclass
class Jobs:
    """A broker's topics, and what it does for jobs."""

    made: Topics
    work: JobCalls
    config: BrokerConfig

    def working_for(self, owners: TopicOwners, bookie_address: BookieAddress | None = None) -> JobCalls:
        """The same with other owners or bookies."""
        made = self.made
        return JobCalls(
            made.ledgers,
            made.registry,
            PolicyStore(self.config, made.process.metadata, KEYS),
            made.schemas,
            owners,
            bookie_address=bookie_address,
            stale_after_ms=lambda: STALE_MS,
        )

    async def load(self, name: str) -> PersistentTopic:
        topic = await self.made.load(name)
        assert isinstance(topic, PersistentTopic)
        return topic

    async def publish(self, name: str, *lots: int) -> list[int]:
        """As many entries in each of as many ledgers; returns the ids of these. The last one stays open."""
        topic = await self.load(name)
        await topic.subscriptions.create("keeps")
        ids: list[int] = []
        for count in lots:
            if ids:
                topic.ledger.roll()
                await until(lambda: self._rolled(topic))
            peer = ListeningPeer()
            producer = await producer_of(topic, peer)
            for number in range(count):
                topic.publishing.publish(producer, sends(b"%s/%d/%d" % (name.encode(), len(ids), number)))
            await until(lambda peer=peer, count=count: len(peer.commands) >= count)
            topic.producers.remove(producer)
            ids.append(topic.ledger.spans.spans[-1].ref.id)
        return ids

    def _rolled(self, topic: PersistentTopic) -> bool:
        return topic.ledger.spans.spans[-1].closed

    async def closed(self, name: str, *lots: int) -> list[Ledger]:
        """Closed ledgers with as many entries, wanted."""
        await self.publish(name, *lots, 1)
        return list((await self.work.want(WantRequest(topic=name, location=LOCATION))).ledgers)

    async def begin(self, ledger: Ledger, attempt: bytes = A) -> Ledger:
        request = BeginRequest(
            topic=ledger.topic, creation_id=ledger.creation_id, ledger_id=ledger.ledger_id, attempt=attempt
        )
        return (await self.work.begin(request)).ledger

    async def complete(self, ledger: Ledger, attempt: bytes = A, *, entries: int | None = None) -> Ledger:
        found = ledger.entries if entries is None else entries
        request = CompleteRequest(
            topic=ledger.topic,
            creation_id=ledger.creation_id,
            ledger_id=ledger.ledger_id,
            attempt=attempt,
            entries=found,
            rows=found,
            object_bytes=10,
            manifest_sha256=SHA,
        )
        return (await self.work.complete(request)).ledger

    async def wanted(self, *topics: str, most: int = 0) -> list[int]:
        response = await self.work.wanted(WantedRequest(topics=topics, most=most))
        return [ledger.ledger_id for ledger in response.ledgers]


async def read(
    work: JobCalls, ledger: Ledger, first: int, last: int, *, transactions: bool = False
) -> list[bytes]:
    """Entries as a job gets them."""
    request = ReadRequest(
        topic=ledger.topic,
        ledger_id=ledger.ledger_id,
        ledger_key=ledger.ledger_key,
        first_entry_id=first,
        last_entry_id=last,
        transactions=transactions,
    )
    ref = LedgerRef(ledger.ledger_id, ledger.ledger_key)
    return [
        entry
        async for part in work.read(request)
        for run in decode_records(part, ref)
        for entry in run.entries
    ]


def entries_of(name: str, lot: int, numbers: Sequence[int]) -> list[bytes]:
    """What `Jobs.publish` has published."""
    return [b"%s/%d/%d" % (name.encode(), lot, number) for number in numbers]


def with_jobs(
    scenario: Callable[[Jobs], Awaitable[None]], location: str = "", *, threshold_bytes: int = -1
) -> None:
    """Run a scenario in a fresh world; `location` and `threshold_bytes` are the configured ones."""
    config = BrokerConfig(offload=OffloadConfig(location=location, threshold_bytes=threshold_bytes))

    async def run(made: Topics) -> None:
        jobs = Jobs(made, None, config)  # type: ignore[arg-type]
        jobs.work = jobs.working_for(SoleOwner())
        await scenario(jobs)

    in_a_broker(run, config)
