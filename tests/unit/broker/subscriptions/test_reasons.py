"""Each reason why a subscription does not dispatch, from a situation that produces it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count, islice
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.tenure import Lease, Tenure
from magnetar.common.errors import LogFailed
from magnetar.ledger.ledger_store import RUN_CHUNK
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.sim.loop import SimClock

from tests.unit.broker.subscriptions.delayed_serving import DelayedServing
from tests.unit.broker.subscriptions.serving import READ_S, Serving, StoredTopic, client_of
from tests.unit.broker.subscriptions.types.test_shared import ChunkServing

Serve = Callable[..., Any]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Makes servings that are closed after the test."""
    made: list[Serving] = []

    def make(kind: type[Serving], *args: Any, **options: Any) -> Serving:
        made.append(kind(*args, **options))
        return made[-1]

    yield make
    for serving in made:
        serving.close()


def why(serving: Serving, code: str, *, stops: bool = True) -> Reason:
    """The one reason with this code; nothing else stops unless it does as well."""
    found = serving.subscription.reasons()
    (each,) = [each for each in found if each.code == code]
    assert each.stops == stops, found
    assert any(each.stops for each in found) == (serving.subscription.why_not_dispatching() is not None)
    assert each.next
    assert each.to_json()["data"] == dict(each.data)
    return each


def now_ms(serving: Serving) -> int:
    return serving.topic.now_ms()


def keys_in(first: int, last: int, wanted: int = 1) -> list[str]:
    """Keys whose slots are in a range."""
    found = (key for key in map("key-{}".format, count()) if first <= slot_of_key(key.encode()) <= last)
    return list(islice(found, wanted))


def publish_keys(serving: Serving, *keys: str) -> None:
    def confirmed() -> None:
        for key in keys:
            serving.topic.append(key=key)
        serving.subscription.wake()

    serving.do(confirmed)


def test_nothing_to_deliver(serve: Serve) -> None:
    serving = serve(Serving, SubType.Shared)
    assert why(serving, "nothing_to_deliver").text == "nothing to deliver: every entry is acknowledged"
    serving.join("a", permits=5)
    why(serving, "nothing_to_deliver")


def test_no_consumer_since_the_last_one_left(serve: Serve) -> None:
    serving = serve(Serving, SubType.Shared, entries=3)
    assert why(serving, "no_consumer").since_ms == 0
    consumer = serving.join("a")
    serving.leave(consumer, wait_s=0)
    left_ms = now_ms(serving)
    serving.do(wait_s=5)
    found = why(serving, "no_consumer")
    assert (found.since_ms, found.data) == (left_ms, {"backlog": 3})


def test_no_permits_since_the_last_message_or_the_connection(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive, entries=3)
    consumer = serving.join("a", wait_s=0)
    joined_ms = now_ms(serving)
    serving.do(wait_s=2)
    assert why(serving, "no_permits").since_ms == joined_ms
    serving.flow(consumer, 2)
    found = why(serving, "no_permits")
    assert joined_ms + 2_000 <= found.since_ms <= now_ms(serving)
    assert found.data == {"consumer": "a", "address": "client:1", "permits": 0}


def test_a_consumer_without_permits_beside_one_that_takes_all_does_not_stop(serve: Serve) -> None:
    serving = serve(Serving, SubType.Shared)
    serving.join("full")
    serving.join("free", permits=100)
    serving.publish(3)
    found = why(serving, "no_permits", stops=False)
    assert found.data["consumer"] == "full"
    assert why(serving, "waiting_for_acks").data == {"entries": 3}


