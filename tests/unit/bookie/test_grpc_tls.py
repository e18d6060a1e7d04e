"""TLS and mutual TLS between clients and a bookie, both by configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.bookie.config import TlsConfig
from magnetar.bookie.tls import caller_check, server_credentials, service_credentials
from magnetar.common.errors import ConfigError
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials, loaded
from magnetar.common.security.services.service_identity import Service, ServiceIdentity
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, UNREACHABLE, Code
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import CALLERS

from tests.certificates import Authority, Pair
from tests.unit.bookie.grpc_bookie import append, running

CLUSTER = "one-cluster"
BROKER = ServiceIdentity(CLUSTER, Service.BROKER, "b1").uri


def outcome(directory: Path, server: TlsConfig, client: CredentialFiles | None) -> tuple[Code.ValueType, str]:
    """What one append over these two ends is answered."""

    own = service_credentials(server)

    async def main() -> tuple[Code.ValueType, str]:
        async with (
            asyncio.timeout(60),
            running(
                directory,
                credentials=server_credentials(server, own),
                callers=caller_check(server, CLUSTER),
                tls=loaded(client),
            ) as bookie,
        ):
            answer = await append(bookie.client, 0, [b"a"])
            if answer[0] == OK:
                assert (await bookie.client.describe()).bookie_id == "b1"
            return answer

    return asyncio.run(main())


def test_a_client_that_trusts_the_bookie_is_served_and_others_are_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("bookie")
    server = TlsConfig(certificate=str(pair.certificate), key=str(pair.key))
    trusting = CredentialFiles(trust_certs=authority.certificate)
    assert outcome(tmp_path, server, trusting) == (OK, "")
    stranger = CredentialFiles(trust_certs=Authority(tmp_path, "stranger").certificate)
    assert outcome(tmp_path, server, stranger)[0] == UNREACHABLE
    assert outcome(tmp_path, server, None)[0] == UNREACHABLE


def test_with_mutual_tls_only_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair, own, foreign = (
        authority.issue("bookie"),
        authority.issue("broker", BROKER),
        stranger.issue("broker", BROKER),
    )
    server = TlsConfig(
        certificate=str(pair.certificate),
        key=str(pair.key),
        trust_certs=str(authority.certificate),
        client_authentication=True,
    )
    trust = authority.certificate
    known = CredentialFiles(trust_certs=trust, certificate=own.certificate, key=own.key)
    assert outcome(tmp_path, server, known) == (OK, "")
    assert outcome(tmp_path, server, CredentialFiles(trust_certs=trust))[0] == UNREACHABLE
    unknown = CredentialFiles(trust_certs=trust, certificate=foreign.certificate, key=foreign.key)
    assert outcome(tmp_path, server, unknown)[0] == UNREACHABLE


def test_with_mutual_tls_a_certificate_of_a_client_or_of_another_service_cannot_append(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("bookie")
    server = TlsConfig(
        certificate=str(pair.certificate),
        key=str(pair.key),
        trust_certs=str(authority.certificate),
        client_authentication=True,
    )
    for name, uri in (("client", ""), ("job", ServiceIdentity(CLUSTER, Service.JOB).uri)):
        own = authority.issue(name, uri)
        files = CredentialFiles(trust_certs=authority.certificate, certificate=own.certificate, key=own.key)
        code, reason = outcome(tmp_path, server, files)
        assert code == UNREACHABLE
        assert "PERMISSION_DENIED" in reason


def test_authorized_roles_narrow_what_services_may_call(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.issue("bookie"), authority.issue("broker", BROKER)
    files = CredentialFiles(trust_certs=authority.certificate, certificate=own.certificate, key=own.key)
    for roles, expected in ((("broker",), OK), ((BROKER,), OK), (("bookie",), UNREACHABLE)):
        server = TlsConfig(
            certificate=str(pair.certificate),
            key=str(pair.key),
            trust_certs=str(authority.certificate),
            client_authentication=True,
            authorized_roles=roles,
        )
        assert outcome(tmp_path, server, files)[0] == expected


def test_certificates_and_their_authority_are_rotated_without_a_failed_append(tmp_path: Path) -> None:
    """The order of docs/security.md: trust both authorities, issue anew, trust the new one alone."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    both = old.certificate.read_bytes() + new.certificate.read_bytes()
    trust = tmp_path / "trust.pem"
    trust.write_bytes(old.certificate.read_bytes())
    bookie_pair, broker_pair = old.issue("bookie"), old.issue("broker", BROKER)

    def held(pair: Pair) -> ServiceCredentials:
        return ServiceCredentials(
            CredentialFiles(trust_certs=trust, certificate=pair.certificate, key=pair.key)
        )

    def reissue(pair: Pair, name: str, uri: str = "") -> None:
        issued = new.issue(name, uri)
        replace_file(pair.key, issued.key.read_bytes())
        replace_file(pair.certificate, issued.certificate.read_bytes())

    async def main() -> None:
        server, client = held(bookie_pair), held(broker_pair)
        check = CallerCheck(CLUSTER, CALLERS)
        async with (
            asyncio.timeout(120),
            running(tmp_path, credentials=server.server(), callers=check, tls=client) as bookie,
        ):
            appended = 0

            async def append_and_read() -> None:
                nonlocal appended
                assert await append(bookie.client, appended, [b"a"]) == (OK, "")
                appended += 1
                assert (await bookie.client.describe()).bookie_id == "b1"

            await append_and_read()
            replace_file(trust, both)
            assert server.look()
            assert client.look()
            await append_and_read()
            reissue(bookie_pair, "bookie-2")
            reissue(broker_pair, "broker-2", BROKER)
            assert server.look()
            assert client.look()
            await append_and_read()
            replace_file(trust, new.certificate.read_bytes())
            assert server.look()
            assert client.look()
            await append_and_read()
            # A new connection shows that the new authority alone is trusted, by both ends.
            fresh = GrpcBookieClients(lambda _: f"127.0.0.1:{bookie.port}", tls=client)
            assert (await fresh.client("b1").describe()).bookie_id == "b1"
            await fresh.close()
            stale_pair = old.issue("stale", BROKER)
            stale = GrpcBookieClients(lambda _: f"127.0.0.1:{bookie.port}", tls=held(stale_pair))
            with pytest.raises(BookieUnreachable):
                await stale.client("b1").describe()
            await stale.close()

    asyncio.run(main())


def replace_file(path: Path, content: bytes) -> None:
    """Put another file in its place at once, as the mount of a Kubernetes secret does."""
    copy = path.with_suffix(".new")
    copy.write_bytes(content)
    copy.replace(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"missing\.pem: No such file"):
        service_credentials(TlsConfig(certificate=str(missing), key=str(missing)))
    with pytest.raises(ConfigError, match=r"text\.pem is not a PEM file"):
        GrpcBookieClients(lambda _: None, tls=loaded(CredentialFiles(trust_certs=text)))
    with pytest.raises(ConfigError, match="together"):
        GrpcBookieClients(lambda _: None, tls=loaded(CredentialFiles(trust_certs=text, certificate=text)))
