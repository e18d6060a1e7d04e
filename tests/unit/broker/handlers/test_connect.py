"""Connect and AuthResponse: no way leads to a connected client but an accepted credential."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.client_endings import EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Client, ConnectState
from magnetar.broker.handlers.credentials import check_credentials, close_if_revoked
from magnetar.broker.handlers.routes import route
from magnetar.common.errors import ProtocolError
from magnetar.common.security import audit as audit_module
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.config import AuthenticationConfig
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.identity import Credential, Identity
from magnetar.common.wire import pulsar_pb2 as pb

from tests.examples import examples
from tests.unit.broker.handlers.bare_services import bare_services

OLD, FRESH, OTHER, PROXY = b"old", b"fresh", b"other", b"proxy"


class Tokens:
    """Accepts a few tokens of one role and of another."""

    name, method = "AuthenticationProviderToken", "token"

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.roles = {OLD: "alice", FRESH: "alice", OTHER: "bob", PROXY: "proxy"}
        self.expiry = {OLD: 100.0, FRESH: 500.0}
        self.asked = 0

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        self.asked += 1
        await asyncio.sleep(0)
        role = self.roles.get(credential.data)
        if role is None:
            raise Refusal("signature", "no")
        return Identity(role, "token", self.expiry.get(credential.data), role, self.name)

    def is_valid(self, identity: Identity) -> bool:
        return identity.key not in self.revoked

    async def reload(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


class Certificates(Tokens):
    """Accepts any certificate."""

    name, method = "AuthenticationProviderTls", "tls"

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        if credential.certificate is None:
            raise Refusal("no_certificate", "no")
        return Identity(credential.certificate.decode(), "tls", 100.0, "", self.name)


@dataclass(eq=False)
class Peer:
    address: str = "10.0.0.1:5"
    connected: bool = True
    certificate: bytes | None = None
    listener: str | None = None
    protocol_version: int = 0
    sent: list[pb.BaseCommand] = field(default_factory=list)
    closed: str | None = None

    def write(self, data: bytes) -> None:
        self.sent.append(pb.BaseCommand.FromString(data[8:]))

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False
        self.closed = self.closed or reason

    @property
    def types(self) -> list[str]:
        return [pb.BaseCommand.Type.Name(each.type) for each in self.sent]


class World:
    """A client before Connect, of a broker with authentication."""

    def __init__(
        self,
        *,
        anonymous: str = "",
        proxy_roles: frozenset[str] | None = None,
        original_auth_data: bool = False,
        authentication: bool = True,
    ) -> None:
        self.now = 0.0
        self.tokens, self.peer = Tokens(), Peer()
        clock = SimpleNamespace(monotonic=lambda: self.now, wall_ms=lambda: self.now * 1000)
        services = bare_services(clock)
        services.config = BrokerConfig(
            authentication=AuthenticationConfig(enabled=True, original_auth_data=original_auth_data)
        )
        providers = (self.tokens, Certificates())
        if authentication:
            services.authenticator = Authenticator(
                providers, anonymous_role=anonymous, monotonic=lambda: self.now, failure_delay_s=0
            )
        services.proxy_roles = proxy_roles
        self.client = Client(services, cast(Any, self.peer))

    async def send(self, command: pb.BaseCommand) -> None:
        rest = route(self.client, command)
        if rest is not None:
            await rest

    def connect(self, **fields: Any) -> None:
        asyncio.run(self.send(connect(**fields)))

    def answer(self, data: bytes, **fields: Any) -> None:
        asyncio.run(self.send(response(data, **fields)))

    @property
    def error(self) -> tuple[str, str]:
        """The code and text of the one error that was sent before the connection closed."""
        assert self.peer.types == ["ERROR"]
        assert self.peer.closed is not None
        assert not self.client.connected
        found = self.peer.sent[0].error
        assert found.request_id == 2**64 - 1
        return pb.ServerError.Name(found.error), found.message


def connect(
    data: bytes = OLD, method: str | None = "token", refresh: bool = True, **fields: Any
) -> pb.BaseCommand:
    if method is not None:
        fields["auth_method_name"] = method
    command = pb.CommandConnect(
        client_version="test",
        protocol_version=20,
        auth_data=data,
        feature_flags=pb.FeatureFlags(supports_auth_refresh=refresh),
        **fields,
    )
    return pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=command)


def response(data: bytes, **fields: Any) -> pb.BaseCommand:
    auth = pb.AuthData(auth_method_name="token", auth_data=data)
    command = pb.CommandAuthResponse(**{"response": auth, **fields})
    return pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=command)


PING = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())


def test_without_authentication_credentials_are_not_looked_at() -> None:
    world = World(authentication=False)
    world.connect(data=b"\xff", method="nonsense", original_principal="someone", proxy_version="1")
    assert world.peer.types == ["CONNECTED"]
    assert (world.client.principal, world.tokens.asked) == (None, 0)


def test_an_accepted_token_gives_the_role() -> None:
    world = World()
    world.connect()
    assert world.peer.types == ["CONNECTED"]
    principal = world.client.principal
    assert principal is not None
    assert (principal.role, principal.original, principal.method) == ("alice", None, "token")


def test_a_refused_token_ends_the_connection_even_where_there_is_an_anonymous_role() -> None:
    world = World(anonymous="anyone")
    world.connect(data=b"wrong")
    assert world.error == ("AuthenticationError", "Failed to authenticate")


@pytest.mark.parametrize("method", [None, "none", "sasl", "Token"])
def test_a_method_without_a_provider_is_anonymous_or_refused(method: str | None) -> None:
    world = World(anonymous="anyone")
    world.connect(method=method)
    assert world.client.principal is not None
    assert world.client.principal.role == "anyone"
    world = World()
    world.connect(method=method)
    assert world.error == ("AuthenticationError", "Failed to authenticate")


def test_the_old_field_names_the_method() -> None:
    world = World()
    world.tokens.method = "athens"
    world.connect(method=None, auth_method=pb.AuthMethodAthens)
    assert world.client.connected


def test_a_certificate_is_an_identity_for_the_method_tls_only() -> None:
    world = World(anonymous="anyone")
    world.peer.certificate = b"cert"
    world.connect(method=None)
    assert world.client.principal is not None
    assert world.client.principal.role == "anyone"
    world = World()
    world.peer.certificate = b"cert"
    world.connect(method="tls")
    assert world.client.principal is not None
    assert world.client.principal.role == "cert"


def test_commands_while_credentials_are_checked_and_a_second_connect_break_the_protocol() -> None:
    async def main() -> None:
        world = World()
        rest = route(world.client, connect())
        assert rest is not None
        for command in (PING, connect(), response(OLD)):
            with pytest.raises(ProtocolError):
                await world.send(command)
        await rest
        assert world.client.connected
        with pytest.raises(ProtocolError, match="twice"):
            await world.send(connect())

    asyncio.run(main())


def test_a_client_that_left_while_it_was_checked_is_not_connected() -> None:
    async def main() -> None:
        world = World()
        rest = route(world.client, connect())
        assert rest is not None
        world.peer.close("gone", EndCode.BROKER_STOPPING)
        await rest
        assert not world.client.connected
        assert world.peer.sent == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "fields", "original"),
    [
        (PROXY, {"original_principal": "carol", "proxy_version": "1"}, "carol"),
        (PROXY, {}, None),
        (PROXY, {"original_principal": "proxy"}, None),
        (OLD, {"original_principal": "carol"}, None),
        (OLD, {"original_principal": "alice"}, None),
        (OLD, {"proxy_version": "1"}, None),
    ],
)
def test_roles_must_fit_where_authorization_is_on(
    data: bytes, fields: dict[str, str], original: str | None
) -> None:
    world = World(proxy_roles=frozenset({"proxy"}))
    world.connect(data=data, **fields)
    if original is None:
        assert world.error == ("AuthorizationError", "Invalid roles.")
    else:
        assert world.client.principal is not None
        assert world.client.principal.original == original


def test_forwarded_credentials_are_checked_and_their_role_counts() -> None:
    behind = {"original_principal": "carol", "original_auth_method": "token"}
    world = World(proxy_roles=frozenset({"proxy"}), original_auth_data=True)
    world.connect(data=PROXY, original_auth_data="other", **behind)
    assert world.client.principal is not None
    assert (world.client.principal.role, world.client.principal.original) == ("proxy", "bob")
    world = World(proxy_roles=frozenset({"proxy"}), original_auth_data=True)
    world.connect(data=PROXY, original_auth_data="wrong", **behind)
    assert world.error == ("AuthenticationError", "Failed to authenticate")


def test_the_certificate_of_a_proxy_is_not_its_clients() -> None:
    world = World(proxy_roles=frozenset({"proxy"}), original_auth_data=True)
    world.peer.certificate = b"proxy"
    world.connect(method="tls", original_principal="x", original_auth_method="tls", original_auth_data="")
    assert world.error == ("AuthenticationError", "Failed to authenticate")


def test_an_anonymous_client_behind_a_proxy_has_the_anonymous_role_alone() -> None:
    world = World(proxy_roles=frozenset({"proxy"}), original_auth_data=True, anonymous="anyone")
    world.connect(data=PROXY, original_principal="anyone", original_auth_method="none")
    assert world.client.principal is not None
    assert (world.client.principal.role, world.client.principal.original) == ("anyone", None)


def test_an_expired_token_is_asked_for_again_and_a_fresh_one_is_taken_silently() -> None:
    world = World()
    world.connect()
    world.now = 99
    check_credentials(world.client)
    world.now = 100
    check_credentials(world.client)
    assert world.peer.types == ["CONNECTED", "AUTH_CHALLENGE"]
    challenge = world.peer.sent[1].authChallenge.challenge
    assert (challenge.auth_method_name, challenge.auth_data) == ("token", b"PulsarAuthRefresh")
    world.answer(FRESH)
    check_credentials(world.client)
    assert (len(world.peer.sent), world.peer.closed) == (2, None)
    world.now = 500
    check_credentials(world.client)
    assert world.peer.types[2:] == ["AUTH_CHALLENGE"]


def test_an_unanswered_challenge_closes_the_connection_at_the_next_look() -> None:
    world = World()
    world.connect()
    world.now = 100
    check_credentials(world.client)
    check_credentials(world.client)
    assert world.peer.closed is not None
    assert "AuthChallenge" in world.peer.closed


def test_a_client_that_cannot_renew_is_closed_when_its_token_expires() -> None:
    world = World()
    world.connect(refresh=False)
    world.now = 100
    check_credentials(world.client)
    assert world.peer.types == ["CONNECTED"]
    assert world.peer.closed is not None


def test_the_role_that_a_proxy_named_ends_with_the_credential_of_the_proxy() -> None:
    world = World(proxy_roles=frozenset({"proxy"}))
    world.tokens.expiry[PROXY] = 100
    world.connect(data=PROXY, original_principal="carol")
    world.now = 100
    check_credentials(world.client)
    assert (world.peer.types, world.peer.closed is None) == (["CONNECTED"], False)


def test_an_expired_certificate_ends_the_connection() -> None:
    world = World()
    world.peer.certificate = b"cert"
    world.connect(method="tls")
    world.answer(b"anything")
    world.now = 100
    check_credentials(world.client)
    assert (world.peer.closed or "").startswith("its certificate expired")


def test_fresh_credentials_of_another_role_close_without_an_error() -> None:
    world = World()
    world.connect()
    world.answer(OTHER)
    assert (world.peer.types, world.peer.closed is None) == (["CONNECTED"], False)


def test_fresh_credentials_that_are_refused_end_with_an_error() -> None:
    world = World()
    world.connect()
    world.answer(b"wrong")
    assert world.peer.types == ["CONNECTED", "ERROR"]
    assert world.peer.sent[1].error.error == pb.AuthenticationError
    assert world.peer.closed is not None


@pytest.mark.parametrize(
    "auth", [pb.AuthData(), pb.AuthData(auth_method_name="token"), pb.AuthData(auth_data=FRESH)]
)
def test_an_answer_without_method_or_data_breaks_the_protocol(auth: pb.AuthData) -> None:
    world = World()
    world.connect()
    with pytest.raises(ProtocolError):
        world.answer(b"", response=auth)


def test_a_revoked_credential_ends_the_connection_also_when_it_is_that_of_the_client_of_a_proxy() -> None:
    world = World(proxy_roles=frozenset({"proxy"}), original_auth_data=True)
    world.connect(data=PROXY, original_principal="x", original_auth_method="token", original_auth_data="old")
    close_if_revoked(world.client)
    assert world.peer.closed is None
    world.tokens.revoked = {"alice"}
    close_if_revoked(world.client)
    assert world.peer.closed is not None


COMMANDS = {
    "connect": connect(),
    "connect with a wrong token": connect(data=b"wrong"),
    "connect without a method": connect(method=None),
    "connect with a certificate": connect(method="tls"),
    "connect for another": connect(data=OTHER, original_principal="alice"),
    "answer": response(FRESH),
    "wrong answer": response(b"wrong"),
    "empty answer": response(b"", response=pb.AuthData()),
    "ping": PING,
    "look": None,
    "time passes": None,
    "revoke": None,
}


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(COMMANDS)), st.booleans()), max_size=8), st.booleans())
def test_no_sequence_of_commands_connects_without_an_accepted_credential(
    steps: list[tuple[str, bool]], authorization: bool
) -> None:
    async def main() -> None:
        world = World(proxy_roles=frozenset({"proxy"}) if authorization else None)
        pending: list[asyncio.Task[None]] = []
        first: str | None = None
        for step, waits in steps:
            if not world.peer.connected:
                break
            command = COMMANDS[step]
            if command is None:
                world.now += 100 if step == "time passes" else 0
                if step == "revoke":
                    world.tokens.revoked.add("alice")
                check_credentials(world.client)
                close_if_revoked(world.client)
                continue
            first = first or step
            try:
                rest = route(world.client, command)
            except ProtocolError:
                world.peer.close("protocol error", EndCode.BROKER_STOPPING)
                break
            if rest is not None:
                pending.append(asyncio.create_task(_kept(world, rest)))
            if waits:
                await asyncio.gather(*pending)
        await asyncio.gather(*pending)
        accepted = first == "connect" or (first == "connect for another" and not authorization)
        if world.client.connected:
            assert accepted, steps
            assert world.client.principal is not None
            assert world.client.principal.role in ("alice", "bob")
        if "CONNECTED" in world.peer.types:
            assert accepted, steps
            assert world.peer.types.count("CONNECTED") == 1
        assert world.client.state is not ConnectState.START or first is None or not world.peer.connected

    asyncio.run(main())


async def _kept(world: World, rest: Coroutine[Any, Any, None]) -> None:
    try:
        await rest
    except ProtocolError:
        world.peer.close("protocol error", EndCode.BROKER_STOPPING)


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(audit_module, "_bounds", {})
    audit_module.open_audit_file(str(path))
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    audit_module.open_audit_file("")


def test_connects_and_refreshes_are_audited_without_credentials(
    audited: Callable[[], list[dict[str, Any]]],
) -> None:
    world = World()
    world.connect()
    world.now = 100
    check_credentials(world.client)
    world.answer(FRESH)
    world.now = 500
    check_credentials(world.client)
    world.answer(b"wrong")
    refused = World()
    refused.connect(data=b"wrong", method="token")
    expired = World()
    expired.connect(refresh=False)
    expired.now = 100
    check_credentials(expired.client)
    found = audited()
    assert [(each["event"], each["principal"], each["outcome"]) for each in found] == [
        ("connect", "alice", "accepted"),
        ("credential refresh", "alice", "accepted"),
        ("credential refresh", "alice", "refused"),
        ("connect", None, "refused"),
        ("connect", "alice", "accepted"),
        ("credential refresh", "alice", "closed"),
    ]
    assert {each["address"] for each in found} == {"10.0.0.1:5"}
    assert found[3]["auth_method"] == "token"
    assert "wrong" not in json.dumps(found)


def test_without_authentication_connects_are_not_audited(
    audited: Callable[[], list[dict[str, Any]]],
) -> None:
    World(authentication=False).connect()
    assert audited() == []
