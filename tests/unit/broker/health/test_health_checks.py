"""A broker's health check: a message to storage and back, within a bound, by a topic that stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import BrokerConfig
from magnetar.broker.health import heartbeat_topic as topic_module
from magnetar.broker.health.health_checks import (
    CHECK_S,
    PROOF_INTERVAL_MAX_S,
    PROOF_INTERVAL_S,
    HealthChecks,
)
from magnetar.broker.health.heartbeat_topic import HeartbeatTopic
from magnetar.common.errors import LogFull, MagnetarError, ServiceNotReady, TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.ledger_store import Obstacle
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers, delete_managed_ledger

from tests.unit.broker.topics.world import Topics, in_a_broker
from tests.unit.ledger.managed_ledger.harness import until
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedgers

NAME = TopicName.parse("persistent://pulsar/b1:8080/healthcheck")


@dataclass
class World:
    """A broker's health checks, and what is around them."""

    made: Topics
    checks: HealthChecks
    topic: HeartbeatTopic
    scripted: ScriptedLedgers
    obstacle: Obstacle | None = None

    @property
    def opened(self) -> Any:
        assert self.topic._topic is not None, "it was opened"
        return self.topic._topic


def checked(
    scenario: Callable[[World], Awaitable[None]],
    *,
    scripted: bool = False,
    config: BrokerConfig | None = None,
) -> None:
    """Run a scenario; `scripted`: over storage that confirms nothing by itself."""

    async def run(made: Topics) -> None:
        store = ScriptedLedgers(made.ledgers.metadata)
        ledgers = replace(made.ledgers, ledgers=store) if scripted else made.ledgers
        settings = config or BrokerConfig()
        budget = ByteBudget(settings.memory, ledgers.cache)
        topic = HeartbeatTopic(NAME, settings, budget, ledgers, made.tasks.spawn)
        checks = HealthChecks(lambda: topic, ledgers, lambda: world.obstacle)
        world = World(made, checks, topic, store)
        try:
            await scenario(world)
        finally:
            await checks.close()

    in_a_broker(run)


def test_a_check_stores_a_message_and_reads_it_back() -> None:
    async def scenario(world: World) -> None:
        await world.checks.check()
        assert world.opened.storage_entries == 1
        assert world.opened.stats.messages_out == 1
        assert not world.opened.has_clients
        assert not world.opened.subscriptions
        assert not world.opened.ledger.cursors

    checked(scenario)


def test_checks_that_are_asked_for_at_once_are_one() -> None:
    async def scenario(world: World) -> None:
        await asyncio.gather(*(world.checks.check() for _ in range(50)))
        assert world.opened.storage_entries == 1
        await world.checks.check()
        assert world.opened.storage_entries == 2

    checked(scenario)


def test_a_caller_that_gives_up_takes_the_check_from_no_other() -> None:
    async def scenario(world: World) -> None:
        impatient = asyncio.ensure_future(world.checks.check())
        other = asyncio.ensure_future(world.checks.check())
        await asyncio.sleep(0)
        impatient.cancel()
        await other
        assert impatient.cancelled()

    checked(scenario)


def test_the_topic_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "MESSAGES_MAX", 5)

    async def scenario(world: World) -> None:
        most = 0
        for _ in range(17):
            await world.checks.check()
            families = [key.partition("/v1/")[2].partition("/")[0] for key in sorted(world.made.keys())]
            most = max(most, families.count("ledgers"))
        assert world.opened.storage_entries == 17 % 5
        assert most == 1, "one data ledger, and none of cursors"

    checked(scenario)


def test_it_is_nowhere_among_the_topics_of_users() -> None:
    async def scenario(world: World) -> None:
        await world.checks.check()
        registry = world.made.registry
        assert not registry.loaded
        assert await registry.list(NAME.namespace, persistent=True) == []
        with pytest.raises(MagnetarError, match="reserved for the system"):
            await registry.get(NAME, create=True)

    checked(scenario)


def test_nothing_is_left_when_the_broker_has_stopped() -> None:
    async def scenario(world: World) -> None:
        before = world.made.keys()
        await world.checks.check()
        assert world.made.keys() != before
        await world.checks.close()
        assert world.made.keys() == before
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await world.checks.check()

    checked(scenario)


