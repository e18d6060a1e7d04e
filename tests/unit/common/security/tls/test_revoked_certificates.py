"""Revocation lists and open connections: what is read from a list, and which connections end."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from magnetar.common.errors import ConfigError
from magnetar.common.security.certificates import Authority, Leaf
from magnetar.common.security.tls.config import TlsConfig
from magnetar.common.security.tls.revoked_certificates import CLOSED, certificate_id, read_revoked

from tests.unit.common.security.tls.peers import EchoPort, Files, echo_port

CLOSED_WITHIN_S = 2.0


def der(leaf: Leaf) -> bytes:
    return ssl.PEM_cert_to_DER_cert(leaf.certificate.decode())


def lists(path: Path, *pems: bytes) -> str:
    path.write_bytes(b"".join(pems))
    return str(path)


@pytest.mark.parametrize("rsa_bits", [0, 2048])
def test_certificates_of_all_lists_of_a_file_are_found(tmp_path: Path, rsa_bits: int) -> None:
    one, other = Authority("one", rsa_bits=rsa_bits), Authority("other")
    revoked, kept, foreign = one.issue("r"), one.issue("k"), other.issue("f")
    found = read_revoked(
        lists(tmp_path / "crl.pem", one.revocation_list([revoked]), other.revocation_list([foreign]))
    )
    assert found == {certificate_id(der(revoked)), certificate_id(der(foreign))}
    assert certificate_id(der(kept)) not in found
    assert read_revoked(lists(tmp_path / "empty.pem", one.revocation_list())) == frozenset()
    many = [one.issue(f"c{number}") for number in range(20)]
    assert len(read_revoked(lists(tmp_path / "many.pem", one.revocation_list(many)))) == 20


def test_the_same_number_of_another_authority_is_another_certificate(tmp_path: Path) -> None:
    one = Authority("one")
    leaf = one.issue("r")
    issuer, serial = certificate_id(der(leaf))
    assert (b"another" + issuer, serial) not in read_revoked(
        lists(tmp_path / "crl.pem", one.revocation_list([leaf]))
    )


def test_damaged_lists_are_an_error(tmp_path: Path) -> None:
    whole = Authority("one").revocation_list()
    for name, content in (("cut", whole[:-40]), ("body", whole.replace(b"M", b"!", 3))):
        with pytest.raises(ConfigError, match="revocation lists"):
            read_revoked(lists(tmp_path / name, content))
    with pytest.raises(ConfigError, match="cannot read"):
        read_revoked(str(tmp_path / "missing"))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def with_lists(files: Files, *revoked: Leaf) -> TlsConfig:
    path = files.directory / "crl.pem"
    path.write_bytes(files.authority.revocation_list(revoked))
    return replace(files.config, crl_file=str(path))


async def connect(
    files: Files, port: EchoPort, leaf: Leaf | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=files.client(leaf))
    await goes_on(reader, writer)
    return reader, writer


async def goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"ping")
    async with asyncio.timeout(20):
        assert await reader.readexactly(4) == b"ping"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_open_connections_with_a_revoked_certificate_end_and_others_go_on(
    run: Callable[..., None], files: Files
) -> None:
    async def body() -> None:
        revoked, kept = files.authority.issue("revoked"), files.authority.issue("kept")
        before = CLOSED._value.get()
        async with echo_port(with_lists(files)) as port:
            ended = [await connect(files, port, revoked) for _ in range(2)]
            others = [await connect(files, port, kept), await connect(files, port, None)]
            await port.tls.reload.look()  # nothing has changed
            with_lists(files, revoked)
            began = time.monotonic()
            await port.tls.reload.look()
            for reader, writer in ended:
                async with asyncio.timeout(20):
                    assert await reader.read() == b""
                writer.close()
            assert time.monotonic() - began < 5 * CLOSED_WITHIN_S
            for reader, writer in others:
                await goes_on(reader, writer)
                writer.close()
            assert CLOSED._value.get() == before + 2
            assert await port.echo(files.client(revoked)) is None, "new connections are refused"

    run(body())


def test_connections_that_ended_are_not_remembered(files: Files) -> None:
    async def body() -> None:
        leaf = files.authority.issue("client")
        async with echo_port(with_lists(files)) as port:
            certified = port.tls.binary.handshakes.certified
            assert certified is not None
            for _ in range(3):
                _, writer = await connect(files, port, leaf)
                writer.close()
            async with asyncio.timeout(20):
                while len(certified):
                    port.protocols.clear()
                    await asyncio.sleep(0.01)

    uvloop.run(body())


def test_without_lists_no_certificate_is_looked_at(files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config) as port:
            assert port.tls.binary.handshakes.certified is None

    asyncio.run(body())
