"""Every command that names a topic or a namespace is authorized before anything else is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.routes import ROUTES, route
from magnetar.common.errors import Unauthorized
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.principal import Principal
from magnetar.common.wire import commands
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError, Subscription

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.topics.world import ListeningPeer

_T = BaseCommand.Type

ALICE: Final = Principal("alice")
TOPIC: Final = "persistent://acme/demo/orders"


class Refusing:
    """Refuses everything, and notes what it was asked."""

    generation = 0

    def __init__(self, but: str = "") -> None:
        self.asked: list[tuple[object, ...]] = []
        self._but = but

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def check(principal: Principal, *resource: object) -> None:
            assert principal is ALICE
            self.asked.append((name, *map(str, resource)))
            if name != self._but:
                raise Unauthorized(f"{principal} may not: {name}")

        return check


def of(kind: int, field: str, **values: Any) -> BaseCommand:
    made = BaseCommand(type=cast(Any, kind))
    for name, value in values.items():
        part = getattr(made, field)
        if isinstance(value, list):
            getattr(part, name).extend(value)
        else:
            setattr(part, name, value)
    return made


AUTHORIZED: Final = {
    _T.LOOKUP: (
        of(_T.LOOKUP, "lookupTopic", topic=TOPIC, request_id=3),
        ("check_lookup", TOPIC),
        "LOOKUP_RESPONSE",
    ),
    _T.PARTITIONED_METADATA: (
        of(_T.PARTITIONED_METADATA, "partitionMetadata", topic=TOPIC, request_id=3),
        ("check_partitions", TOPIC),
        "PARTITIONED_METADATA_RESPONSE",
    ),
    _T.PRODUCER: (
        of(_T.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=3),
        ("check_produce", TOPIC),
        "ERROR",
    ),
    _T.SUBSCRIBE: (
        of(_T.SUBSCRIBE, "subscribe", topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=3),
        ("check_consume", TOPIC, "s"),
        "ERROR",
    ),
    _T.GET_TOPICS_OF_NAMESPACE: (
        of(_T.GET_TOPICS_OF_NAMESPACE, "getTopicsOfNamespace", namespace="acme/demo", request_id=3),
        ("check_list", "acme/demo"),
        "ERROR",
    ),
    _T.WATCH_TOPIC_LIST: (
        of(
            _T.WATCH_TOPIC_LIST,
            "watchTopicList",
            namespace="acme/demo",
            topics_pattern=".*",
            watcher_id=1,
            request_id=3,
        ),
        ("check_list", "acme/demo"),
        "ERROR",
    ),
    _T.GET_SCHEMA: (
        of(_T.GET_SCHEMA, "getSchema", topic=TOPIC, request_id=3),
        ("check_lookup", TOPIC),
        "GET_SCHEMA_RESPONSE",
    ),
    _T.GET_OR_CREATE_SCHEMA: (
        of(_T.GET_OR_CREATE_SCHEMA, "getOrCreateSchema", topic=TOPIC, request_id=3),
        ("check_produce", TOPIC),
        "GET_OR_CREATE_SCHEMA_RESPONSE",
    ),
    _T.ADD_PARTITION_TO_TXN: (
        of(_T.ADD_PARTITION_TO_TXN, "addPartitionToTxn", partitions=[TOPIC], request_id=3),
        ("check_produce", TOPIC),
        "ADD_PARTITION_TO_TXN_RESPONSE",
    ),
    _T.ADD_SUBSCRIPTION_TO_TXN: (
        of(
            _T.ADD_SUBSCRIPTION_TO_TXN,
            "addSubscriptionToTxn",
            subscription=[Subscription(topic=TOPIC, subscription="s")],
            request_id=3,
        ),
        ("check_consume", TOPIC, "s"),
        "ADD_SUBSCRIPTION_TO_TXN_RESPONSE",
    ),
}
"""Command -> (an example, what is asked first, the form of the refusal)."""

OF_WHAT_IS_OPEN: Final = {
    _T.CONNECT,
    _T.AUTH_RESPONSE,
    _T.PING,
    _T.PONG,
    _T.CLOSE_PRODUCER,
    _T.FLOW,
    _T.CLOSE_CONSUMER,
    _T.UNSUBSCRIBE,
    _T.SEEK,
    _T.GET_LAST_MESSAGE_ID,
    _T.CONSUMER_STATS,
    _T.ACK,
    _T.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    _T.WATCH_TOPIC_LIST_CLOSE,
}
"""Commands about the connection, or about a producer, consumer or watcher that is open on it."""


OF_OWN_TRANSACTIONS: Final = {
    _T.TC_CLIENT_CONNECT_REQUEST,
    _T.NEW_TXN,
    _T.END_TXN,
    _T.END_TXN_ON_PARTITION,
    _T.END_TXN_ON_SUBSCRIPTION,
}
"""Commands that any role may send: what they do is for the owner of the transaction, or for super users alone
(test_transactions.py).
"""


def test_every_command_is_authorized_or_about_what_is_open() -> None:
    assert set(ROUTES) == set(AUTHORIZED) | OF_WHAT_IS_OPEN | OF_OWN_TRANSACTIONS


def refused_client(authorizer: Refusing) -> Client:
    services = bare_services(None)
    services.authorizer = cast(Any, authorizer)
    services.transactions = cast(Any, SimpleNamespace(coordinators=object()))
    client = Client(services, ListeningPeer(), principal=ALICE)
    client.connected = True
    return client


@pytest.mark.parametrize("kind", sorted(AUTHORIZED), ids=_T.Name)
def test_a_command_without_its_right_is_refused_in_its_own_form(kind: int) -> None:
    example, asked, form = AUTHORIZED[cast(Any, kind)]
    authorizer = Refusing()
    client = refused_client(authorizer)

    async def run() -> None:
        rest = route(client, example)
        assert rest is not None
        await rest

    with pytest.raises(Unauthorized) as raised:
        asyncio.run(run())
    assert authorizer.asked == [asked]
    assert (client.producers, client.consumers, client.watchers) == ({}, {}, {})
    code = code_of(raised.value)
    assert code == ServerError.AuthorizationError
    frame = commands.error_answer(example, code, str(raised.value))
    assert frame is not None
    answer = BaseCommand.FromString(frame[8:])
    assert _T.Name(answer.type) == form
    [(_, body)] = [(field, value) for field, value in answer.ListFields() if field.name != "type"]
    assert body.request_id == 3
    error = body.error_code if "error_code" in body.DESCRIPTOR.fields_by_name else body.error
    assert error == ServerError.AuthorizationError


def test_an_initial_subscription_needs_consume_for_its_name() -> None:
    authorizer = Refusing(but="check_produce")
    client = refused_client(authorizer)
    example = of(
        _T.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=3, initial_subscription_name="first"
    )

    async def run() -> None:
        rest = route(client, example)
        assert rest is not None
        await rest

    with pytest.raises(Unauthorized):
        asyncio.run(run())
    full = TopicName.parse(TOPIC).full
    assert authorizer.asked == [("check_produce", full), ("check_consume", full, "first")]
