"""Users of etcd with least rights, on a real etcd whose access control is turned on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.metadata.etcd_connection import EtcdConnection
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.etcd_users import Right, require_users, rights_of_users
from magnetar.common.metadata.keys import Keys

from tests.certificates import Authority, Pair
from tests.etcd_server import EtcdServer, EtcdTls, grpc_stays, grpc_streams_end

KEYS = Keys("eu")
ADMINISTRATOR = "magnetar-etcd"


@dataclass(frozen=True)
class Etcd:
    """A server, and a certificate for each user."""

    server: EtcdServer
    authority: Authority
    users: dict[str, Pair]

    def access(self, user: str) -> EtcdAccess:
        pair = self.users[user]
        return EtcdAccess(
            tls=True,
            trust_certs=self.authority.certificate,
            certificate=pair.certificate,
            key=pair.key,
        )

    def require(self, rights: dict[str, tuple[Right, ...]] | None = None) -> list[str]:
        """Make the users of the cluster, as the administrator."""
        return asyncio.run(self.require_on_loop(rights))

    async def require_on_loop(self, rights: dict[str, tuple[Right, ...]] | None = None) -> list[str]:
        connection = EtcdConnection([self.server.endpoint], access=self.access(ADMINISTRATOR))
        try:
            wanted = rights_of_users(KEYS) if rights is None else rights
            return await require_users(connection, KEYS, wanted, [ADMINISTRATOR])
        finally:
            await connection.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    authority = Authority(tmp_path)
    names = (*rights_of_users(KEYS), ADMINISTRATOR, "magnetar-job")
    users = {name: authority.issue(name) for name in names}
    tls = EtcdTls(authority.certificate, users[ADMINISTRATOR], users[ADMINISTRATOR])
    with grpc_stays(), EtcdServer.running(tmp_path / "etcd", tls=tls) as server:
        yield Etcd(server, authority, users)


def as_user(etcd: Etcd, user: str, scenario: Callable[[EtcdMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            store = await EtcdMetadataStore.open([etcd.server.endpoint], access=etcd.access(user))
            try:
                await scenario(store)
            finally:
                await store.close()
        finally:
            await grpc_streams_end()

    asyncio.run(main())


def writes(etcd: Etcd, user: str) -> set[str]:
    """Keys that the user may write, of a choice; it may read all of them."""
    keys = {
        "tenants": KEYS.tenant("acme"),
        "instance id": KEYS.instance_id,
        "ledgers": KEYS.ledger(7),
        "bookies": KEYS.bookie("b-1"),
        "counters": KEYS.ledger_id_counter,
        "another cluster": Keys("us").tenant("acme"),
    }
    allowed = set()

    async def scenario(store: EtcdMetadataStore) -> None:
        await store.children(KEYS.root)
        for name, key in keys.items():
            try:
                await store.put(key, b"value")
                allowed.add(name)
            except MetadataError as error:
                if "permission denied" not in str(error):
                    raise

    as_user(etcd, user, scenario)
    return allowed


def test_each_user_may_do_what_its_service_does_and_no_more(etcd: Etcd) -> None:
    etcd.require()
    everything = {"tenants", "instance id", "ledgers", "bookies", "counters"}
    assert writes(etcd, "magnetar-broker") == everything
    assert writes(etcd, "magnetar-admin") == everything
    assert writes(etcd, "magnetar-bookie") == {"instance id", "ledgers", "bookies"}
    assert writes(etcd, "magnetar-discovery") == set()
    assert writes(etcd, "magnetar-backup") == set()


def test_a_service_without_a_role_and_another_clusters_keys_are_refused(etcd: Etcd) -> None:
    etcd.require()

    async def reads(store: EtcdMetadataStore) -> None:
        with pytest.raises(MetadataError, match="permission denied"):
            await store.children(KEYS.root)

    as_user(etcd, "magnetar-job", reads)

    async def reads_another(store: EtcdMetadataStore) -> None:
        with pytest.raises(MetadataError, match="permission denied"):
            await store.children(Keys("us").root)

    as_user(etcd, "magnetar-broker", reads_another)


def test_a_session_and_a_watch_of_a_bookie_go_on_when_access_control_is_turned_on(etcd: Etcd) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        watch = store.watch(KEYS.bookies_prefix)
        session = await store.session(6_000)
        await session.put_ephemeral(KEYS.bookie("b-1"), b"before")
        await etcd.require_on_loop()
        await session.put_ephemeral(KEYS.bookie("b-2"), b"after")
        assert [(await anext(watch)).key for _ in range(2)] == [KEYS.bookie("b-1"), KEYS.bookie("b-2")]
        await session.close()
        assert await store.get(KEYS.bookie("b-1")) is None
        await watch.aclose()

    as_user(etcd, "magnetar-bookie", scenario)


def test_a_second_call_changes_nothing_and_a_smaller_right_takes_the_place_of_a_larger_one(
    etcd: Etcd,
) -> None:
    assert "user magnetar-bookie added" in etcd.require()
    assert etcd.require() == []
    rights = rights_of_users(KEYS) | {"magnetar-bookie": (Right("/magnetar/eu/", True, False),)}
    changes = etcd.require(rights)
    assert len(changes) == 3
    assert all("has no right on" in change for change in changes)
    assert writes(etcd, "magnetar-bookie") == set()
