"""What an owner does by the clock: it hears of jobs, verifies, lets go, waits after failures, wants again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.broker.cold.offload_upkeep import RETRY_MIN_S, OffloadUpkeep
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsUnavailable, Verified
from magnetar.ledger.managed_ledger.bookie_release import DAMAGED, LEFT

from tests.unit.broker.topics.simulated_broker import SimBroker, simulated
from tests.unit.ledger.managed_ledger.harness import TOPIC, Listener, Topic, until
from tests.unit.ledger.managed_ledger.offloading import Cold, offload, value_of

LAG_MS = 1_000


class Verifier(Cold):
    """Counts verifications; one that is away cannot be had."""

    verifications = 0
    answers_after_s = 0.0
    breaks_at = 0

    async def verify(self, ledger: ColdLedger) -> Verified:
        self.verifications += 1
        await asyncio.sleep(self.answers_after_s)
        if ledger.ref.id == self.breaks_at:
            raise RuntimeError("nobody expected this")
        if self.away:
            raise ObjectsUnavailable("the objects are away")
        return await super().verify(ledger)


def keeping(
    scenario: Callable[[SimBroker, OffloadUpkeep, Verifier, Topic], Awaitable[None]], *, lag_ms: int = LAG_MS
) -> None:
    """A topic with two closed ledgers, whole objects of both, and an owner that has not heard of them."""

    async def main(broker: SimBroker) -> None:
        topic = await broker.topic(TOPIC)
        await topic.subscriptions.create("keeps")
        for _ in range(2):
            await broker.publish(topic, 5)
            topic.ledger.roll()
            await until(lambda: all(span.closed for span in topic.ledger.spans.spans))
        cold = Verifier()
        broker.ledgers.cold = cold
        keeper = OffloadUpkeep(lambda: broker.registry.loaded, broker.ledgers, cold, lambda: 0.5)
        seen = Topic(broker.ledgers, topic.ledger, Listener())
        for span in topic.ledger.spans.spans:
            await offload(seen, cold, span.ref.id)
        await scenario(broker, keeper, cold, seen)

    simulated(main, BrokerConfig(offload=OffloadConfig(deletion_lag_ms=lag_ms)))


def left(topic: Topic) -> list[bool]:
    return [span.offload is not None and span.offload.left_bookies for span in topic.ledger.spans.spans]


def test_whole_ledgers_leave_once_the_owner_has_heard_of_them_and_the_lag_is_over() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        before = LEFT._value.get()
        await keeper.let_go()
        assert left(topic) == [False, False], "nobody told the owner"
        await keeper.refresh()
        assert [span.offload is not None for span in topic.ledger.spans.spans] == [True, True]
        await keeper.let_go()
        assert left(topic) == [False, False], "it is too early"
        await asyncio.sleep(LAG_MS / 1000)
        await keeper.let_go()
        assert left(topic) == [True, True]
        assert LEFT._value.get() == before + 2
        await keeper.let_go()
        assert cold.verifications == 2

    keeping(scenario)


def test_without_a_lag_nothing_leaves() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        await keeper.refresh()
        await asyncio.sleep(10_000)
        await keeper.let_go()
        assert left(topic) == [False, False]
        assert not cold.verifications

    keeping(scenario, lag_ms=-1)


def test_objects_that_are_away_are_asked_for_later_and_later() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        await keeper.refresh()
        await asyncio.sleep(LAG_MS / 1000)
        cold.away = True
        for _ in range(5):
            await keeper.let_go()
        assert cold.verifications == 2, "each ledger once"
        await asyncio.sleep(RETRY_MIN_S)
        await keeper.let_go()
        assert cold.verifications == 4
        await asyncio.sleep(RETRY_MIN_S)
        await keeper.let_go()
        assert cold.verifications == 4, "the next time comes twice as late"
        cold.away = False
        await asyncio.sleep(RETRY_MIN_S)
        await keeper.let_go()
        assert left(topic) == [True, True]

    keeping(scenario, lag_ms=0)


def test_a_store_that_does_not_answer_keeps_others_waiting_once_and_not_for_each_ledger() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        await keeper.refresh()
        cold.away, cold.answers_after_s = True, 180.0
        began_s = broker.ledgers.clock.monotonic()
        await keeper.let_go()
        assert cold.verifications == 1
        assert broker.ledgers.clock.monotonic() - began_s < 200
        await keeper.let_go()
        assert cold.verifications == 2, "the other ledger has its turn"
        cold.away, cold.answers_after_s = False, 0.0
        await asyncio.sleep(RETRY_MIN_S)
        await keeper.let_go()
        assert left(topic) == [True, True]

    keeping(scenario, lag_ms=0)


def test_unexpected_error_delays_no_other_ledger_deletion() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        await keeper.refresh()
        cold.breaks_at = topic.ledger.spans.spans[0].ref.id
        await keeper.let_go()
        assert left(topic) == [False, True]

    keeping(scenario, lag_ms=0)


def test_objects_found_damaged_twice_are_wanted_again_and_the_other_ledger_leaves() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        await keeper.refresh()
        first = topic.ledger.spans.spans[0].ref.id
        path = next(path for path in cold.objects if f"ledger={first}/" in path)
        cold.objects[path] += b"!"
        before = DAMAGED._value.get()
        await keeper.let_go()
        assert left(topic) == [False, True]
        value = await value_of(topic, first)
        assert value is not None
        assert value.offload.state == Offload.COMPLETE, "once may be a directory that is not mounted"
        await asyncio.sleep(RETRY_MIN_S)
        await keeper.let_go()
        value = await value_of(topic, first)
        assert value is not None
        assert value.offload.state == Offload.WANTED
        assert value.offload.error
        assert DAMAGED._value.get() == before + 1
        # A job writes them anew.
        await offload(topic, cold, first, attempt=b"b" * 16)
        await keeper.refresh()
        await keeper.let_go()
        assert left(topic) == [True, True]

    keeping(scenario, lag_ms=0)


def test_the_tasks_do_it_by_themselves_and_messages_stay() -> None:
    async def scenario(broker: SimBroker, keeper: OffloadUpkeep, cold: Verifier, topic: Topic) -> None:
        keeper.start(broker.tasks.spawn)
        await until(lambda: left(topic) == [True, True], seconds=1_000)
        await until(lambda: topic.ledger._maintenance is None)  # their intents are finished too
        loaded = broker.registry.loaded[TOPIC]
        assert isinstance(loaded, PersistentTopic)
        _, _, peer = await broker.consumer(loaded, "keeps", permits=100)
        await until(lambda: peer.messages == 10)
        keys = broker.ledgers.keys
        for span in topic.ledger.spans.spans:
            assert await broker.ledgers.metadata.get(keys.ledger(span.ref.id)) is None, "storage has it"

    keeping(scenario)
