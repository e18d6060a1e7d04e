"""Scenarios of `security_catalogue.py` with the project's own client; called as it says."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from magnetar.client import Basic, Client, Consumer, OAuth2, Producer, Tls, TlsCertificate, Token
from magnetar.client.authentication.methods import Authentication
from magnetar.client.errors import AuthenticationFailed, ConnectionLost, NotAuthorized

from tests.clients.asyncio_client.harness import RECEIVE_S, expect_equal, expect_refused
from tests.clients.security_catalogue import AUDIENCE, USER

RENEWED_MESSAGES = 100
RENEWED_PAUSE_S = 0.08


class Scene:
    """Addresses and files of the service, for one scenario."""

    def __init__(self, arguments: list[str], name: str) -> None:
        directory, tls_port, plain_port, self.issuer, prefix = arguments
        self.directory = Path(directory)
        self.topic = f"persistent://public/default/{prefix}-{name}"
        self.tls_url = f"pulsar+ssl://localhost:{tls_port}"
        self.unnamed_url = f"pulsar+ssl://127.0.0.2:{tls_port}"
        """An address that the certificate does not name."""
        self.plain_url = f"pulsar://localhost:{plain_port}"

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()

    def token(self, name: str) -> Token:
        return Token(self.read(f"{name}.token"))

    def client(
        self,
        authentication: Authentication | None,
        *,
        url: str = "",
        checks_name: bool = False,
        certificate: str = "",
    ) -> Client:
        tls = Tls(
            trust_certs_file=str(self.directory / "ca.pem"),
            certificate_file=str(self.directory / f"{certificate}.cert.pem") if certificate else "",
            key_file=str(self.directory / f"{certificate}.key.pem") if certificate else "",
            verify_hostname=checks_name,
        )
        return Client(url or self.tls_url, authentication=authentication, tls=tls, operation_timeout_s=10)

    async def exchange(self, client: Client, messages: int = 10, pause_s: float = 0) -> None:
        """Send and receive messages in turns."""
        async with client:
            consumer: Consumer[bytes] = await client.subscribe(
                self.topic, "sub", initial_position="earliest", ack_receipts=True
            )
            producer: Producer[bytes] = await client.create_producer(self.topic)
            for number in range(messages):
                await producer.send(b"%d" % number)
                message = await consumer.receive(RECEIVE_S)
                expect_equal(message.data, b"%d" % number, "the next message")
                await consumer.acknowledge(message)
                await asyncio.sleep(pause_s)

    async def refused(self, client: Client, kind: type[Exception]) -> None:
        """Fail unless a producer is refused with the kind of error."""
        async with client:
            await expect_refused("a producer", client.create_producer(self.topic), kind)


async def _name_wrong(scene: Scene) -> None:
    checking = scene.client(scene.token("alice"), url=scene.unnamed_url, checks_name=True)
    await scene.refused(checking, ConnectionLost)
    await scene.exchange(scene.client(scene.token("alice"), url=scene.unnamed_url))


def _oauth2(scene: Scene) -> OAuth2:
    return OAuth2(
        scene.issuer,
        f"file://{scene.directory / 'oauth2.json'}",
        audience=AUDIENCE,
        trust_certs_file=str(scene.directory / "ca.pem"),
    )


async def _renewed(scene: Scene) -> None:
    client = scene.client(Token.from_file(scene.directory / "supplied.token"))
    await scene.exchange(client, RENEWED_MESSAGES, RENEWED_PAUSE_S)


SCENARIOS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "token-tls": lambda scene: scene.exchange(scene.client(scene.token("alice"))),
    "token-plain": lambda scene: scene.exchange(scene.client(scene.token("alice"), url=scene.plain_url)),
    "basic-tls": lambda scene: scene.exchange(scene.client(Basic(USER, scene.read("bob.password")))),
    "certificate": lambda scene: scene.exchange(scene.client(TlsCertificate(), certificate="carol")),
    "name-right": lambda scene: scene.exchange(scene.client(scene.token("alice"), checks_name=True)),
    "name-wrong": _name_wrong,
    "token-forged": lambda scene: scene.refused(scene.client(scene.token("forged")), AuthenticationFailed),
    "no-credentials": lambda scene: scene.refused(scene.client(None), AuthenticationFailed),
    "no-right": lambda scene: scene.refused(scene.client(scene.token("mallory")), NotAuthorized),
    "token-renewed": _renewed,
    "oauth2": lambda scene: scene.exchange(scene.client(_oauth2(scene))),
}


async def _run(arguments: list[str]) -> None:
    """Run the named scenarios; what else is printed goes to standard error."""
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in arguments[5:]:
        print("begin", name, sep="\t", file=protocol, flush=True)
        try:
            await SCENARIOS[name](Scene(arguments[:5], name))
        except Exception as error:  # every failure is a verdict
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print("fail", name, reason, sep="\t", file=protocol, flush=True)
        else:
            print("pass", name, sep="\t", file=protocol, flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1:]))
