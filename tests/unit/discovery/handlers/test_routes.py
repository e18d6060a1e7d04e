"""Discovery answers a command only after the right to it was checked, with authorization on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from magnetar.common.errors import InvalidName, NotAllowed, ProtocolError, Unauthorized
from magnetar.common.security.principal import Principal
from magnetar.common.wire import commands
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.discovery.handlers.routes import ROUTES, answer

from tests.unit.common.wire.frames import command

_T = pb.BaseCommand.Type
ALICE: Final = Principal("alice")
TOPIC: Final = "persistent://acme/demo/orders"

AUTHORIZED: Final = {
    _T.LOOKUP: (
        command(lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=3)),
        ("check_lookup", TOPIC),
    ),
    _T.PARTITIONED_METADATA: (
        command(partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=3)),
        ("check_partitions", TOPIC),
    ),
    _T.GET_TOPICS_OF_NAMESPACE: (
        command(getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(namespace="acme/demo", request_id=3)),
        ("check_list", "acme/demo"),
    ),
    _T.GET_SCHEMA: (
        command(getSchema=pb.CommandGetSchema(topic=TOPIC, request_id=3)),
        ("check_lookup", TOPIC),
    ),
}
"""Command type -> an example, and the check that it needs."""

FREE: Final = {_T.PING, _T.PONG}


class Checks:
    """Refuses, or allows, every right, and notes what was asked."""

    def __init__(self, *, allows: bool, enabled: bool = True) -> None:
        self.allows, self.enabled = allows, enabled
        self.asked: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def check(principal: Principal, resource: object) -> None:
            assert principal is ALICE
            self.asked.append((name, str(resource)))
            if not self.allows:
                raise Unauthorized("no")

        return check


class Reached(Exception):
    """A handler was reached."""


class NothingBehind:
    """Services of which every part but the authorizer raises Reached."""

    def __init__(self, authorizer: Checks) -> None:
        self.authorizer = authorizer

    def __getattr__(self, name: str) -> Any:
        raise Reached(name)


def answered(sent: pb.BaseCommand, authorizer: Checks) -> None:
    found = answer(cast(Any, NothingBehind(authorizer)), sent, ALICE)
    if found is not None and not isinstance(found, bytes):
        asyncio.run(cast(Any, found))


def test_every_command_has_its_check_or_needs_none() -> None:
    assert set(ROUTES) == set(AUTHORIZED) | FREE


@pytest.mark.parametrize("kind", sorted(AUTHORIZED), ids=_T.Name)
def test_a_command_without_its_right_reaches_nothing(kind: int) -> None:
    sent, asked = AUTHORIZED[cast(Any, kind)]
    authorizer = Checks(allows=False)
    with pytest.raises(Unauthorized):
        answered(sent, authorizer)
    assert authorizer.asked == [asked]


@pytest.mark.parametrize("kind", sorted(AUTHORIZED), ids=_T.Name)
def test_a_command_with_its_right_is_handled(kind: int) -> None:
    sent, asked = AUTHORIZED[cast(Any, kind)]
    authorizer = Checks(allows=True)
    with pytest.raises(Reached):
        answered(sent, authorizer)
    assert authorizer.asked == [asked]


@pytest.mark.parametrize("kind", sorted(AUTHORIZED), ids=_T.Name)
def test_without_authorization_nothing_is_checked(kind: int) -> None:
    authorizer = Checks(allows=False, enabled=False)
    with pytest.raises(Reached):
        answered(AUTHORIZED[cast(Any, kind)][0], authorizer)
    assert authorizer.asked == []


def test_an_invalid_name_is_refused_before_any_check() -> None:
    authorizer = Checks(allows=True)
    with pytest.raises(InvalidName):
        answered(command(lookupTopic=pb.CommandLookupTopic(topic="://", request_id=3)), authorizer)
    assert authorizer.asked == []


def test_commands_of_brokers_reach_nothing_whatever_the_role() -> None:
    authorizer = Checks(allows=True)
    services = cast(Any, SimpleNamespace(authorizer=authorizer))
    for number in sorted(set(_T.values()) - set(ROUTES)):
        sent = pb.BaseCommand(type=cast(Any, number))
        if number == _T.SEND:
            found = answer(services, sent, ALICE)
            assert isinstance(found, bytes)
            refused = pb.BaseCommand.FromString(found[8:]).send_error
            assert refused.error == pb.NotAllowedError
            continue
        with pytest.raises(ProtocolError if number == _T.CONNECT else NotAllowed):
            answer(services, sent, ALICE)
    assert authorizer.asked == []
    assert answer(services, pb.BaseCommand(type=_T.PING), ALICE) == commands.PONG
