from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from magnetar.broker.client_endings import EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import resolve
from magnetar.broker.read_pauses import ReadPauses
from magnetar.broker.topics.publish.access_modes import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
)
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import (
    EncryptionRequired,
    LogFailed,
    ProducerBlocked,
    ProducerBusy,
    ProducerFenced,
    ServiceNotReady,
    TopicTerminated,
)
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode

_numbers = itertools.count()


@dataclass(eq=False)
class Peer:
    """`dies` when it is asked for a sign of life."""

    connected: bool = True
    listener: str | None = None
    certificate: bytes | None = None
    protocol_version: int = 20
    dies: bool = False
    told: list[str] = field(default_factory=list)
    address: str = "client"
    writable: bool = True
    unwritable_s: float = 0.0
    read_pauses: ReadPauses = field(default_factory=ReadPauses)

    def write(self, data: bytes) -> None:
        command = pb.BaseCommand.FromString(data[8:])
        self.told.append(pb.BaseCommand.Type.Name(command.type))

    def write_parts(self, parts: list[bytes]) -> None: ...

    def publish_pending(self, byte_count: int) -> None: ...

    def pause_reading_for(self, seconds: float) -> None: ...

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False

    async def is_alive(self) -> bool:
        if self.dies:
            self.connected = False
        return self.connected


class FakeTopic:
    """A topic's producers over an epoch that takes its time.

    `durable` is waited for before an epoch is durable; `failing` is raised instead.
    """

    def __init__(self) -> None:
        policies = resolve(BrokerConfig(), Policies(), Policies())
        self.state = TopicState(TopicName.parse("t"), policies)
        self.producers = Producers(self.state, self, check_quota=self.check_quota)
        self.epoch = 0
        self.durable = asyncio.Event()
        self.durable.set()
        self.failing: Exception | None = None
        self.over_quota = False

    @property
    def topic_epoch(self) -> int:
        return self.epoch

    async def check_quota(self) -> None:
        if self.over_quota:
            raise ProducerBlocked("too much backlog")

    async def raise_topic_epoch(self, at_least: int) -> int:
        await self.durable.wait()
        if self.failing is not None:
            raise self.failing
        self.epoch = max(self.epoch + 1, at_least)
        return self.epoch


@dataclass(eq=False)
class Comer:
    """A producer on its way to a topic."""

    topic: FakeTopic
    producer: Producer
    task: asyncio.Task[None]
    waits: list[bool]

    @property
    def ready(self) -> bool:
        return self.task.done() and self.task.exception() is None

    def refused_with(self, kind: type[Exception]) -> bool:
        return self.task.done() and isinstance(self.task.exception(), kind)

    async def go(self) -> None:
        self.topic.producers.remove(self.producer)
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def come(
    topic: FakeTopic,
    mode: ProducerAccessMode.ValueType,
    *,
    name: str | None = None,
    epoch: int = 0,
    peer: Peer | None = None,
) -> Comer:
    producer = Producer(
        1,
        name or f"p{next(_numbers)}",
        0,
        peer or Peer(),
        {},
        b"",
        0,
        access_mode=mode,
        topic_epoch=epoch,
    )
    waits: list[bool] = []
    task = asyncio.create_task(topic.producers.add(producer, lambda: waits.append(True)))
    comer = Comer(topic, producer, task, waits)
    await settle()
    return comer


