"""The authorizer over a real store: what is granted holds, what is revoked does not, and refusals say why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError, NamespaceNotFound, TopicNotFound, Unauthorized
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Versioned
from magnetar.common.metadata.values import Namespace, Policies, Tenant, TopicPolicies, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization import authorizer as authorizer_module
from magnetar.common.security.authorization.authorizer import Authorizer, Target
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.authorization.operations import Operation
from magnetar.common.security.authorization.rights_cache import Scope
from magnetar.common.security.principal import Principal

KEYS = Keys("standalone")
DEMO = NamespaceName("acme", "demo")
TOPIC = TopicName.parse("persistent://acme/demo/orders")
ROOT, ADMIN, ALICE, STRANGER = (Principal(role) for role in ("root", "admin", "alice", "stranger"))


class Store(SqliteMetadataStore):
    """Counts reads, and is away when told to be."""

    gets = 0
    away = False

    async def get(self, key: str) -> Versioned | None:
        self.gets += 1
        if self.away:
            raise MetadataError("metadata is away")
        return await super().get(key)

    async def tenant(self, *admins: str) -> None:
        await self.put(KEYS.tenant("acme"), encode(Tenant(admin_roles=admins)))

    async def namespace(self, **granted: Sequence[str]) -> None:
        value = Namespace(bundle_count=4, policies=permissions(granted))
        await self.put(KEYS.namespace(DEMO), encode(value))

    async def topic(self, **granted: Sequence[str]) -> None:
        await self.put(KEYS.topic_policies(TOPIC), encode(TopicPolicies(policies=permissions(granted))))


def permissions(granted: dict[str, Sequence[str]]) -> Policies:
    policies = Policies()
    for role, actions in granted.items():
        policies.permissions[role].names[:] = actions
    return policies


def with_authorizer(
    tmp_path: Path,
    body: Callable[[Store, Authorizer, list[Scope]], Awaitable[None]],
    *,
    enabled: bool = True,
    started: bool = True,
) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        config = AuthorizationConfig(enabled=enabled, super_user_roles=("root",))
        authorizer = Authorizer(config, store, KEYS)
        heard: list[Scope] = []
        try:
            await store.tenant("admin")
            await store.namespace(alice=["consume"])
            if started:
                authorizer.start(heard.append)
                await until(lambda: len(heard) == 3 or not enabled)
            await body(store, authorizer, heard)
        finally:
            await authorizer.close()
            await store.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """A wait that polls, within a bound."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_switched_off_everything_is_allowed_and_nothing_read(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        await authorizer.check_produce(None, TOPIC)
        await authorizer.check_partitions(STRANGER, TopicName.parse("persistent://no/such/topic"))
        await authorizer.check_list(None, DEMO)
        await authorizer.check_operation(None, Operation.SUPER_USER, Target())
        assert store.gets == 0

    with_authorizer(tmp_path, body, enabled=False)


