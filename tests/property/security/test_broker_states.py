"""A broker's connection under any sequence of Connect, AuthResponse and other commands.

No sequence reaches a topic without a right to it, and each Connect ends as the model says. More examples:
HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.security.rights import SUBSCRIPTION, TOKENS, Lists, Sent, accepted
from tests.property.security.wire_client import (
    COMMANDS,
    CONNECTS,
    CREDENTIALS,
    JUNK,
    NO_CONNECT,
    Answers,
    BrokerEnd,
    Tasks,
    answer_frame,
    connect_frame,
    topic_commands,
)


class BrokerStates(RuleBasedStateMachine):
    """One connection at a time, with a client that sends anything."""

    @initialize(
        anonymous=st.booleans(),
        original_auth_data=st.booleans(),
        certificate=st.sampled_from([None, "consumer", "proxy"]),
    )
    def open(self, anonymous: bool, original_auth_data: bool, certificate: str | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.tasks = Tasks(self.loop)
        self.lists = Lists(0.0, set())
        self.anonymous, self.original_auth_data = anonymous, original_auth_data
        self.certificate = certificate
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.answers = Answers()
        self.has_sent = False
        self.end = BrokerEnd(
            self.tasks,
            self.lists,
            self.answers.add,
            certificate=self.certificate,
            anonymous=self.anonymous,
            original_auth_data=self.original_auth_data,
        )
        self.is_certain = False
        """Whether the model knows how the connection stands once it has settled."""
        self.token: bytes | None = None
        """The token whose expiry and revocation count; None when the model does not know it."""
        self.renewed: str | None = None
        """The role that a fresh token must have; None where AuthResponse is not looked at."""
        self.expired_looks = 0

    def _feed(self, data: bytes, turns: int) -> None:
        async def feed() -> None:
            if self.end.connection.connected:
                self.end.connection.data_received(data)
            await self.tasks.turns(turns)

        self.has_sent = True
        self.loop.run_until_complete(feed())

    @property
    def is_over(self) -> bool:
        """Whether the client has to begin anew."""
        return not self.has_sent or not self.end.connection.connected

    def _check(self) -> None:
        """Settle, and compare with the model how the Connect ended."""
        self.loop.run_until_complete(self.tasks.settle())
        if not self.is_certain:
            return
        if self.end.guard.roles is None:
            assert not self.end.is_connected
            assert self.answers.types == ["ERROR"]
            assert self.answers.last_error in ("AuthenticationError", "AuthorizationError")
        else:
            assert self.answers.types[0] == "CONNECTED"

    @rule(
        sent=CONNECTS,
        before=st.one_of(*[st.just(b"")] * 5, NO_CONNECT),
        after=st.just(b"") | COMMANDS,
        turns=st.integers(0, 3),
    )
    def connect(self, sent: Sent, before: bytes, after: bytes, turns: int) -> None:
        """A new connection, of which Connect is mostly the first command."""
        self._check()
        self.no_breach()
        self.end.close()
        self.loop.run_until_complete(self._open())
        self.is_certain = not before and not after
        if before:
            self._feed(before, turns)
            return
        self.end.guard.roles = accepted(
            sent,
            self.lists,
            certificate=self.certificate,
            anonymous=self.anonymous,
            original_auth_data=self.original_auth_data,
        )
        self._note(sent)
        self._feed(connect_frame(sent) + after, turns)

    def _note(self, sent: Sent) -> None:
        """Note which credential is to be renewed."""
        roles = self.end.guard.roles
        if roles is None or sent.method != "token":
            return
        self.token, self.renewed = sent.data, roles[0]
        if self.original_auth_data and sent.original:
            is_token = sent.original_method == "token"
            self.token = sent.original_data.encode() if is_token else None
            self.renewed = roles[1] if is_token else None

    @rule(sent=CREDENTIALS, data=COMMANDS, is_settled=st.booleans(), turns=st.integers(0, 3))
    def commands(self, sent: Sent, data: bytes, is_settled: bool, turns: int) -> None:
        """Commands of the client that is there, or of a new one."""
        if is_settled:
            self._check()
        if self.is_over:
            self.connect(sent, b"", b"", 0)
            self._check()
        self.is_certain = self.is_certain and self.end.is_connected
        self._feed(data, turns)

    @precondition(lambda self: self.has_sent)
    @rule(data=JUNK, turns=st.integers(0, 2))
    def junk(self, data: bytes, turns: int) -> None:
        """Commands of the handshake, at another time."""
        self.is_certain, self.token = False, None
        self._feed(data, turns)

    @rule(
        kind=st.sampled_from(["renew", "revoke", "time passes", "look"]),
        token=st.sampled_from(sorted(TOKENS)),
    )
    def credentials(self, kind: str, token: bytes) -> None:
        if kind != "revoke" and kind != "time passes":
            self._check()
        if self.tasks.running:
            self.is_certain = False
        if kind == "renew":
            self._renew(token)
        elif kind == "revoke":
            self._revoke(token)
        elif kind == "look":
            self._look()
        else:
            self.lists.now += 100

    def _renew(self, token: bytes) -> None:
        if not self.end.is_connected or self.token is None or self.renewed is None:
            return
        role = self.lists.role(token)
        self._feed(answer_frame(token), 0)
        self.loop.run_until_complete(self.tasks.settle())
        assert self.end.connection.connected == (role == self.renewed)
        assert (self.answers.last_error == "AuthenticationError") == (role is None)
        self.token, self.expired_looks, self.is_certain = token, 0, False

    def _revoke(self, token: bytes) -> None:
        self.lists.revoked.add(token)
        concerned = self.end.is_connected and token == self.token
        self.end.lists_changed()
        assert not (concerned and self.end.connection.connected)

    def _look(self) -> None:
        if self.end.is_connected and self.token is not None:
            expires_at = TOKENS[self.token][1]
            self.expired_looks += expires_at is not None and self.lists.now >= expires_at
        self.end.look()
        assert self.expired_looks < 2 or not self.end.connection.connected

    @invariant()
    def no_breach(self) -> None:
        assert self.end.guard.breaches == []
        if self.end.guard.roles is None:
            assert not self.end.is_connected
            assert set(self.answers.types) <= {"ERROR"}

    def teardown(self) -> None:
        if hasattr(self, "end"):
            self._check()
            self.end.close()
            self.loop.run_until_complete(self.tasks.settle())
            self.loop.close()
            self.no_breach()


TestBrokerStates = BrokerStates.TestCase
TestBrokerStates.settings = settings(stateful_step_count=20)


@pytest.mark.parametrize(
    ("role", "needs"),
    [
        ("root", {"produce", "consume", "look up", "list"}),
        ("admin", {"produce", "consume", "look up", "list"}),
        ("consumer", {"consume", "look up", "list"}),
        ("producer", {"produce", "look up", "list"}),
        ("stranger", set()),
    ],
)
def test_commands_reach_what_the_role_may_do(role: str, needs: set[str]) -> None:
    """The state machine would prove nothing if no command reached anything."""

    async def main() -> None:
        tasks, answers = Tasks(asyncio.get_running_loop()), Answers()
        end = BrokerEnd(tasks, Lists(0.0, set()), answers.add, certificate=None, anonymous=False)
        end.guard.roles = (role, None)
        end.connection.data_received(connect_frame(Sent("token", role.encode())))
        await tasks.settle()
        for name, frame in topic_commands("m/n", "s").items():
            if name != "SEND" or "produce" in needs:  # without a producer it breaks the protocol
                end.connection.data_received(frame)
                await tasks.settle()
        assert end.is_connected, answers.received[-1]
        assert (set(end.guard.reached), end.guard.breaches) == (needs, [])
        end.close()

    asyncio.run(main())


def test_a_role_that_may_not_use_a_subscription_does_not_reach_it() -> None:
    """The guard has to tell subscriptions from each other."""

    async def main() -> None:
        tasks, answers = Tasks(asyncio.get_running_loop()), Answers()
        for role, reached in (("keeper", True), ("consumer", False)):
            end = BrokerEnd(tasks, Lists(0.0, set()), answers.add, certificate=None, anonymous=False)
            end.guard.roles = (role, None)
            end.connection.data_received(connect_frame(Sent("token", role.encode())))
            await tasks.settle()
            end.connection.data_received(topic_commands("m/n", SUBSCRIPTION)["SUBSCRIBE"])
            await tasks.settle()
            assert (end.guard.reached["consume"] > 0, end.guard.breaches) == (reached, [])
            end.close()

    asyncio.run(main())
