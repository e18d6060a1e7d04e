"""Discovery's connection, and the broker's behind it, under any sequence of Connect and other commands.

Neither lookups that discovery answers nor a connection that it carries reach a topic without a right to it.
More examples: HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.discovery.config import DiscoveryConfig, ProxyConfig
from magnetar.discovery.handlers import authentication
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.transport.connection import Connection, Environment
from magnetar.discovery.transport.proxy import Proxy

from tests.property.security.guarded_services import Guard, authenticator_of, authorizer
from tests.property.security.rights import (
    CONFIG,
    PROXIES,
    TOKENS,
    Lists,
    Roles,
    Sent,
    accepted,
    certificate_of,
)
from tests.property.security.wire_client import (
    COMMANDS,
    CONNECTS,
    CREDENTIALS,
    JUNK,
    NO_CONNECT,
    Answers,
    BrokerEnd,
    Pipe,
    Tasks,
    connect_frame,
    topic_commands,
)

BROKER = "pulsar://b:6650"
DISCOVERY = "discovery"


class Lookups:
    """Every part of discovery by which a command may learn of a topic."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def bundle_of(self, topic: TopicName) -> None:
        self._guard.reach("look up", topic.namespace)

    async def find(self, topic: TopicName, listener: str) -> BrokerRegistration:
        self._guard.reach("look up", topic.namespace)
        await asyncio.sleep(0)
        return registration()

    async def of(self, topic: TopicName) -> int:
        self._guard.reach("look up", topic.namespace)
        return 0

    async def ask(self, command: pb.BaseCommand) -> pb.BaseCommand:
        listing = command.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE
        if listing:
            self._guard.reach("list", NamespaceName.parse(command.getTopicsOfNamespace.namespace))
        else:
            self._guard.reach("look up", TopicName.parse(command.getSchema.topic).namespace)
        await asyncio.sleep(0)
        return pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=1))

    @property
    def rings(self) -> Lookups:
        return self


def registration() -> BrokerRegistration:
    found = BrokerRegistration(broker_id="b:8080", run=1)
    found.addresses.broker_url = BROKER
    return found


class _Connections:
    """Accepts every connection."""

    def add(self, connection: object) -> None: ...

    discard = admit = add


class DiscoveryEnd:
    """A connection of discovery, and of the broker to which it is carried."""

    def __init__(
        self,
        tasks: Tasks,
        lists: Lists,
        deliver: Any,
        *,
        certificate: str | None,
        anonymous: bool,
        as_proxy: bool,
    ) -> None:
        """Call it in the event loop."""
        self.guard = Guard()
        """Judges what discovery answers itself."""
        self.carried_roles: Roles | None = None
        """The roles of the client at the broker, by the model."""
        self.broker: BrokerEnd | None = None
        self._tasks, self._lists, self._anonymous = tasks, lists, anonymous
        self._shown = DISCOVERY if as_proxy else None
        lookups: Any = Lookups(self.guard)
        services = Services(
            DiscoveryConfig(authorization=CONFIG),
            lookups,
            lookups,
            lookups,
            authorizer(),
            authenticator_of(lists, anonymous=anonymous),
        )
        access: Any = SimpleNamespace(
            as_proxy=as_proxy, address=lambda _: ("b", 6650), context=lambda **_: None
        )
        directory: Any = SimpleNamespace(all=lambda: [registration()])
        tasks.loop.create_connection = self._to_broker  # type: ignore[method-assign, assignment]
        environment = Environment(
            services, Proxy(directory, ProxyConfig(), access), cast(Any, _Connections()), tasks.spawn, 30, 10
        )
        self.connection = Connection(environment)
        self.pipe = Pipe(deliver, None if certificate is None else certificate_of(certificate))
        self.pipe.protocol = self.connection
        self.pipe.on_closed = lambda: self._call(lambda: self.pipe.protocol.connection_lost(None))
        self.connection.connection_made(self.pipe)

    async def _to_broker(self, factory: Any, host: str, port: int, **_: object) -> None:
        await asyncio.sleep(0)
        link = factory()
        self.broker = broker = BrokerEnd(
            self._tasks,
            self._lists,
            lambda data: self._call(lambda: link.data_received(data)),
            certificate=self._shown,
            anonymous=self._anonymous,
        )
        broker.guard.roles = self.carried_roles
        broker.pipe.on_closed = lambda: self._call(lambda: link.connection_lost(None))
        to_broker = Pipe(lambda data: self._call(lambda: self._arrived(broker, data)))
        to_broker.on_closed = lambda: self._call(broker.close)
        link.connection_made(to_broker)

    @staticmethod
    def _arrived(broker: BrokerEnd, data: bytes) -> None:
        if broker.connection.connected:
            broker.connection.data_received(data)

    def _call(self, work: Any) -> None:
        self._tasks.loop.call_soon(work)

    def feed(self, data: bytes) -> None:
        """Have bytes of the client arrive."""
        if not self.pipe.is_closing():
            self.pipe.protocol.data_received(data)

    @property
    def breaches(self) -> list[str]:
        return self.guard.breaches + ([] if self.broker is None else self.broker.guard.breaches)

    def lists_changed(self) -> None:
        self.connection.close_if_revoked()
        if self.broker is not None:
            self.broker.lists_changed()

    def close(self) -> None:
        self.connection.close()
        self.pipe.close()
        if self.broker is not None:
            self.broker.close()