def test_without_a_principal_only_what_is_open_passes(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        await authorizer.check_operation(None, Operation.OPEN, Target())
        for operation in (Operation.ANY, Operation.SUPER_USER):
            with pytest.raises(Unauthorized):
                await authorizer.check_operation(None, operation, Target())
        with pytest.raises(Unauthorized):
            await authorizer.check_lookup(None, TOPIC)

    with_authorizer(tmp_path, body)


def test_a_refusal_names_the_role_the_topic_and_the_missing_right(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        await authorizer.check_consume(ALICE, TOPIC, "s")
        with pytest.raises(Unauthorized) as raised:
            await authorizer.check_produce(ALICE, TOPIC)
        assert str(raised.value) == (
            f"role 'alice' may not produce to {TOPIC}: "
            "this needs produce granted on the topic or its namespace"
        )
        with pytest.raises(Unauthorized, match="list topics of acme/demo"):
            await authorizer.check_list(STRANGER, DEMO)

    with_authorizer(tmp_path, body)


def test_a_decision_on_known_grants_reads_nothing(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        await authorizer.check_consume(ALICE, TOPIC, "s")
        before = store.gets
        for _ in range(10):
            await authorizer.check_consume(ALICE, TOPIC, "s")
            await authorizer.check_lookup(ADMIN, TOPIC)
        assert store.gets == before

    with_authorizer(tmp_path, body)


def test_a_grant_holds_for_the_next_request_before_any_watch_brings_it(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        assert not await authorizer.may_produce(ALICE, TOPIC)
        await store.topic(alice=["produce"])
        assert await authorizer.may_produce(ALICE, TOPIC)

    with_authorizer(tmp_path, body)


def test_refusals_cause_a_bounded_number_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        assert not await authorizer.may_produce(STRANGER, TOPIC)
        before = store.gets
        for _ in range(50):
            assert not await authorizer.may_produce(STRANGER, TOPIC)
        # Three parts are read each time; a new second may begin meanwhile.
        assert 0 < store.gets - before <= 2 * 3 * 5

    monkeypatch.setattr(authorizer_module, "FRESH_READS_PER_SECOND_MAX", 5)
    with_authorizer(tmp_path, body)


def test_changes_are_told_with_what_they_concern_and_decided_anew(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        assert await authorizer.may_consume(ALICE, TOPIC, "s")
        assert await authorizer.may_consume(ADMIN, TOPIC, "s")
        heard.clear()
        generation = authorizer.generation
        await store.namespace(bob=["consume"])
        await until(lambda: DEMO in heard)
        assert authorizer.generation > generation
        assert not await authorizer.may_consume(ALICE, TOPIC, "s")
        await store.tenant("alice")
        await until(lambda: "acme" in heard)
        assert await authorizer.may_consume(ALICE, TOPIC, "s")
        assert not await authorizer.may_consume(ADMIN, TOPIC, "s")
        await store.topic(admin=["consume"])
        await until(lambda: TOPIC in heard)
        assert await authorizer.may_consume(ADMIN, TOPIC.partition(3), "s")

    with_authorizer(tmp_path, body)


def test_a_change_of_other_policies_is_no_news(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        assert await authorizer.may_consume(ALICE, TOPIC, "s")
        heard.clear()
        policies = permissions({"alice": ["consume"]})
        policies.message_ttl_s = 77
        await store.put(KEYS.namespace(DEMO), encode(Namespace(bundle_count=4, policies=policies)))
        await store.tenant("admin", "second")
        await until(lambda: "acme" in heard)
        await asyncio.sleep(0.05)
        assert DEMO not in heard

    with_authorizer(tmp_path, body)


def test_while_metadata_is_away_what_was_known_holds(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        assert await authorizer.may_consume(ALICE, TOPIC, "s")
        store.away = True
        authorizer._rights._assembled.clear()
        for part in (authorizer._rights._tenants, authorizer._rights._namespaces, authorizer._rights._topics):
            part.watched = False
        assert await authorizer.may_consume(ALICE, TOPIC, "s")
        assert await authorizer.may_produce(ROOT, TopicName.parse("persistent://acme/demo/unknown"))
        with pytest.raises(MetadataError):
            await authorizer.may_consume(ALICE, TopicName.parse("persistent://acme/demo/unknown"), "s")

    with_authorizer(tmp_path, body)


def test_without_a_tenant_partitions_are_not_found_and_the_rest_is_refused(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        nowhere = TopicName.parse("persistent://nope/demo/orders")
        with pytest.raises(TopicNotFound):
            await authorizer.check_partitions(ALICE, nowhere)
        with pytest.raises(Unauthorized):
            await authorizer.check_lookup(ALICE, nowhere)
        with pytest.raises(NamespaceNotFound, match="Tenant does not exist"):
            await authorizer.check_operation(ALICE, Operation.POLICY, Target(namespace=nowhere.namespace))
        await authorizer.check_partitions(ROOT, nowhere)

    with_authorizer(tmp_path, body)


@pytest.mark.parametrize(
    ("operation", "passing"),
    [
        (Operation.ANY, "root admin alice stranger"),
        (Operation.SUPER_USER, "root"),
        (Operation.TENANT_ADMIN, "root admin"),
        (Operation.NAMESPACE_ADMIN, "root admin"),
        (Operation.POLICY, "root admin"),
        (Operation.TOPIC_ADMIN, "root admin"),
        (Operation.NAMESPACE_CONSUME, "root admin alice"),
        (Operation.NAMESPACE_USE, "root admin alice"),
        (Operation.TOPIC_CONSUME, "root admin alice"),
        (Operation.TOPIC_LOOKUP, "root admin alice"),
        (Operation.TOPIC_PRODUCE, "root admin"),
    ],
)
def test_each_class_has_those_who_pass(tmp_path: Path, operation: Operation, passing: str) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        target = Target(topic=TOPIC)
        for principal in (ROOT, ADMIN, ALICE, STRANGER):
            if principal.role in passing.split():
                await authorizer.check_operation(principal, operation, target)
                continue
            with pytest.raises(Unauthorized) as raised:
                await authorizer.check_operation(principal, operation, target)
            assert operation.needs in str(raised.value)

    with_authorizer(tmp_path, body)


def test_who_administers_no_named_tenant_is_refused(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        await authorizer.check_operation(ROOT, Operation.TENANT_ADMIN, Target())
        with pytest.raises(Unauthorized):
            await authorizer.check_operation(ADMIN, Operation.TENANT_ADMIN, Target())

    with_authorizer(tmp_path, body)


def test_changed_settings_have_everything_decided_anew(tmp_path: Path) -> None:
    async def body(store: Store, authorizer: Authorizer, heard: list[Scope]) -> None:
        heard.clear()
        generation = authorizer.generation
        authorizer.settings_changed()
        assert heard == [None]
        assert authorizer.generation == generation + 1

    with_authorizer(tmp_path, body)
