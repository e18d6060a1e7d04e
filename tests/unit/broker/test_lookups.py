"""What is counted of lookups and of topics that are loaded."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import pytest
from magnetar.broker.lookups import LATENCY, counted_lookup
from magnetar.broker.topics.registry import topic_loads
from magnetar.broker.topics.registry.topic_loads import counted_load
from magnetar.common.errors import NotAllowed, ServiceNotReady, StorageError, TopicNotFound
from magnetar.common.obs.metrics import REGISTRY

from tests.unit.broker.topics.world import Topics, in_a_broker

CLUSTER = "counted"


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(name, {"cluster": CLUSTER}) or 0.0


def failing(counted: AbstractContextManager[None], error: BaseException) -> None:
    with pytest.raises(type(error)), counted:
        raise error


def test_lookups_are_timed_when_answered_and_counted_when_not() -> None:
    answers, failures = sample("pulsar_broker_lookup_answers_total"), LATENCY.count
    with counted_lookup(CLUSTER):
        assert sample("pulsar_broker_lookup_pending_requests") == 1
    assert sample("pulsar_broker_lookup_answers_total") == answers + 1
    assert LATENCY.count == failures + 1
    failing(counted_lookup(CLUSTER), ServiceNotReady("not now"))
    assert sample("pulsar_broker_lookup_failures_total") == 1
    assert sample("pulsar_broker_lookup_pending_requests") == 0
    assert LATENCY.count == failures + 1


def test_loads_are_timed_and_those_of_topics_that_nobody_may_have_did_not_fail() -> None:
    loads = topic_loads.LATENCY.count
    with counted_load(CLUSTER):
        assert sample("pulsar_broker_topic_load_pending_requests") == 1
    assert topic_loads.LATENCY.count == loads + 1
    failing(counted_load(CLUSTER), TopicNotFound("no such topic"))
    failing(counted_load(CLUSTER), NotAllowed("the namespace has no room for it"))
    assert sample("topic_load_failed_total") == 0
    failing(counted_load(CLUSTER), StorageError("a disk"))
    failing(counted_load(CLUSTER), asyncio.CancelledError())
    assert sample("topic_load_failed_total") == 2
    assert sample("pulsar_broker_topic_load_pending_requests") == 0
    assert topic_loads.LATENCY.count == loads + 1


def test_a_topic_is_loaded_once_however_many_ask_for_it() -> None:
    async def scenario(made: Topics) -> None:
        loads = topic_loads.LATENCY.count
        await asyncio.gather(*(made.load("orders") for _ in range(5)))
        await made.load("orders")
        assert topic_loads.LATENCY.count == loads + 1

    in_a_broker(scenario)
