"""The examples of docs/client.md, run as a reader would, and what their comments say that they print.

Whole programs run in processes of their own. The other blocks of a section run one after the other, inside a
coroutine with a client, and share their names. One standalone serves all of them: with TLS, four providers
of authentication, and an anonymous role for the examples without credentials.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from magnetar.client import (
    Batching,
    Client,
    Consumer,
    DeadLetterPolicy,
    Message,
    MessageId,
    Producer,
    Reader,
    Tls,
)
from magnetar.common.security.authentication.apr1 import apr1
from magnetar.common.security.certificates import Authority
from magnetar.testing import StandaloneProcess, standalone
from magnetar.testing.free_ports import free_ports

from tests.clients.token_issuer import TokenIssuer, serving
from tests.integration.harness import (
    ROOT,
    SERVICE_URL_VARIABLE,
    external_endpoint,
)

PAGE = (ROOT / "docs/client.md").read_text(encoding="utf-8")
DOCUMENTED_URL = "pulsar://localhost:6650"
PROGRAM_SECONDS_MAX = 60
PROVIDERS = "org.apache.pulsar.broker.authentication"
ISSUER_FILE = "/etc/orders/oauth2.json"
SECURED = "Security"


@dataclass
class Section:
    """The Python blocks of a section of the page."""

    title: str
    fragments: list[str] = field(default_factory=list)
    """Blocks for a coroutine that has a client."""
    programs: list[str] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    """Blocks that programs import, by file name."""


def sections() -> Iterator[Section]:
    for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        section = Section(text.partition("\n")[0])
        for before, code in re.findall(r"([^\n]*)\n+```python\n(.*?)```", text, re.DOTALL):
            named = re.search(r"`(\w+\.py)`:$", before)
            if named:
                section.modules[named[1]] = code
            elif "asyncio.run(" in code:
                section.programs.append(code)
            else:
                section.fragments.append(code)
        if section.fragments or section.programs:
            yield section


SECTIONS = {each.title: each for each in sections()}
PROGRAMS = [code for each in SECTIONS.values() for code in each.programs]
MODULES = {name: code for each in SECTIONS.values() for name, code in each.modules.items()}
WITH_FRAGMENTS = [each.title for each in SECTIONS.values() if each.fragments]
SIGNALED = "signal.SIGTERM"


def printed_by(code: str) -> list[str]:
    """Returns the lines that a block prints, as comments beside prints or after its last line say."""
    beside = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
    after = re.search(r"(?:^# .*\n)+\Z", code, re.MULTILINE)
    return beside + [line[2:] for line in after[0].splitlines()] if after else beside


@dataclass(frozen=True)
class Service:
    """The addresses and the directory that stand for those of the page."""

    addresses: Mapping[str, str]
    directory: Path
    """Where the examples run."""
    is_secured: bool

    def here(self, code: str) -> str:
        for documented, actual in self.addresses.items():
            code = code.replace(documented, actual)
        return code


def prepare(directory: Path) -> None:
    """Writes the files that examples and the broker read."""
    authority = Authority("documented")
    (directory / "ca.pem").write_bytes(authority.certificate)
    for name in ("broker", "issuer"):
        authority.issue(name, dns=["localhost"]).write(directory, name)
    authority.issue("orders").write(directory, "orders")
    secret = os.urandom(32)
    (directory / "secret").write_bytes(secret)
    (directory / "orders.token").write_text(jwt.encode({"sub": "orders"}, secret, "HS256"))
    (directory / "htpasswd").write_text(f"alice:{apr1(b'correct-horse', 'Zk3mPq7x')}\n")
    (directory / "oauth2.json").write_text(
        json.dumps({"type": "client_credentials", "client_id": "orders", "client_secret": "s3cret"})
    )
    owner = rsa.generate_private_key(65537, 2048)
    (directory / "owner-private.pem").write_bytes(
        owner.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (directory / "owner-public.pem").write_bytes(
        owner.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples run."""
    return tmp_path_factory.mktemp("documented")


@pytest.fixture(scope="module")
def issuer(directory: Path) -> Iterator[TokenIssuer]:
    """The issuer of tokens for OAuth2."""
    prepare(directory)
    files = directory / "issuer.cert.pem", directory / "issuer.key.pem"
    with serving("orders", "s3cret", "messaging", *files) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def magnetar_standalone(directory: Path, issuer: TokenIssuer) -> Iterator[StandaloneProcess | None]:
    """Takes the place of the plug-in's, which shows the log of a test that fails. None: the environment names
    a service.
    """
    if external_endpoint() is not None:
        yield None
        return
    names = ("AuthenticationProviderTls", "AuthenticationProviderToken", "AuthenticationProviderBasic")
    providers = [*(f"{PROVIDERS}.{name}" for name in names), f"{PROVIDERS}.oidc.AuthenticationProviderOpenID"]
    with standalone(
        advertisedAddress="localhost",
        brokerServicePortTls=free_ports(1)[0],
        tlsCertificateFilePath=f"{directory}/broker.cert.pem",
        tlsKeyFilePath=f"{directory}/broker.key.pem",
        tlsTrustCertsFilePath=f"{directory}/ca.pem",
        authenticationEnabled=True,
        authenticationProviders=",".join(providers),
        anonymousUserRole="reader",
        tokenSecretKey=f"file://{directory}/secret",
        basicAuthConf=f"file://{directory}/htpasswd",
        openIDAllowedTokenIssuers=issuer.url,
        openIDAllowedAudiences="messaging",
        openIDTokenIssuerTrustCertsFilePath=f"{directory}/ca.pem",
        brokerDeduplicationEnabled=True,
        transactionCoordinatorEnabled=True,
    ) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture
