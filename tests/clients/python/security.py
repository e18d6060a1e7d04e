"""Scenarios of `security_catalogue.py` with the Python client; called as it says."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar

from tests.clients.python.harness import EARLIEST, expect_equal
from tests.clients.security_catalogue import AUDIENCE, USER

RECEIVE_MILLISECONDS = 10_000
RENEWED_MESSAGES = 100
RENEWED_PAUSE_S = 0.08


class Scene:
    """Addresses and files of the service, for one scenario."""

    def __init__(self, arguments: list[str], name: str) -> None:
        directory, self.tls_port, self.plain_port, self.issuer, prefix = arguments
        self.directory = Path(directory)
        self.topic = f"persistent://public/default/{prefix}-{name}"

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()

    def token(self, name: str) -> Any:
        return pulsar.AuthenticationToken(self.read(f"{name}.token"))

    @contextlib.contextmanager
    def client(self, authentication: Any = None, *, url: str = "", names: bool = False) -> Iterator[Any]:
        client = pulsar.Client(
            url or f"pulsar+ssl://localhost:{self.tls_port}",
            authentication=authentication,
            operation_timeout_seconds=10,
            tls_trust_certs_file_path=str(self.directory / "ca.pem"),
            tls_validate_hostname=names,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            yield client
        finally:
            client.close()

    def exchange(self, authentication: Any, messages: int = 10, pause_s: float = 0, **options: Any) -> None:
        """Send and receive messages in turns."""
        with self.client(authentication, **options) as client:
            consumer = client.subscribe(self.topic, "sub", initial_position=EARLIEST)
            producer = client.create_producer(self.topic)
            for number in range(messages):
                producer.send(b"%d" % number)
                message = consumer.receive(RECEIVE_MILLISECONDS)
                expect_equal(message.data(), b"%d" % number, "the next message")
                consumer.acknowledge(message)
                time.sleep(pause_s)

    def refused(self, kinds: tuple[type[Exception], ...], authentication: Any, **options: Any) -> None:
        """Fail unless a producer is refused with one of the kinds of error."""
        with self.client(authentication, **options) as client:
            try:
                client.create_producer(self.topic)
            except kinds:
                return
            except pulsar.PulsarException as error:
                raise AssertionError(f"refused with {type(error).__name__}: {error}") from error
        raise AssertionError("a producer was opened")


def _certificate(scene: Scene) -> Any:
    return pulsar.AuthenticationTLS(
        str(scene.directory / "carol.cert.pem"), str(scene.directory / "carol.key.pem")
    )


def _oauth2(scene: Scene) -> Any:
    key = f"file://{scene.directory / 'oauth2.json'}"
    return pulsar.AuthenticationOauth2(
        json.dumps({"issuer_url": scene.issuer, "private_key": key, "audience": AUDIENCE})
    )


def _name_wrong(scene: Scene) -> None:
    url = f"pulsar+ssl://127.0.0.2:{scene.tls_port}"
    scene.refused((pulsar.ConnectError, pulsar.Timeout), scene.token("alice"), url=url, names=True)
    scene.exchange(scene.token("alice"), url=url)


_UNAUTHENTICATED = (pulsar.AuthenticationError, pulsar.Timeout)
"""The library connects again after a refusal, until the operation's time is over."""

SCENARIOS: dict[str, Callable[[Scene], None]] = {
    "token-tls": lambda scene: scene.exchange(scene.token("alice")),
    "token-plain": lambda scene: scene.exchange(
        scene.token("alice"), url=f"pulsar://localhost:{scene.plain_port}"
    ),
    "basic-tls": lambda scene: scene.exchange(pulsar.AuthenticationBasic(USER, scene.read("bob.password"))),
    "certificate": lambda scene: scene.exchange(_certificate(scene)),
    "name-right": lambda scene: scene.exchange(scene.token("alice"), names=True),
    "name-wrong": _name_wrong,
    "token-forged": lambda scene: scene.refused(_UNAUTHENTICATED, scene.token("forged")),
    "no-credentials": lambda scene: scene.refused(_UNAUTHENTICATED, None),
    "no-right": lambda scene: scene.refused((pulsar.AuthorizationError,), scene.token("mallory")),
    "token-renewed": lambda scene: scene.exchange(
        pulsar.AuthenticationToken(lambda: scene.read("supplied.token")), RENEWED_MESSAGES, RENEWED_PAUSE_S
    ),
    "oauth2": lambda scene: scene.exchange(_oauth2(scene)),
}


def main(arguments: list[str]) -> None:
    """Run the named scenarios; the library's own output goes to standard error."""
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in arguments[5:]:
        print("begin", name, sep="\t", file=protocol, flush=True)
        try:
            SCENARIOS[name](Scene(arguments[:5], name))
        except Exception as error:  # every failure is a verdict
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print("fail", name, reason, sep="\t", file=protocol, flush=True)
        else:
            print("pass", name, sep="\t", file=protocol, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