def test_publish_restrictions_do_not_apply_to_health_checks() -> None:
    limits = BrokerConfig().policies.limits
    config = BrokerConfig()
    policies = replace(
        config.policies, limits=replace(limits, subscription_types=("Shared",), encryption_required=True)
    )

    async def scenario(world: World) -> None:
        await world.checks.check()

    checked(scenario, config=replace(config, policies=policies))


def test_a_message_that_is_not_stored_fails_the_check_within_its_bound_and_the_reason_is_told() -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        world.obstacle = Obstacle("bookies are away", seen_to_end=True)
        began = loop.time()
        with pytest.raises(MagnetarError) as failed:
            await world.checks.check()
        assert loop.time() - began == pytest.approx(CHECK_S)
        assert str(failed.value) == f"storing a message of {NAME} took more than 10 s: bookies are away"
        assert not world.opened.has_clients

    checked(scenario, scripted=True)


def test_a_message_that_is_refused_fails_the_check_at_once_with_the_reason() -> None:
    async def scenario(world: World) -> None:
        first = asyncio.ensure_future(world.checks.check())
        await until(lambda: bool(world.scripted.ledgers))
        (ledger,) = world.scripted.ledgers.values()
        await until(lambda: ledger.appended == 0)
        ledger.confirm()
        await first

        def full(run: object) -> int:
            raise LogFull("free disk space is under the log's reserve")

        ledger.append = full  # type: ignore[method-assign]
        with pytest.raises(MagnetarError) as failed:
            await world.checks.check()
        assert str(failed.value) == (
            f"storing a message of {NAME} failed: free disk space is under the log's reserve"
        )

    checked(scenario, scripted=True)


def test_a_topic_that_was_taken_away_is_made_anew_by_the_next_check() -> None:
    async def scenario(world: World) -> None:
        await world.checks.check()
        await delete_managed_ledger(world.made.ledgers, NAME.full)
        await world.checks.check()
        assert world.opened.storage_entries == 1

    checked(scenario)


def test_a_broker_whose_run_is_over_leaves_its_topic_to_the_next() -> None:
    async def scenario(world: World) -> None:
        await world.checks.check()
        there = world.made.keys()
        world.checks.abandon("another broker is the owner")
        with pytest.raises(ServiceNotReady, match="another broker is the owner"):
            await world.checks.check()
        await world.checks.close()
        assert world.made.keys() == there

    checked(scenario)


def test_a_check_under_way_ends_with_the_broker() -> None:
    async def scenario(world: World) -> None:
        check = asyncio.ensure_future(world.checks.check())
        await until(lambda: bool(world.scripted.ledgers))
        await world.checks.close()
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await check

    checked(scenario, scripted=True)


def test_topics_of_departed_brokers_are_deleted_and_no_others() -> None:
    async def scenario(world: World) -> None:
        gone = "persistent://pulsar/b2:8080/healthcheck"
        kept = [NAME.full, "persistent://public/default/healthcheck", "persistent://pulsar/b2:8080/other"]
        await create_managed_ledgers(world.made.ledgers, [gone, *kept])
        await world.checks.clear_departed(["b1:8080"])
        with pytest.raises(TopicNotFound):
            await world.made.registry.delete(TopicName.parse(gone), force=False)
        for name in kept:
            assert await world.made.registry.exists(TopicName.parse(name)), name

    checked(scenario)


def test_while_writes_fail_the_broker_itself_tries_whether_they_work_again() -> None:
    async def scenario(world: World) -> None:
        proving = asyncio.ensure_future(world.checks.prove_for_ever())
        await asyncio.sleep(5 * PROOF_INTERVAL_S)
        assert world.topic._topic is None, "nothing is published while nothing failed"
        world.obstacle = Obstacle("the disk is full", seen_to_end=True)
        await asyncio.sleep(5 * PROOF_INTERVAL_S)
        assert world.topic._topic is None, "that it has space again is seen without a write"
        world.obstacle = Obstacle("no quorum answered", seen_to_end=False)
        await asyncio.sleep(1.5 * PROOF_INTERVAL_S)
        assert world.opened.storage_entries == 1
        await asyncio.sleep(10 * PROOF_INTERVAL_MAX_S)
        assert world.opened.storage_entries in range(8, 14), "less often after a while"
        proving.cancel()

    checked(scenario)