def carried(
    sent: Sent, lists: Lists, *, certificate: str | None, anonymous: bool, as_proxy: bool
) -> Roles | None:
    """Return the roles at the broker of a client that is carried to it; None when it must not get in."""
    if sent.method == "tls":
        if not as_proxy or certificate is None or certificate in PROXIES:
            return None
        return DISCOVERY, certificate
    own = Sent(sent.method, sent.data)
    return accepted(own, lists, certificate=None, anonymous=anonymous, original_auth_data=False)


def answered(sent: Sent, lists: Lists, *, certificate: str | None, anonymous: bool) -> Roles | None:
    """Return the roles of a client that discovery answers itself; None when it must not get in."""
    own = Sent(sent.method, sent.data)
    return accepted(own, lists, certificate=certificate, anonymous=anonymous, original_auth_data=False)


class DiscoveryStates(RuleBasedStateMachine):
    """One connection at a time, with a client that sends anything."""

    @initialize(
        anonymous=st.booleans(),
        as_proxy=st.booleans(),
        certificate=st.sampled_from([None, "consumer", "proxy"]),
    )
    def open(self, anonymous: bool, as_proxy: bool, certificate: str | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.tasks = Tasks(self.loop)
        lists = self.lists = Lists(0.0, set())
        self.clock = mock.patch.object(authentication, "time", SimpleNamespace(time=lambda: lists.now))
        self.clock.start()
        self.anonymous, self.as_proxy, self.certificate = anonymous, as_proxy, certificate
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.answers = Answers()
        self.has_sent = False
        self.is_carried = self.is_certain = False
        self.end = DiscoveryEnd(
            self.tasks,
            self.lists,
            self.answers.add,
            certificate=self.certificate,
            anonymous=self.anonymous,
            as_proxy=self.as_proxy,
        )

    def _feed(self, data: bytes, turns: int) -> None:
        async def feed() -> None:
            self.end.feed(data)
            await self.tasks.turns(turns)

        self.has_sent = True
        self.loop.run_until_complete(feed())

    @property
    def is_over(self) -> bool:
        """Whether the client has to begin anew."""
        return not self.has_sent or self.end.pipe.is_closing()

    def _check(self) -> None:
        """Settle, and compare with the model how the Connect ended."""
        self.loop.run_until_complete(self.tasks.settle())
        if not self.is_certain:
            return
        roles = self.end.carried_roles if self.is_carried else self.end.guard.roles
        if roles is None:
            assert self.answers.types == ["ERROR"]
            assert self.answers.last_error in ("AuthenticationError", "AuthorizationError")
        else:
            assert self.answers.types[0] == "CONNECTED"

    @rule(
        sent=CONNECTS,
        forged=st.sampled_from([None, None, "root", "consumer"]),
        to=st.booleans(),
        before=st.one_of(*[st.just(b"")] * 5, NO_CONNECT),
        after=st.just(b"") | COMMANDS,
        turns=st.integers(0, 3),
    )
    def connect(
        self, sent: Sent, forged: str | None, to: bool, before: bytes, after: bytes, turns: int
    ) -> None:
        """A new connection, of which Connect is mostly the first command."""
        self._check()
        self.no_breach()
        self.end.close()
        self.loop.run_until_complete(self.tasks.settle())
        self.loop.run_until_complete(self._open())
        self.is_carried, self.is_certain = to, not before and not after
        if before:
            self._feed(before, turns)
            return
        sent = replace(sent, original=forged or sent.original)
        given: dict[str, Any] = {"certificate": self.certificate, "anonymous": self.anonymous}
        if to:
            self.end.carried_roles = carried(sent, self.lists, as_proxy=self.as_proxy, **given)
        else:
            self.end.guard.roles = answered(sent, self.lists, **given)
        self._feed(connect_frame(sent, BROKER if to else None) + after, turns)

    @rule(
        sent=CREDENTIALS, to=st.booleans(), data=COMMANDS, is_settled=st.booleans(), turns=st.integers(0, 3)
    )
    def commands(self, sent: Sent, to: bool, data: bytes, is_settled: bool, turns: int) -> None:
        """Commands of the client that is there, or of a new one."""
        if is_settled:
            self._check()
        if self.is_over:
            self.connect(sent, None, to, b"", b"", 0)
            self._check()
        self.is_certain = self.is_certain and "CONNECTED" in self.answers.types
        self._feed(data, turns)

    @precondition(lambda self: self.has_sent)
    @rule(data=JUNK, turns=st.integers(0, 2))
    def junk(self, data: bytes, turns: int) -> None:
        """Commands of the handshake, at another time."""
        self.is_certain = False
        self._feed(data, turns)

    @rule(token=st.sampled_from(sorted(TOKENS)))
    def revoke(self, token: bytes) -> None:
        self.is_certain = False
        self.lists.revoked.add(token)
        self.end.lists_changed()

    @invariant()
    def no_breach(self) -> None:
        assert self.end.breaches == []
        if self.end.broker is not None:
            assert self.is_carried
            assert self.end.carried_roles is not None or not self.end.broker.is_connected
        roles = self.end.carried_roles if self.is_carried else self.end.guard.roles
        if roles is None:
            assert set(self.answers.types) <= {"ERROR"}

    def teardown(self) -> None:
        if hasattr(self, "end"):
            self._check()
            self.end.close()
            self.loop.run_until_complete(self.tasks.settle())
            self.loop.close()
            self.clock.stop()
            self.no_breach()


TestDiscoveryStates = DiscoveryStates.TestCase
TestDiscoveryStates.settings = settings(stateful_step_count=20)


@pytest.mark.parametrize("carry", [False, True], ids=["answered", "carried"])
@pytest.mark.parametrize("role", ["consumer", "stranger"])
def test_commands_reach_what_the_role_may_do(role: str, carry: bool) -> None:
    """The state machine would prove nothing if no command reached anything."""

    async def main() -> None:
        tasks, answers = Tasks(asyncio.get_running_loop()), Answers()
        end = DiscoveryEnd(
            tasks, Lists(0.0, set()), answers.add, certificate=role, anonymous=False, as_proxy=True
        )
        end.guard.roles, end.carried_roles = (role, None), (DISCOVERY, role)
        end.feed(connect_frame(Sent("tls"), BROKER if carry else None))
        await tasks.settle()
        for name, frame in topic_commands("m/n", "s").items():
            if name != "SEND":
                end.feed(frame)
                await tasks.settle()
        guard = end.broker.guard if end.broker is not None else end.guard
        needs = {"look up", "list", *(["consume"] if carry else [])} if role == "consumer" else set()
        assert (set(guard.reached), end.breaches) == (needs, [])
        end.close()
        await tasks.settle()

    asyncio.run(main())