def service(directory: Path, issuer: TokenIssuer, magnetar_standalone: StandaloneProcess | None) -> Service:
    """A standalone as the page's examples need it, or the service that the environment names."""
    found = magnetar_standalone or external_endpoint()
    assert found is not None
    url = found.service_url
    hosts = url.removeprefix("pulsar://")
    addresses = {
        DOCUMENTED_URL: url,
        "broker-1.example.com:6650": hosts,
        "broker-2.example.com:6650": hosts,
        "https://issuer.example.com": issuer.url,
        ISSUER_FILE: str(directory / "oauth2.json"),
    }
    if magnetar_standalone is not None:
        port = magnetar_standalone.settings["brokerServicePortTls"]
        addresses["pulsar+ssl://broker.example.com:6651"] = f"pulsar+ssl://localhost:{port}"
    return Service(addresses, directory, magnetar_standalone is not None)


def test_no_example_is_left_out() -> None:
    run = sum(len(each.fragments) + len(each.programs) + len(each.modules) for each in SECTIONS.values())
    assert run == PAGE.count("```python\n")
    assert len(PROGRAMS) == 6
    assert list(MODULES) == ["app.py"]
    for code in (each for section in SECTIONS.values() for each in (*section.fragments, *section.programs)):
        prints = len(re.findall(r"^ *print\(", code, re.MULTILINE))
        assert SIGNALED in code or len(printed_by(code)) >= prints, f"does not say what it prints:\n{code}"


def test_the_calls_of_both_clients_that_the_table_compares_exist() -> None:
    _, _, table = PAGE.partition("## Coming from pulsar-client")
    rows = re.findall(r"^\| (.*`.*) \| (.*) \|$", table, re.MULTILINE)
    left, right = "\n".join(row[0] for row in rows), "\n".join(row[1] for row in rows)
    theirs = names_of(pulsar, pulsar.Client, pulsar.Producer, pulsar.Consumer, pulsar.Reader, pulsar.Message)
    theirs |= names_of(pulsar.MessageId, pulsar.ConsumerDeadLetterPolicy, pulsar.CryptoKeyReader)
    ours = names_of(Client, Producer, Consumer, Reader, Message, MessageId, Tls, Batching, DeadLetterPolicy)
    for text, known in ((left, theirs), (right, ours)):
        found = set(re.findall(r"\b([a-z_]+)(?:=|\()", text)) - {"compile"}
        assert len(found) > 40
        assert found - known == set()


def names_of(*owners: Any) -> set[str]:
    """Names of members, and of parameters of members."""
    found = set[str]()
    for owner in owners:
        for name in dir(owner):
            found.add(name)
            with contextlib.suppress(TypeError, ValueError):
                found |= inspect.signature(getattr(owner, name)).parameters.keys()
        with contextlib.suppress(TypeError, ValueError):
            found |= inspect.signature(owner).parameters.keys()
    return found


@pytest.fixture
def client_log() -> Iterator[None]:
    """Restores the level of the client's log, which an example changes, for the tests that follow."""
    logger = logging.getLogger("magnetar.client")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("client_log")
@pytest.mark.parametrize("title", WITH_FRAGMENTS)
def test_examples_of_a_section_print_what_they_say(
    service: Service, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title == SECURED and not service.is_secured:
        pytest.skip(f"needs certificates and tokens, {SERVICE_URL_VARIABLE} names a service without")
    monkeypatch.chdir(service.directory)
    fragments = SECTIONS[title].fragments
    names: dict[str, Any] = {"__name__": "documented"}

    async def run() -> None:
        async with asyncio.timeout(PROGRAM_SECONDS_MAX), Client(service.addresses[DOCUMENTED_URL]) as client:
            names["client"] = client
            for code in fragments:
                flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                compiled = compile(service.here(code), "docs/client.md", "exec", flags, dont_inherit=True)
                work = eval(compiled, names)
                if work is not None:
                    await work

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        asyncio.run(run())
    assert printed.getvalue().splitlines() == [line for code in fragments for line in printed_by(code)]


def start(service: Service, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", service.here(code)],
        cwd=service.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, len(PROGRAMS)))],
)
def test_a_program_prints_what_it_says(service: Service, number: int) -> None:
    code = PROGRAMS[number]
    app = service.directory / "app.py"
    app.write_text(service.here(MODULES["app.py"]))
    with start(service, code) as program:
        try:
            if SIGNALED in code:
                see_the_worker_stop(service, program)
                return
            output, errors = program.communicate(timeout=PROGRAM_SECONDS_MAX)
            assert program.returncode == 0, errors
            assert output.splitlines() == printed_by(code)
        finally:
            program.kill()


def see_the_worker_stop(service: Service, program: subprocess.Popen[str]) -> None:
    """Gives the worker work, ends it by SIGTERM, and finds nothing of it left."""

    async def publish(first: int) -> None:
        async with Client(service.addresses[DOCUMENTED_URL]) as client:
            producer = await client.create_producer("work")
            for number in range(first, first + 5):
                await producer.send(b"job %d" % number)

    async def left() -> bytes:
        async with Client(service.addresses[DOCUMENTED_URL]) as client:
            consumer = await client.subscribe("work", "workers", type="shared")
            return (await consumer.receive(timeout_s=10)).data

    asyncio.run(publish(0))
    assert program.stdout is not None
    assert {program.stdout.readline() for _ in range(5)} == {f"handled job {number}\n" for number in range(5)}
    program.send_signal(signal.SIGTERM)
    _, errors = program.communicate(timeout=PROGRAM_SECONDS_MAX)
    assert program.returncode == 0, errors
    asyncio.run(publish(5))
    assert asyncio.run(left()) == b"job 5"
