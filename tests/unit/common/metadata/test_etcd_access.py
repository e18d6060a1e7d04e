"""etcd with TLS, client certificates, role-based access control and passwords; renewed credentials."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import pytest
from magnetar.common.errors import ConfigError, MetadataError
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.metadata.etcd_connection import EtcdConnection
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.open_store import etcd_endpoints, etcd_tls, open_metadata_store

from tests.certificates import Authority, Pair
from tests.etcd_server import EtcdServer, EtcdTls, grpc_stays, grpc_streams_end

REFRESH_S = 0.05


@dataclass(frozen=True)
class Secured:
    """An etcd whose users are `root` (a certificate), `reader` (a certificate) and `pat` (a password)."""

    server: EtcdServer
    authority: Authority
    root: Pair
    reader: Pair
    password_file: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory)
    root, reader = authority.issue("root"), authority.issue("reader")
    tls = EtcdTls(authority.certificate, authority.issue("server"), root)
    with grpc_stays(), EtcdServer.running(directory / "etcd", tls=tls) as server:
        for command in (
            "user add root --no-password",
            "role add root",
            "user grant-role root root",
            "user add reader --no-password",
            "role add reader",
            "role grant-permission reader --prefix=true read /",
            "user grant-role reader reader",
            "user add pat:secret",
            "role add writer",
            "role grant-permission writer --prefix=true readwrite /",
            "user grant-role pat writer",
            "auth enable",
        ):
            server.etcdctl(*command.split())
        password_file = directory / "password"
        password_file.write_text("secret\n")
        yield Secured(server, authority, root, reader, password_file)


def run(
    server: EtcdServer, access: EtcdAccess, scenario: Callable[[EtcdMetadataStore], Awaitable[None]]
) -> None:
    async def main() -> None:
        try:
            store = await EtcdMetadataStore.open([server.endpoint], access=access)
            try:
                await scenario(store)
            finally:
                await store.close()
        finally:
            await grpc_streams_end()

    asyncio.run(main())


def by_certificate(secured: Secured, pair: Pair, refresh_s: float = 300.0) -> EtcdAccess:
    return EtcdAccess(
        tls=True,
        trust_certs=secured.authority.certificate,
        certificate=pair.certificate,
        key=pair.key,
        refresh_s=refresh_s,
    )


def test_the_common_name_of_the_certificate_is_the_user(secured: Secured) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        await store.put("/by-certificate", b"value")
        found = await store.get("/by-certificate")
        assert found is not None
        assert found.value == b"value"

    run(secured.server, by_certificate(secured, secured.root), scenario)


def test_a_user_without_the_right_to_write_is_refused_and_nothing_is_written(secured: Secured) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        with pytest.raises(MetadataError, match="permission denied; nothing was written"):
            await store.put("/by-reader", b"value")
        assert await store.get("/by-reader") is None

    run(secured.server, by_certificate(secured, secured.reader), scenario)


def test_a_caller_without_a_certificate_gets_no_connection(secured: Secured) -> None:
    async def main() -> None:
        access = EtcdAccess(tls=True, trust_certs=secured.authority.certificate)
        with pytest.raises(MetadataError, match="no connection to etcd"):
            await EtcdMetadataStore.open([secured.server.endpoint], request_timeout_s=1.0, access=access)

    asyncio.run(main())


def test_a_password_gives_a_token_and_a_token_that_etcd_forgot_is_requested_again(
    secured: Secured,
) -> None:
    # The password belongs to another user than the certificate, which etcd requires here: the token counts.
    access = EtcdAccess(
        tls=True,
        trust_certs=secured.authority.certificate,
        certificate=secured.reader.certificate,
        key=secured.reader.key,
        user="pat",
        password_file=secured.password_file,
    )

    async def scenario(store: EtcdMetadataStore) -> None:
        changes = store.watch("/token/")
        session = await store.session(10_000)
        await store.put("/token/before", b"1")
        assert (await anext(changes)).key == "/token/before"
        secured.server.stop()  # simple tokens are in memory
        secured.server.start()
        await store.put("/token/after", b"2")
        assert (await anext(changes)).key == "/token/after"
        await session.put_ephemeral("/token/ephemeral", b"3")
        assert not session.has_ended
        await changes.aclose()

    run(secured.server, access, scenario)


def test_a_wrong_password_is_reported_with_the_user(secured: Secured, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("guess")
    access = EtcdAccess(
        tls=True,
        trust_certs=secured.authority.certificate,
        certificate=secured.reader.certificate,
        key=secured.reader.key,
        user="pat",
        password_file=wrong,
    )

    async def main() -> None:
        with pytest.raises(MetadataError, match="refused the user 'pat'"):
            await EtcdMetadataStore.open([secured.server.endpoint], access=access)
        await grpc_streams_end()

    asyncio.run(main())


def replace(pair: Pair, by: Pair) -> None:
    """Put other files in the place of a certificate and its key, each at once."""
    for old, new in ((pair.key, by.key), (pair.certificate, by.certificate)):
        copy = old.with_suffix(".new")
        shutil.copy(new, copy)
        os.replace(copy, old)


def test_a_replaced_certificate_is_used_without_a_restart_and_watches_go_on(
    secured: Secured, tmp_path: Path
) -> None:
    own = Pair(tmp_path / "own.pem", tmp_path / "own.key")
    shutil.copy(secured.reader.certificate, own.certificate)
    shutil.copy(secured.reader.key, own.key)

    async def scenario(store: EtcdMetadataStore) -> None:
        changes = store.watch("/renewed/")
        with pytest.raises(MetadataError, match="permission denied"):
            await store.put("/renewed/one", b"1")
        replace(own, secured.root)
        async with asyncio.timeout(30):
            while True:
                try:
                    await store.put("/renewed/two", b"2")
                    break
                except MetadataError:
                    await asyncio.sleep(REFRESH_S)
        assert (await anext(changes)).key == "/renewed/two"
        await changes.aclose()

    run(secured.server, by_certificate(secured, own, REFRESH_S), scenario)


def test_a_call_during_which_rights_changed_is_repeated_also_without_a_token() -> None:
    async def main() -> None:
        connection = EtcdConnection(["127.0.0.1:1"])
        for details, repeated in (
            ("etcdserver: revision of auth store is old", True),
            ("etcdserver: invalid auth token", False),
            ("etcdserver: permission denied", False),
        ):
            metadata = grpc.aio.Metadata()
            error = grpc.aio.AioRpcError(
                grpc.StatusCode.INVALID_ARGUMENT, metadata, metadata, details=details
            )
            assert connection.token_refused(error) is repeated
        await connection.close()

    asyncio.run(main())


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    access = EtcdAccess(tls=True, trust_certs=tmp_path / "missing.pem")

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"missing\.pem"):
            await open_metadata_store("etcd:https://127.0.0.1:1", access)

    asyncio.run(main())


def test_urls_name_members_with_or_without_tls() -> None:
    assert etcd_endpoints("etcd:https://a:1,https://b:2") == etcd_endpoints("etcd:a:1,b:2") == ["a:1", "b:2"]
    assert etcd_tls("etcd:https://a:1")
    assert not etcd_tls("etcd:a:1")
    assert not etcd_tls("sqlite:x")
    with pytest.raises(ConfigError, match="before every member or before none"):
        etcd_endpoints("etcd:https://a:1,b:2")
