"""A broker with authorization on, over its socket: refusals, grants that hold at once, and revocation.

Authentication is stood in for: a test says whose a connection is.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from magnetar.broker.broker import Broker
from magnetar.broker.config import BrokerConfig
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.principal import Principal
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.standalone import Standalone

TOPIC: Final = "persistent://public/default/orders"
REVOKED_S_MAX: Final = 2.0
ANSWER_S_MAX: Final = 30.0

_NUMBERS: Final = {field.name: field.number for field in BaseCommand.DESCRIPTOR.fields}


class Line:
    """One connection, and what the broker says on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    @asynccontextmanager
    async def of(broker: Broker, role: str) -> AsyncIterator[Line]:
        """A connection whose client has this role."""
        assert broker.listener is not None
        before = set(broker.listener)
        line = Line(*await asyncio.open_connection("127.0.0.1", broker.port))
        assert (await line.ask("connect", client_version="test", protocol_version=20)).HasField("connected")
        [connection] = set(broker.listener) - before
        connection.client.principal = Principal(role)
        try:
            yield line
        finally:
            line._writer.close()
            with suppress(ConnectionError):
                await line._writer.wait_closed()

    async def ask(self, field: str, **values: Any) -> BaseCommand:
        command: Any = BaseCommand
        data = command(type=_NUMBERS[field], **{field: values}).SerializeToString()
        self._writer.write(struct.pack(">II", len(data) + 4, len(data)) + data)
        return await self.hear()

    async def hear(self, seconds_max: float = ANSWER_S_MAX) -> BaseCommand:
        async with asyncio.timeout(seconds_max):
            size = struct.unpack(">I", await self._reader.readexactly(4))[0]
            frame = await self._reader.readexactly(size)
        return BaseCommand.FromString(frame[4 : 4 + struct.unpack(">I", frame[:4])[0]])

    async def produce(self, producer_id: int) -> str:
        """Open a producer; the type of the answer, or the code of the error."""
        return _outcome(
            await self.ask("producer", topic=TOPIC, producer_id=producer_id, request_id=producer_id)
        )

    async def subscribe(self, consumer_id: int, subscription: str) -> str:
        return _outcome(
            await self.ask(
                "subscribe",
                topic=TOPIC,
                subscription=subscription,
                subType=1,
                consumer_id=consumer_id,
                request_id=consumer_id,
            )
        )


def _outcome(answer: BaseCommand) -> str:
    if answer.HasField("error"):
        return ServerError.Name(answer.error.error)
    return BaseCommand.Type.Name(answer.type)


async def grant(broker: Broker, role: str, actions: Sequence[str]) -> None:
    def edit(namespace: Namespace) -> None:
        if actions:
            namespace.policies.permissions[role].names[:] = actions
        else:
            namespace.policies.permissions.pop(role, None)

    await broker.policy_writer.change_namespace(DEFAULT_NAMESPACE, edit)


def secured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Callable[[Broker], Awaitable[None]]
) -> None:
    """Run a body with a broker whose super user is `root`."""
    monkeypatch.setattr(BrokerConfig, "problems", lambda self: [])
    base = StandaloneConfig()
    listener = replace(
        base.broker.listener, bind_address="127.0.0.1", broker_service_port=0, web_service_port=0
    )
    authorization = AuthorizationConfig(enabled=True, super_user_roles=("root",))
    config = replace(base, broker=replace(base.broker, listener=listener, authorization=authorization))

    async def run() -> None:
        standalone = Standalone(config, tmp_path / "data")
        await standalone.start()
        try:
            assert standalone.broker is not None
            await body(standalone.broker)
        finally:
            await standalone.close()

    asyncio.run(run())


def test_a_grant_holds_at_once_and_what_is_revoked_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(broker: Broker) -> None:
        async with Line.of(broker, "alice") as alice:
            assert await alice.produce(1) == "AuthorizationError"
            assert await alice.subscribe(1, "s") == "AuthorizationError"
            await grant(broker, "alice", ["produce", "consume"])
            assert await alice.produce(1) == "PRODUCER_SUCCESS"
            assert await alice.subscribe(1, "s") == "SUCCESS"
            await grant(broker, "alice", ["consume"])
            assert _outcome(await alice.hear(REVOKED_S_MAX)) == "CLOSE_PRODUCER"
            assert await alice.produce(2) == "AuthorizationError"
            await grant(broker, "alice", [])
            assert _outcome(await alice.hear(REVOKED_S_MAX)) == "CLOSE_CONSUMER"
            assert await alice.subscribe(2, "s") == "AuthorizationError"

    secured(tmp_path, monkeypatch, body)


def test_super_users_and_tenant_admins_are_made_and_unmade_while_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(broker: Broker) -> None:
        async with Line.of(broker, "root") as root, Line.of(broker, "admin") as admin:
            assert await root.produce(1) == "PRODUCER_SUCCESS"
            await broker.tenancy.update_tenant("public", ["admin"], ["standalone"])
            assert await admin.produce(1) == "PRODUCER_SUCCESS"
            await broker.tenancy.update_tenant("public", [], ["standalone"])
            assert _outcome(await admin.hear(REVOKED_S_MAX)) == "CLOSE_PRODUCER"
            await broker.dynamic_config.set("superUserRoles", "admin")
            assert _outcome(await root.hear(REVOKED_S_MAX)) == "CLOSE_PRODUCER"
            assert await root.produce(2) == "AuthorizationError"
            assert await admin.produce(2) == "PRODUCER_SUCCESS"

    secured(tmp_path, monkeypatch, body)


def test_roles_of_a_subscription_and_its_mode_hold_for_open_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(broker: Broker) -> None:
        async with Line.of(broker, "alice") as alice:
            await grant(broker, "alice", ["consume"])
            assert await alice.subscribe(1, "audit") == "SUCCESS"
            assert await alice.subscribe(2, "alice-1") == "SUCCESS"

            def only_bob(namespace: Namespace) -> None:
                namespace.policies.subscription_roles["audit"].names[:] = ["bob"]

            await broker.policy_writer.change_namespace(DEFAULT_NAMESPACE, only_bob)
            closed = await alice.hear(REVOKED_S_MAX)
            assert closed.close_consumer.consumer_id == 1

            def by_prefix(namespace: Namespace) -> None:
                namespace.policies.subscription_auth_mode = "Prefix"

            assert await alice.subscribe(3, "reader-1") == "SUCCESS"
            await broker.policy_writer.change_namespace(DEFAULT_NAMESPACE, by_prefix)
            closed = await alice.hear(REVOKED_S_MAX)
            assert closed.close_consumer.consumer_id == 3
            assert await alice.subscribe(4, "reader-2") == "AuthorizationError"
            assert await alice.subscribe(5, "alice-2") == "SUCCESS"

    secured(tmp_path, monkeypatch, body)