def scenario(test: Callable[[FakeTopic], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(FakeTopic())

    asyncio.run(run())


def told(comer: Comer) -> list[str]:
    return cast(Peer, comer.producer.peer).told


def test_shared_producers_join_and_leave_no_trace() -> None:
    async def run(topic: FakeTopic) -> None:
        first, second = await come(topic, SHARED, name="a"), await come(topic, SHARED, name="b")
        assert first.ready
        assert second.ready
        assert topic.producers.access is None
        assert topic.epoch == 0
        refused = await come(topic, SHARED, name="a")
        assert refused.refused_with(ProducerBusy)

    scenario(run)


def test_an_exclusive_producer_needs_a_free_topic_and_keeps_everybody_out() -> None:
    async def run(topic: FakeTopic) -> None:
        shared = await come(topic, SHARED)
        assert (await come(topic, EXCLUSIVE)).refused_with(ProducerFenced)
        await shared.go()
        holder = await come(topic, EXCLUSIVE)
        assert holder.ready
        assert holder.producer.topic_epoch == topic.epoch == 1
        assert (await come(topic, SHARED)).refused_with(ProducerBusy)
        assert (await come(topic, EXCLUSIVE)).refused_with(ProducerFenced)
        await holder.go()
        assert topic.producers.access is None
        assert (await come(topic, SHARED)).ready

    scenario(run)


def test_fencing_takes_the_topic_from_everybody() -> None:
    async def run(topic: FakeTopic) -> None:
        shared = [await come(topic, SHARED), await come(topic, SHARED)]
        waiting = await come(topic, WAIT_FOR_EXCLUSIVE)
        assert waiting.waits
        holder = await come(topic, EXCLUSIVE_WITH_FENCING)
        assert holder.ready
        assert waiting.refused_with(ProducerFenced)
        assert [told(each) for each in shared] == [["CLOSE_PRODUCER"], ["CLOSE_PRODUCER"]]
        assert all(each.producer.fenced for each in shared)
        assert list(topic.producers.values()) == [holder.producer]
        next_one = await come(topic, EXCLUSIVE_WITH_FENCING)
        assert told(holder) == ["CLOSE_PRODUCER"]
        assert next_one.producer.topic_epoch == 2

    scenario(run)


def test_who_waits_is_served_in_the_order_of_coming() -> None:
    async def run(topic: FakeTopic) -> None:
        shared = await come(topic, SHARED)
        queue = [await come(topic, WAIT_FOR_EXCLUSIVE) for _ in range(3)]
        assert topic.producers.waiting == 3
        assert (await come(topic, SHARED)).refused_with(ProducerBusy)
        await queue[1].go()
        assert queue[1].refused_with(ServiceNotReady)
        assert topic.producers.waiting == 2
        await shared.go()
        assert [queue[0].ready, queue[2].ready] == [True, False]
        await queue[0].go()
        assert queue[2].ready
        assert queue[2].producer.topic_epoch == 2

    scenario(run)


def test_a_free_topic_is_taken_without_waiting() -> None:
    async def run(topic: FakeTopic) -> None:
        comer = await come(topic, WAIT_FOR_EXCLUSIVE)
        assert comer.ready
        assert not comer.waits

    scenario(run)


def test_a_client_that_comes_back_has_the_topic_again_unless_another_had_it() -> None:
    async def run(topic: FakeTopic) -> None:
        first = await come(topic, EXCLUSIVE)
        await first.go()
        again = await come(topic, EXCLUSIVE, epoch=1)
        assert again.ready
        assert topic.epoch == 1, "taken back, not raised"
        await again.go()
        other = await come(topic, EXCLUSIVE)
        await other.go()
        for mode in (EXCLUSIVE, EXCLUSIVE_WITH_FENCING, WAIT_FOR_EXCLUSIVE):
            assert (await come(topic, mode, epoch=1)).refused_with(ProducerFenced)
        assert topic.producers.access is None
        higher = await come(topic, EXCLUSIVE, epoch=7)
        assert higher.ready
        assert (topic.epoch, higher.producer.topic_epoch) == (7, 7)

    scenario(run)


def test_a_stale_client_fences_nobody() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.epoch = 3
        shared = await come(topic, SHARED)
        assert (await come(topic, EXCLUSIVE_WITH_FENCING, epoch=2)).refused_with(ProducerFenced)
        assert told(shared) == []

    scenario(run)


def test_a_client_whose_epoch_passed_while_it_waited_is_fenced_and_the_next_one_served() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.epoch = 1
        shared = await come(topic, SHARED)
        stale, fresh = [await come(topic, WAIT_FOR_EXCLUSIVE, epoch=each) for each in (1, 0)]
        topic.epoch = 2
        await shared.go()
        assert stale.refused_with(ProducerFenced)
        assert fresh.ready

    scenario(run)


def test_nobody_is_ready_before_what_others_sent_is_confirmed_and_the_epoch_is_durable() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.durable.clear()
        before, fenced = await come(topic, SHARED), await come(topic, SHARED)
        before.producer.pending_runs = fenced.producer.pending_runs = 1
        await before.go()
        holder = await come(topic, EXCLUSIVE_WITH_FENCING)
        assert told(fenced) == ["CLOSE_PRODUCER"], "first fenced, then waited for"
        topic.durable.set()
        await settle()
        fenced.producer.settled()
        await settle()
        assert topic.epoch == 0, "one of them has something on its way"
        before.producer.settled()
        await settle()
        assert holder.ready
        assert topic.epoch == 1

    scenario(run)


def test_a_holder_that_is_fenced_before_its_epoch_is_durable_never_is_ready() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.durable.clear()
        early = await come(topic, EXCLUSIVE)
        late = await come(topic, EXCLUSIVE_WITH_FENCING)
        topic.durable.set()
        await settle()
        assert early.refused_with(ProducerFenced)
        assert late.ready
        assert list(topic.producers.values()) == [late.producer]

    scenario(run)


def test_a_holder_whose_epoch_cannot_be_written_gives_the_topic_to_the_next() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.durable.clear()
        first, second = await come(topic, EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        topic.failing = LogFailed("no")
        topic.durable.set()
        await settle()
        assert first.refused_with(LogFailed)
        assert second.refused_with(LogFailed)
        assert topic.producers.access is None

    scenario(run)


def test_a_client_that_goes_while_its_epoch_is_written_gives_the_topic_to_the_next() -> None:
    async def run(topic: FakeTopic) -> None:
        topic.durable.clear()
        first, second = await come(topic, EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        await first.go()
        topic.durable.set()
        await settle()
        assert not first.ready
        assert second.ready

    scenario(run)


def test_what_forbids_a_producer_forbids_one_that_waited_and_the_next_one_is_asked() -> None:
    async def run(topic: FakeTopic) -> None:
        holder = await come(topic, EXCLUSIVE)
        plain, encrypting = await come(topic, WAIT_FOR_EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        holder.producer.encrypts = encrypting.producer.encrypts = True
        topic.state.policies = replace(topic.state.policies, encryption_required=True)
        topic.producers.apply_policies()
        await holder.go()
        assert plain.refused_with(EncryptionRequired)
        assert encrypting.ready
        late = await come(topic, WAIT_FOR_EXCLUSIVE)
        assert late.refused_with(EncryptionRequired)

    scenario(run)


def test_a_producer_that_waited_is_kept_out_by_a_backlog_quota() -> None:
    async def run(topic: FakeTopic) -> None:
        holder, waiting = await come(topic, EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        topic.over_quota = True
        await holder.go()
        assert waiting.refused_with(ProducerBlocked)
        assert topic.producers.access is None
        assert topic.epoch == 1, "it never had the topic"
        assert (await come(topic, EXCLUSIVE)).refused_with(ProducerBlocked)

    scenario(run)


def test_a_producer_that_waited_does_not_get_a_topic_that_was_terminated() -> None:
    async def run(topic: FakeTopic) -> None:
        holder, waiting = await come(topic, EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        topic.state.terminated = True
        await holder.go()
        assert waiting.refused_with(TopicTerminated)

    scenario(run)


def test_a_dead_namesake_is_no_obstacle() -> None:
    async def run(topic: FakeTopic) -> None:
        await come(topic, EXCLUSIVE, name="a", peer=Peer(dies=True))
        again = await come(topic, EXCLUSIVE, name="a", epoch=1)
        assert again.ready
        assert topic.epoch == 1

    scenario(run)


def test_those_who_wait_are_sent_away_when_the_topic_closes_or_is_lost() -> None:
    async def run(topic: FakeTopic) -> None:
        holder, waiting = await come(topic, EXCLUSIVE), await come(topic, WAIT_FOR_EXCLUSIVE)
        topic.state.closing = True
        topic.producers.disconnect_all(EndCode.UNLOADED)
        await settle()
        assert waiting.refused_with(ServiceNotReady)
        assert told(holder) == ["CLOSE_PRODUCER"]

        lost = FakeTopic()
        holder, waiting = await come(lost, EXCLUSIVE), await come(lost, WAIT_FOR_EXCLUSIVE)
        holder.producer.pending_runs = 1
        lost.state.closing = True
        lost.producers.lose()
        await holder.producer.wait_persisted()
        await settle()
        assert waiting.refused_with(ServiceNotReady)

    scenario(run)


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING])
def test_a_closing_topic_takes_nobody(mode: ProducerAccessMode.ValueType) -> None:
    async def run(topic: FakeTopic) -> None:
        topic.state.closing = True
        assert (await come(topic, mode)).refused_with(ServiceNotReady)
        assert topic.producers.access is None

    scenario(run)


def test_a_client_that_goes_before_it_waits_does_not_wait() -> None:
    async def test(topic: FakeTopic) -> None:
        holder = await come(topic, EXCLUSIVE)
        probed = asyncio.Event()

        class SlowPeer(Peer):
            async def is_alive(self) -> bool:
                await probed.wait()
                return True

        holder.producer.peer = SlowPeer()
        late = await come(topic, WAIT_FOR_EXCLUSIVE, name=holder.producer.name)
        await late.go()
        probed.set()
        await settle()
        assert late.refused_with(ServiceNotReady)
        assert not late.waits
        await holder.go()
        assert topic.producers.access is None
        assert topic.epoch == 1, "nobody had the topic since"

    scenario(test)
