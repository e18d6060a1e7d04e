"""A TLS port accepts and refuses by its files, and changed ones count for new connections alone."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from magnetar.common.errors import ConfigError
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls.server_context import ServerTls

from tests.unit.common.security.tls.peers import Files, counted, echo_port

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_client_certificate_is_optional_and_reaches_the_protocol(run: Run, files: Files) -> None:
    async def body() -> None:
        leaf = files.authority.issue("me")
        async with echo_port(files.config) as port:
            assert await port.echo(files.client()) is not None
            assert port.protocols[-1].certificate is None
            assert await port.echo(files.client(leaf)) is not None
            assert port.protocols[-1].certificate == ssl.PEM_cert_to_DER_cert(leaf.certificate.decode())

    run(body())


def test_a_client_certificate_of_version_1_is_accepted(run: Run, files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config) as port:
            assert await port.echo(files.client(files.authority.issue_v1("old"))) is not None

    run(body())


@pytest.mark.parametrize("required", [False, True])
def test_an_untrusted_or_expired_certificate_is_refused_also_where_none_is_needed(
    run: Run, files: Files, required: bool
) -> None:
    async def body() -> None:
        stranger = Authority("strangers").issue("me")
        late = files.authority.issue("me", lifetime=timedelta(minutes=-1))
        before = counted("untrusted"), counted("expired")
        async with echo_port(files.config, require_client_certificate=required) as port:
            assert await port.echo(files.client(stranger)) is None
            assert await port.echo(files.client(late)) is None
            assert (counted("untrusted"), counted("expired")) == (before[0] + 1, before[1] + 1)
            assert not port.protocols

    run(body())


def test_no_certificate_is_refused_where_one_is_required(run: Run, files: Files) -> None:
    async def body() -> None:
        before = counted("no_certificate")
        async with echo_port(files.config, require_client_certificate=True) as port:
            assert await port.echo(files.client()) is None
            assert await port.echo(files.client(files.authority.issue("me"))) is not None
        assert counted("no_certificate") == before + 1

    run(body())


def test_a_revoked_certificate_is_refused_once_the_list_is_loaded(run: Run, files: Files) -> None:
    async def body() -> None:
        crl = files.directory / "crl.pem"
        good, bad = files.authority.issue("good"), files.authority.issue("bad")
        crl.write_bytes(files.authority.revocation_list())
        before = counted("revoked")
        async with echo_port(files.config, crl_file=str(crl)) as port:
            assert await port.echo(files.client(bad)) is not None
            crl.write_bytes(files.authority.revocation_list([bad]))
            await port.tls.reload.look()
            assert await port.echo(files.client(bad)) is None
            assert await port.echo(files.client(good)) is not None
        assert counted("revoked") == before + 1

    run(body())


def test_new_files_count_for_new_connections_and_open_ones_stay(run: Run, files: Files) -> None:
    async def body() -> None:
        other = Authority("later")
        first, second = files.authority.issue("me"), other.issue("me")
        async with echo_port(files.config) as port:
            old = await port.echo(files.client(first))
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=files.client(first))
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            assert await port.echo(files.client(second)) is None
            files.trust(other)
            files.serve(files.authority.issue("renewed", dns=["localhost"], ips=["127.0.0.1"]))
            await port.tls.reload.look()
            shown = await port.echo(files.client(second))
            assert shown is not None
            assert shown != old
            # Its authority is not trusted any more, and no session brings the client back in.
            assert await port.echo(files.client(first)) is None
            writer.write(b"pong")
            assert await reader.readexactly(4) == b"pong"
            writer.transport.abort()

    run(body())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(files: Files, version: ssl.TLSVersion) -> None:
    """By memory, without sockets: the whole exchange is known to be over, and closed as it should be."""
    server = ServerTls(files.config)
    context = files.client()
    context.maximum_version = context.minimum_version = version

    def connect(begins_with: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession]:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        theirs = begins_with.wrap_bio(to_server, to_client, server_side=True)
        ours = context.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        for side in (ours, theirs, ours, theirs, ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        theirs.write(b"x")
        assert ours.read() == b"x"
        found = ours.session
        for side in (ours, theirs, ours):
            with suppress(ssl.SSLWantReadError):
                side.unwrap()
        assert found is not None
        return bool(theirs.session_reused), found

    _, session = connect(server.handshake_context(), None)
    assert connect(server.handshake_context(), session)[0] is False
    if version is ssl.TLSVersion.TLSv1_2:  # one context would have resumed it: the test can fail
        same = server.handshake_context()
        _, session = connect(same, None)
        assert connect(same, session)[0] is True


def test_only_allowed_versions_and_suites_are_spoken(files: Files) -> None:
    async def body() -> None:
        old, new = files.client(), files.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        new.minimum_version = ssl.TLSVersion.TLSv1_3
        before = counted("incompatible")
        async with echo_port(files.config, protocols=("TLSv1.3",)) as port:
            assert await port.echo(old) is None
            assert await port.echo(new) is not None
        async with echo_port(files.config, ciphers=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)) as port:
            assert await port.echo(new) is None
            assert await port.echo(old) is not None
            old.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
            assert await port.echo(old) is None
        assert counted("incompatible") == before + 3

    asyncio.run(body())


def test_files_that_cannot_be_used_are_named(files: Files, tmp_path: Path) -> None:
    other = files.authority.issue("other")
    (tmp_path / "other.key").write_bytes(other.key)
    with pytest.raises(ConfigError, match=r"other\.key is not the key of the certificate in .*server\.pem"):
        ServerTls(replace(files.config, key_file=str(tmp_path / "other.key")))
    (tmp_path / "empty.pem").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"empty\.pem: no PEM file"):
        ServerTls(replace(files.config, trust_certs_file=str(tmp_path / "empty.pem")))
    with pytest.raises(ConfigError, match=r"cannot read .*missing"):
        ServerTls(replace(files.config, certificate_file=str(tmp_path / "missing")))


def test_a_key_with_a_passphrase_is_refused_without_asking_a_terminal(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    locked = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"secret"))
    (tmp_path / "server.key").write_bytes(locked)
    with pytest.raises(ConfigError, match="passphrase"):
        ServerTls(files.config)
