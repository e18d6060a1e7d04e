"""Lookups: redirects, proxies, brokers that die meanwhile, and patterns of topics."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from magnetar.client.errors import ClientError, ConnectionLost, NotAuthorized, Overloaded, TopicNotFound
from magnetar.client.lookup import REDIRECTS_MAX, TopicPattern
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.model_broker import Broker, Cluster, error_frame, frame, lookup_answer
from tests.unit.client.scene import TOPIC, Scene, staged, until


def redirect(to: Broker, **more: Any) -> Any:
    return lambda command, _: lookup_answer(command.request_id, to.url, redirect=True, **more)


def test_a_redirect_is_followed_with_its_authority() -> None:
    async def scenario(scene: Scene) -> None:
        two, three = (Broker(scene.cluster, scene.network, name) for name in ("two", "three"))
        scene.broker.answers["lookupTopic"] = redirect(two, authoritative=False)
        two.answers["lookupTopic"] = redirect(three)
        producer = await scene.client.create_producer(TOPIC)
        await producer.send(b"a")
        assert [each.authoritative for each in two.of("lookupTopic")] == [False]
        assert [each.authoritative for each in three.of("lookupTopic")] == [True]
        assert len(three.of("send")) == 1

    staged(scenario)


def test_redirects_that_change_while_they_are_followed_end_at_the_owner() -> None:
    async def scenario(scene: Scene) -> None:
        two = Broker(scene.cluster, scene.network, "two")
        asked: list[str] = []

        def answer(command: Any, session: Any) -> bytes | None:
            asked.append(session.broker.name)
            if len(asked) > 4:
                return lookup_answer(command.request_id, two.url)
            other = two if session.broker is scene.broker else scene.broker
            return lookup_answer(command.request_id, other.url, redirect=True)

        scene.broker.answers["lookupTopic"] = two.answers["lookupTopic"] = answer
        producer = await scene.client.create_producer(TOPIC)
        await producer.send(b"a")
        assert asked == ["broker", "two", "broker", "two", "broker"]
        assert len(two.of("send")) == 1

    staged(scenario)


def test_brokers_that_send_a_lookup_in_a_circle_are_an_error() -> None:
    async def scenario(scene: Scene) -> None:
        two = Broker(scene.cluster, scene.network, "two")
        scene.broker.answers["lookupTopic"] = redirect(two)
        two.answers["lookupTopic"] = redirect(scene.broker)
        with pytest.raises(ClientError, match=f"from one to the other {REDIRECTS_MAX} times"):
            await scene.client.create_producer(TOPIC)

    staged(scenario)


@pytest.mark.parametrize("dies", ["before it is asked", "while it is asked"])
def test_a_redirect_to_a_broker_that_dies_is_looked_up_again(dies: str) -> None:
    async def scenario(scene: Scene) -> None:
        two = Broker(scene.cluster, scene.network, "two")

        def answer(command: Any, session: Any) -> bytes:
            if len(scene.broker.of("lookupTopic")) < 3:
                if dies == "before it is asked":
                    two.kill()
                return lookup_answer(command.request_id, two.url, redirect=True)
            return lookup_answer(command.request_id, scene.broker.url)

        scene.broker.answers["lookupTopic"] = answer

        def die(command: Any, session: Any) -> bytes:
            two.kill()
            return b""

        two.answers["lookupTopic"] = die
        producer = await scene.client.create_producer(TOPIC)
        await producer.send(b"a")
        assert len(scene.broker.of("lookupTopic")) == 3

    staged(scenario)


def test_a_topic_whose_owner_died_is_looked_up_until_another_one_serves_it() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answers["lookupTopic"] = lambda command, _: lookup_answer(
            command.request_id, "pulsar://gone:6650" if scene.now < 10 else scene.broker.url
        )
        await scene.client.create_producer(TOPIC)
        assert 10 <= scene.now < 20

    staged(scenario)


def test_an_owner_that_stays_away_is_an_error_after_the_operation_timeout() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answers["lookupTopic"] = lambda command, _: lookup_answer(
            command.request_id, "pulsar://gone:6650"
        )
        with pytest.raises(ConnectionLost, match="cannot connect to gone:6650"):
            await scene.client.create_producer(TOPIC)
        assert 20 < scene.now <= 31

    staged(scenario)


def test_a_service_that_is_down_fails_at_once_unless_it_is_waited_for() -> None:
    async def fails(scene: Scene) -> None:
        scene.broker.kill()
        with pytest.raises(ConnectionLost, match="start a broker, or name one"):
            await scene.client.create_producer(TOPIC)
        assert scene.now < 1

    async def waits(scene: Scene) -> None:
        scene.broker.kill()
        scene.network.loop.call_later(10, scene.broker.start)
        await scene.client.create_producer(TOPIC)
        assert 10 < scene.now < 20

    staged(fails)
    staged(waits, waits_for_service=True)


def test_a_connection_that_ends_while_it_is_asked_is_not_the_end() -> None:
    async def scenario(scene: Scene) -> None:
        for name in ("partitionMetadata", "lookupTopic"):

            def lose(command: Any, session: Any, name: str = name) -> bytes:
                del scene.broker.answers[name]
                session.wire.reset()
                return b""

            scene.broker.answers[name] = lose
        await scene.client.create_producer(TOPIC)
        assert scene.broker.answers == {}

    staged(scenario)


def test_behind_a_proxy_the_broker_is_named_in_connect() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answers["lookupTopic"] = lambda command, _: lookup_answer(
            command.request_id, "pulsar://inside:6650", proxy_through_service_url=True
        )
        await (await scene.client.create_producer(TOPIC)).send(b"a")
        assert [each.proxy_to_broker_url for each in scene.broker.of("connect")] == ["", "inside:6650"]
        assert [host for host, _, _ in scene.network.dialed] == ["broker", "broker"]

    staged(scenario)


def test_a_listener_is_asked_for_by_name() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.client.create_producer(TOPIC)
        assert [each.advertised_listener_name for each in scene.broker.of("lookupTopic")] == ["inside"]

    staged(scenario, listener_name="inside")


def test_a_busy_broker_is_asked_again_and_a_refusal_raised_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        codes = [ServerError.ServiceNotReady, ServerError.TooManyRequests, ServerError.AuthorizationError]
        scene.broker.answers["partitionMetadata"] = lambda command, _: frame(
            "partitionMetadataResponse", request_id=command.request_id, response=1, error=codes.pop(0)
        )
        with pytest.raises(NotAuthorized, match="ask an administrator"):
            await scene.client.partitions(TOPIC)
        assert codes == []
        scene.broker.answers["partitionMetadata"] = lambda command, _: error_frame(
            command.request_id, ServerError.ServiceNotReady
        )
        began = scene.now
        with pytest.raises(Overloaded):
            await scene.client.partitions(TOPIC)
        assert 4 < scene.now - began <= 10

    staged(scenario, operation_timeout_s=10)


def test_partitions_are_listed_by_name() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 2
        assert await scene.client.partitions("t") == [f"{TOPIC}-partition-{number}" for number in range(2)]
        assert await scene.client.partitions("other") == ["persistent://public/default/other"]
        assert await scene.client.partitions("t-partition-1") == [f"{TOPIC}-partition-1"]
        scene.broker.answers["partitionMetadata"] = lambda command, _: error_frame(
            command.request_id, ServerError.TopicNotFound
        )
        with pytest.raises(TopicNotFound, match="create it"):
            await scene.client.partitions("t")

    staged(scenario)


def test_topics_of_a_pattern() -> None:
    async def scenario(scene: Scene) -> None:
        names = ["a1", "a2-partition-0", "b1", "a"]
        for name in names:
            scene.cluster.topic(f"persistent://public/default/{name}")
        scene.cluster.topic("non-persistent://public/default/a3")
        scene.cluster.topic("persistent://public/other/a4")
        found = await scene.client.topics("public/default/a[0-9]")
        assert found == [f"persistent://public/default/{name}" for name in ("a1", "a2-partition-0")]
        assert await scene.client.topics("non-persistent://public/default/a.*") == [
            "non-persistent://public/default/a3"
        ]
        assert await scene.client.topics(re.compile("b.")) == ["persistent://public/default/b1"]

    staged(scenario)


@pytest.mark.parametrize(
    ("pattern", "reason"), [("a/b", "tenant/namespace/expression"), ("a/b/(", "regular expression")]
)
def test_an_invalid_pattern_says_what_is_wrong(pattern: str, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        TopicPattern.parse(pattern)


def test_a_pattern_takes_the_whole_local_name() -> None:
    pattern = TopicPattern.parse("persistent://t/n/x.")
    assert pattern.broker_expression == "persistent://t/n/x."
    for name, matches in {"x1": True, "x1-partition-7": True, "x": False, "x12": False, "ax1": False}.items():
        assert pattern.matches(TopicName.parse(f"persistent://t/n/{name}")) is matches
    assert not pattern.matches(TopicName.parse("persistent://t/m/x1"))
    assert not pattern.matches(TopicName.parse("non-persistent://t/n/x1"))


def test_topics_of_a_pattern_come_and_go() -> None:
    async def scenario(scene: Scene) -> None:
        name = "persistent://public/default/{}"
        scene.cluster.topic(name.format("p1"))
        consumer = await scene.client.subscribe(re.compile("public/default/p."), "s")
        await until(lambda: any(session.watchers for session in scene.broker.sessions))
        (session,) = scene.broker.sessions
        (watcher,) = session.watchers
        for names, field in ((["p2", "q1"], "new_topics"), (["p1"], "deleted_topics")):
            changed = {field: [name.format(each) for each in names]}
            session.send(frame("watchTopicUpdate", watcher_id=watcher, topics_hash="", **changed))
            await asyncio.sleep(1)
        assert consumer.topics == [name.format("p2")]
        # What changed while there was no connection is found afterwards.
        scene.broker.kill()
        scene.cluster.topic(name.format("p3"))
        scene.broker.start()
        await until(lambda: name.format("p3") in consumer.topics)
        await consumer.close()
        await asyncio.sleep(1)
        assert not any(session.watchers for session in scene.broker.sessions)

    staged(scenario, Cluster(watches=True))


def test_without_watchers_topics_are_asked_for_now_and_then() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(re.compile("public/default/p."), "s", pattern_update_s=10)
        assert consumer.topics == []
        scene.cluster.topic("persistent://public/default/p1")
        await asyncio.sleep(11)
        assert consumer.topics == ["persistent://public/default/p1"]

    staged(scenario)
