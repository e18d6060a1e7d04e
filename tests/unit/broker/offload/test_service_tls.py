"""Jobs and the offload service over mutual TLS: who may call what, and certificates that are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import ConfigError, Unauthorized
from magnetar.common.offload import client_channel
from magnetar.common.offload.client_channel import LOOK_S, ClientChannel
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.common.offload.service_url import ServiceUrl
from magnetar.common.security.certificates import Authority
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials

from tests.unit.broker.offload.served import CLUSTER, HOST, A, Calls, Served

JOB = f"spiffe://{CLUSTER}/job"
SHORT_S = 1.5
"""Deadline of calls that do not get through."""


class Certificates:
    """Files of one authority."""

    def __init__(self, directory: Path, name: str = "services") -> None:
        self.authority = Authority(name)
        self._directory = directory / name
        self._directory.mkdir()
        self.trust = self._directory / "ca.pem"
        self.trust.write_bytes(self.authority.certificate)

    def issue(self, name: str, *uris: str, trust: Path | None = None) -> CredentialFiles:
        leaf = self.authority.issue(name, ips=[HOST], dns=["services"], uris=uris)
        for path in (self._directory / f"{name}.cert.pem", self._directory / f"{name}.key.pem"):
            path.unlink(missing_ok=True)
        certificate, key = leaf.write(self._directory, name)
        return CredentialFiles(trust_certs=trust or self.trust, certificate=certificate, key=key)


def serving_tls(tmp_path: Path, body: Callable[[Served, Certificates], Awaitable[None]]) -> None:
    async def run() -> None:
        made = Certificates(tmp_path)
        broker = ServiceCredentials(made.issue("broker", f"spiffe://{CLUSTER}/broker"))
        served = Served(Calls(), tls=broker)
        await served.start()
        try:
            await body(served, made)
        finally:
            await served.stop()

    asyncio.run(run())


async def ask(
    served: Served,
    tls: CredentialFiles | None,
    call: Callable[[OffloadChannel], object],
    scheme: str = "grpcs://",
) -> object:
    def run() -> object:
        with OffloadChannel(f"{scheme}{served.address}", tls, deadline_s=SHORT_S) as channel:
            return call(channel)

    return await asyncio.to_thread(run)


def test_a_job_calls_everything_and_reads_entries(tmp_path: Path) -> None:
    async def body(served: Served, made: Certificates) -> None:
        job = made.issue("job", JOB)
        served.calls.parts = [b"one", b"two"]
        read = await ask(served, job, lambda channel: list(channel.read("t", 1, 2, 0, 1)))
        assert read == [b"one", b"two"]
        await ask(served, job, lambda channel: channel.begin("t", 1, 2, A))
        described = await ask(served, job, lambda channel: channel.describe("t").address)
        assert described == f"grpcs://{served.address}", "later calls to the owner use TLS, too"

    serving_tls(tmp_path, body)


def test_the_owner_is_asked_with_the_same_certificate(tmp_path: Path) -> None:
    async def body(served: Served, made: Certificates) -> None:
        own = ServiceCredentials(made.issue("other", f"spiffe://{CLUSTER}/broker"))
        owner = Served(Calls(), tls=own)
        await owner.start()
        try:
            served.calls.owner = owner.address
            found = await ask(served, made.issue("job", JOB), lambda channel: channel.describe("t").address)
            assert found == f"grpcs://{owner.address}"
        finally:
            await owner.stop()

    serving_tls(tmp_path, body)


@pytest.mark.parametrize(
    "uri", ["", "spiffe://green/job", f"spiffe://{CLUSTER}/discovery", f"spiffe://{CLUSTER}/admin"]
)
def test_other_identities_of_the_authority_change_nothing(tmp_path: Path, uri: str) -> None:
    async def body(served: Served, made: Certificates) -> None:
        files = made.issue("other", *filter(None, [uri]))
        with pytest.raises(Unauthorized, match=r"may not call Begin|no URI"):
            await ask(served, files, lambda channel: channel.begin("t", 1, 2, A))
        assert not served.calls.asked
        if not uri.endswith("/admin"):
            with pytest.raises(Unauthorized, match=r"may not call Read|no URI"):
                await ask(served, files, lambda channel: list(channel.read("t", 1, 2, 0, 1)))
        assert not served.calls.asked

    serving_tls(tmp_path, body)


def test_a_clients_certificate_and_none_do_not_complete_the_handshake(tmp_path: Path) -> None:
    async def body(served: Served, made: Certificates) -> None:
        clients = Certificates(tmp_path, "clients")
        foreign = clients.issue("job", JOB, trust=made.trust)
        for files in (foreign, CredentialFiles(trust_certs=made.trust)):
            with pytest.raises(OffloadUnreachable):
                await ask(served, files, lambda channel: channel.wanted())
        with pytest.raises(OffloadUnreachable):
            await ask(served, None, lambda channel: channel.wanted(), scheme="")
        distrusting = made.issue("job", JOB, trust=clients.trust)
        with pytest.raises(OffloadUnreachable):
            await ask(served, distrusting, lambda channel: channel.wanted())
        assert not served.calls.asked

    serving_tls(tmp_path, body)


def test_files_are_needed_and_checked_before_the_first_call(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give PEM files"):
        OffloadChannel("grpcs://127.0.0.1:6750")
    with pytest.raises(ConfigError, match=r"cannot read .*missing"):
        OffloadChannel("grpcs://127.0.0.1:6750", CredentialFiles(trust_certs=tmp_path / "missing.pem"))
    # For bookies alone: brokers without TLS are called without it.
    OffloadChannel("127.0.0.1:6750", CredentialFiles(trust_certs=tmp_path / "missing.pem")).close()


def test_new_calls_use_renewed_certificates_and_running_ones_end_on_the_earlier(tmp_path: Path) -> None:
    now = [0.0]

    async def body(served: Served, made: Certificates) -> None:
        files = made.issue("job", JOB)
        channel = ClientChannel(ServiceUrl(served.address, tls=True), files, monotonic=lambda: now[0])

        def reuse() -> None:
            with channel.lend() as first, channel.lend() as second:
                assert first is second
                made.issue("job", JOB)
                with channel.lend() as early:
                    assert early is first, f"files are checked every {client_channel.LOOK_S} s"
                now[0] += LOOK_S
                with channel.lend() as renewed:
                    assert renewed is not first
                # Not closed under the calls that it still has: gRPC raises ValueError for a closed channel.
                first.unary_unary("/x/y")
            call: Any = first.unary_unary("/x/y")
            with pytest.raises(ValueError, match="closed"):
                call(b"", timeout=SHORT_S)
            with channel.lend() as again:
                assert again is renewed
            channel.close()
            with pytest.raises(OffloadUnreachable, match="closed"), channel.lend():
                pass

        await asyncio.to_thread(reuse)

    serving_tls(tmp_path, body)
