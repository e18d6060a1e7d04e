"""The news of policies: caches are right at every moment, whatever becomes of the watches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.common.errors import MetadataError, NamespaceNotFound, WatchLost
from magnetar.common.metadata import watch_loop
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Versioned, Watch, WatchEvent
from magnetar.common.metadata.values import Namespace, Policies, TopicPolicies, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")
TOPIC = TopicName.parse("persistent://acme/demo/orders")

Heard = list[tuple[NamespaceName | None, TopicName | None]]


class LosableWatch:
    """A watch that a test can end."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._error: Exception | None = None
        self._lost = asyncio.Event()

    def lose(self, error: Exception) -> None:
        self._error = error
        self._lost.set()

    def __aiter__(self) -> LosableWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        lost = asyncio.ensure_future(self._lost.wait())
        following = asyncio.ensure_future(self._watch.__anext__())
        try:
            await asyncio.wait([lost, following], return_when=asyncio.FIRST_COMPLETED)
            if self._error is not None:
                raise self._error
            return await following
        finally:
            lost.cancel()
            following.cancel()

    async def aclose(self) -> None:
        await self._watch.aclose()


class Store(SqliteMetadataStore):
    """Counts reads, keeps its watches at hand, and holds a read up when told to."""

    gets = 0
    held: asyncio.Event | None = None
    watches: list[LosableWatch]

    async def get(self, key: str) -> Versioned | None:
        self.gets += 1
        found = await super().get(key)
        if self.held is not None:
            await self.held.wait()
        return found

    def watch(self, prefix: str) -> Watch:  # type: ignore[override]
        watch = LosableWatch(super().watch(prefix))
        self.watches.append(watch)
        return watch

    async def say(self, **policies: int) -> None:
        """What the namespace says from now on."""
        value = Namespace(bundle_count=4, policies=Policies(**policies))  # type: ignore[arg-type]
        await self.put(KEYS.namespace(DEMO), encode(value))

    async def say_of_topic(self, **policies: int) -> None:
        value = TopicPolicies(policies=Policies(**policies))  # type: ignore[arg-type]
        await self.put(KEYS.topic_policies(TOPIC), encode(value))


def with_store(tmp_path: Path, body: Callable[[Store, PolicyStore, Heard], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        store.watches = []
        policies = PolicyStore(BrokerConfig(), store, KEYS)
        heard: Heard = []
        try:
            await store.say(max_producers_per_topic=1)
            policies.start(lambda namespace, topic: heard.append((namespace, topic)))
            await until(lambda: len(store.watches) == 2)
            await body(store, policies, heard)
        finally:
            await policies.close()
            await store.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """A wait that polls, within a bound."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def most_producers(policies: PolicyStore) -> int:
    return (await policies.of_namespace(DEMO)).of_topics.max_producers


def test_a_namespace_is_read_once_while_it_is_watched(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        assert await most_producers(policies) == 1
        before = store.gets
        assert await most_producers(policies) == 1
        assert store.gets == before

    with_store(tmp_path, body)


def test_topics_without_policies_of_their_own_share_their_namespaces(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        other = TopicName.parse("persistent://acme/demo/other")
        assert await policies.of_topic(TOPIC) is await policies.of_topic(other)
        await store.say_of_topic(max_producers_per_topic=9)
        assert (await policies.of_topic(TOPIC)).max_producers == 9
        assert (await policies.of_topic(TOPIC.partition(3))).max_producers == 9
        assert (await policies.of_topic(other)).max_producers == 1

    with_store(tmp_path, body)


def test_a_change_is_heard_and_the_next_answer_has_it(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        assert await most_producers(policies) == 1
        await store.say(max_producers_per_topic=2)
        await until(lambda: (DEMO, None) in heard)
        assert await most_producers(policies) == 2
        await store.say_of_topic(max_producers_per_topic=3)
        await until(lambda: (None, TOPIC) in heard)

    with_store(tmp_path, body)


def test_own_writes_are_effective_before_the_watch(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        assert await most_producers(policies) == 1
        await store.say(max_producers_per_topic=2)
        policies.wrote(DEMO, None)
        assert heard[-1] == (DEMO, None)
        assert await most_producers(policies) == 2

    with_store(tmp_path, body)


def test_a_change_during_a_read_is_not_hidden_by_what_was_read(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        held = store.held = asyncio.Event()
        generation = policies.generation
        reading = asyncio.create_task(policies.of_namespace(DEMO))
        await until(lambda: store.gets > 0)
        await asyncio.sleep(0.05)  # the value was read by now, and is on its way
        store.held = None
        await store.say(max_producers_per_topic=2)
        await until(lambda: (DEMO, None) in heard)
        held.set()
        await reading
        assert policies.generation > generation
        assert await most_producers(policies) == 2

    with_store(tmp_path, body)


@pytest.mark.parametrize("error", [WatchLost("behind"), MetadataError("away"), KeyError("a bug")])
def test_lost_watch_is_reopened_and_all_policies_are_reread(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_loop, "RETRY_MIN_S", 0.01)

    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        assert await most_producers(policies) == 1
        heard.clear()
        first = store.watches[0]
        first.lose(error)
        await store.say(max_producers_per_topic=2)  # seen by nobody
        await until(lambda: (None, None) in heard and len(store.watches) == 3)
        assert await most_producers(policies) == 2
        heard.clear()
        await store.say(max_producers_per_topic=3)
        await until(lambda: (DEMO, None) in heard)
        assert await most_producers(policies) == 3

    with_store(tmp_path, body)


def test_a_namespace_that_goes_is_not_found_any_more(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        assert await most_producers(policies) == 1
        await store.delete(KEYS.namespace(DEMO))
        await until(lambda: (DEMO, None) in heard)
        with pytest.raises(NamespaceNotFound, match="acme/demo"):
            await policies.of_namespace(DEMO)
        with pytest.raises(NamespaceNotFound):
            await policies.of_topic(TOPIC)

    with_store(tmp_path, body)


def test_without_a_watch_every_question_is_read(tmp_path: Path) -> None:
    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        await policies.close()
        heard.clear()
        assert await most_producers(policies) == 1
        await store.say(max_producers_per_topic=2)
        assert await most_producers(policies) == 2
        assert not heard

    with_store(tmp_path, body)


def test_a_listener_that_fails_hears_of_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_loop, "RETRY_MIN_S", 0.01)

    async def body(store: Store, policies: PolicyStore, heard: Heard) -> None:
        await store.put(f"{KEYS.namespaces_prefix()}no/name/of/a/namespace", b"")
        await until(lambda: len(store.watches) == 3)
        heard.clear()
        await store.say(max_producers_per_topic=2)
        await until(lambda: (DEMO, None) in heard)
        assert await most_producers(policies) == 2

    with_store(tmp_path, body)