@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Failover, SubType.Shared])
def test_what_was_sent_waits_for_acknowledgements(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(Serving, sub_type, entries=12)
    consumer = serving.join("a", permits=100, wait_s=2)
    serving.ack(consumer, 0, 3)
    found = why(serving, "waiting_for_acks")
    assert found.data == {"entries": 10}
    assert found.since_ms == consumer.sent_at_ms > 0


def test_a_full_socket(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive, entries=3)
    consumer = serving.consumer("a")
    client = client_of(consumer)
    client.writable, client.unwritable_s = False, 1.5
    serving.do(lambda: serving.subscription.add_consumer(consumer, SubType.Exclusive))
    serving.flow(consumer, 10)
    assert why(serving, "socket_full").since_ms == now_ms(serving) - 1_500


def test_unacked_limits_of_consumer_subscription_and_broker(serve: Serve) -> None:
    serving = serve(Serving, SubType.Shared, entries=30, consumer_unacked_max=4)
    serving.join("a", permits=100)
    found = why(serving, "unacked_limit")
    assert {**found.data, "address": ""} == {
        "scope": "consumer",
        "consumer": "a",
        "address": "",
        "unacked": 4,
        "limit": 4,
    }
    serving = serve(Serving, SubType.Shared, entries=30, unacked_max=6)
    serving.join("a", permits=100, wait_s=0.01)
    blocked_ms = now_ms(serving)
    serving.do(wait_s=3)
    found = why(serving, "unacked_limit")
    assert found.data == {"scope": "subscription", "unacked": 6, "limit": 6}
    assert blocked_ms - 20 <= found.since_ms <= blocked_ms
    limit = BrokerUnackedLimit(5, 2)
    serving = serve(Serving, SubType.Shared, entries=30, broker_limit=limit)
    consumer = serving.join("a", permits=3)
    serving.flow(consumer, 100)
    found = why(serving, "unacked_limit")
    assert found.data["scope"] == "broker"
    assert found.data["unackedOfBroker"] == limit.total >= 5


class FailingTopic(StoredTopic):
    """Reads from storage fail."""

    async def read(self, *args: Any) -> ReadResult:
        raise LogFailed("the disk has a bad day")


class FailingServing(Serving):
    topic_type = FailingTopic


def test_a_read_from_storage_and_one_that_failed(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive, entries=30, cached_from=100)
    serving.join("a", permits=100, wait_s=READ_S / 2)
    found = why(serving, "reading")
    assert found.data == {"position": "5:0"}
    assert found.since_ms
    serving = serve(FailingServing, SubType.Exclusive, entries=30, cached_from=100)
    serving.join("a", permits=100)
    found = why(serving, "read_failed")
    assert "the disk has a bad day" in found.text
    assert found.data["position"] == "5:0"
    assert found.data["until"]


def test_memory_for_a_read(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive, entries=30, cached_from=100)
    used = serving.budget._bytes_max
    serving.do(lambda: serving.budget.add_output(used))
    consumer = serving.join("a", permits=100)
    found = why(serving, "memory_full")
    assert found.data == {"bytesWanted": serving.config.read_bytes_max, "bytesUsed": used}
    serving.do(lambda: serving.budget.add_output(-used))
    assert len(client_of(consumer).numbers) == 30


def test_another_consumer_becomes_active_and_others_are_not(serve: Serve) -> None:
    serving = serve(Serving, SubType.Failover, entries=3)
    serving.join("b", permits=10, wait_s=0.25)
    found = why(serving, "switching_consumer")
    assert found.data["consumer"] == "b"
    assert found.data["until"]
    serving.join("c", permits=10, wait_s=2)
    names = {serving.subscription.active_consumer.name, "b", "c"}
    found = why(serving, "not_active_consumer", stops=False)
    assert {found.data["consumer"], found.data["active"]} == names


def test_a_lower_priority(serve: Serve) -> None:
    serving = serve(Serving, SubType.Shared, entries=3)
    serving.join("best", permits=10)
    serving.join("second", permits=10, priority_level=1)
    found = why(serving, "lower_priority", stops=False)
    assert found.data["consumer"] == "second"


def test_delayed_entries(serve: Serve) -> None:
    serving = serve(DelayedServing)
    serving.join("a", permits=10)
    serving.publish_at(60_000, 90_000)
    found = why(serving, "delayed_until")
    assert found.data["entries"] == 2
    assert found.data["until"]
    assert found.text.startswith("2 entries wait for their time, the next one for ")


def test_hash_ranges_of_an_exclusive_consumer(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive)
    serving.join("a", permits=10, hash_ranges=((0, 10),))
    publish_keys(serving, *keys_in(11, 65_535))
    assert why(serving, "outside_hash_ranges").data == {"consumer": "a", "hashRanges": [[0, 10]]}


def test_chunks_wait_for_the_consumer_of_their_message(serve: Serve) -> None:
    serving = serve(ChunkServing, SubType.Shared)
    first = serving.join("first", permits=1)
    serving.publish(1, flags=RUN_CHUNK)
    assert client_of(first).numbers == [0]
    serving.join("second", permits=10)
    serving.publish(2, flags=RUN_CHUNK)
    found = why(serving, "chunk_blocked")
    assert {**found.data, "address": ""} == {
        "consumer": "first",
        "address": "",
        "entries": 2,
        "cause": "no_permits",
    }


def key_shared(serve: Serve, **options: Any) -> Serving:
    config = DispatchConfig(key_shared_consistent_hashing=False, **options)
    return cast(Serving, serve(Serving, SubType.Key_Shared, config=config))


def test_a_key_waits_for_its_consumer_while_others_move(serve: Serve) -> None:
    serving = key_shared(serve)
    upper = serving.join("upper", permits=100)
    lower = serving.join("lower")
    publish_keys(serving, *keys_in(0, 20_000), *keys_in(40_000, 65_535))
    found = why(serving, "key_blocked")
    assert {**found.data, "slot": 0, "address": ""} == {
        "consumer": "lower",
        "address": "",
        "entries": 1,
        "message": "5:0",
        "slot": 0,
        "cause": "no_permits",
    }
    assert client_of(upper).numbers == [1]
    serving.flow(lower, 5)
    assert client_of(lower).numbers == [0]


def test_a_key_waits_for_acknowledgements_of_its_previous_consumer(serve: Serve) -> None:
    serving = key_shared(serve)
    serving.join("old", permits=100)
    (key,) = keys_in(0, 20_000)
    publish_keys(serving, key, key)
    serving.join("new", permits=100, wait_s=0)
    moved_ms = now_ms(serving)
    publish_keys(serving, key)
    serving.do(wait_s=2)
    found = why(serving, "key_blocked")
    assert moved_ms <= found.since_ms <= moved_ms + 1
    assert {**found.data, "slot": 0, "address": ""} == {
        "consumer": "old",
        "address": "",
        "entries": 1,
        "unacked": 2,
        "message": "5:0",
        "slot": 0,
        "cause": "unacknowledged",
    }


def test_keys_that_no_consumer_has_chosen(serve: Serve) -> None:
    serving = key_shared(serve)
    serving.join("a", permits=100, sticky=True, hash_ranges=((0, 20_000),))
    publish_keys(serving, *keys_in(30_000, 65_535, 2))
    found = why(serving, "key_unowned")
    assert found.data["entries"] == 2
    assert len(found.data["slots"]) == 2


def test_looking_ahead_for_other_keys_is_bounded(serve: Serve) -> None:
    serving = key_shared(serve, look_ahead_per_consumer=3)
    serving.join("upper", permits=100)
    serving.join("lower")
    publish_keys(serving, *keys_in(0, 20_000) * 20)
    assert why(serving, "look_ahead_full").data["limit"] == 6
    assert why(serving, "key_blocked", stops=False).data["consumer"] == "lower"


def test_metadata_is_away(serve: Serve) -> None:
    serving = serve(Serving, SubType.Exclusive, entries=3)
    lease = Lease(SimClock(serving.loop))
    session: Any = SimpleNamespace(alive_until_s=4.0)
    lease.begin(session)
    serving.subscription._tenure = Tenure(lease)
    consumer = serving.join("a", permits=2)
    assert client_of(consumer).numbers == [0, 1]
    serving.do(wait_s=5)
    serving.flow(consumer, 5)
    found = why(serving, "metadata_outage")
    assert found.since_ms == serving.topic.clock.wall_offset_ms + 4_000
    session.alive_until_s = math.inf
    serving.do(lease.release)
    assert client_of(consumer).numbers == [0, 1, 2]
