"""Every command of the binary protocol, as each kind of client, against a table of who may do what.

The table is the contract's, written apart from the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.raw.transcript import ConnectionEnded, Frame, Line, payload_frame
from tests.security.conftest import PROXY, WEAK_PROXY, Secured, token

pytestmark = pytest.mark.full

NAMESPACE: Final = "m/wire"
TOPIC: Final = f"persistent://{NAMESPACE}/t"
KEPT: Final = "kept"
"""A subscription that is granted to the keeper alone."""

NO_REQUEST: Final = 2**64 - 1


@dataclass(frozen=True)
class Client:
    """A kind of client: its Connect, and the role whose rights it has, or the error of its Connect."""

    name: str
    connect: Mapping[str, Any]
    role: str = ""
    refused: str = ""


def by_token(role: str, **more: str) -> dict[str, Any]:
    return {"auth_method_name": "token", "auth_data": token(role).encode(), **more}


def clients() -> list[Client]:
    roles = ("unknown", "consumer", "producer", "keeper", "stranger", "admin", "root")
    return [
        Client("no credential", {}, "anonymous"),
        Client("no method but a token", {"auth_data": token("root").encode()}, "anonymous"),
        Client("unknown method", {"auth_method_name": "kerberos", "auth_data": b"x"}, "anonymous"),
        *(Client(role, by_token(role), role) for role in roles),
        *(Client(f"{PROXY} for {role}", by_token(PROXY, original_principal=role), role) for role in roles),
        Client("a proxy without rights for root", by_token(WEAK_PROXY, original_principal="root"), "unknown"),
        Client(
            "a proxy with version for root",
            by_token(PROXY, original_principal="root", proxy_version="1"),
            "root",
        ),
        Client("a proxy without a client", by_token(PROXY), refused="AuthorizationError"),
        Client("a proxy for a blank", by_token(PROXY, original_principal=" "), refused="AuthorizationError"),
        Client(
            "a proxy for a proxy",
            by_token(PROXY, original_principal=WEAK_PROXY),
            refused="AuthorizationError",
        ),
        Client(
            "consumer for root", by_token("consumer", original_principal="root"), refused="AuthorizationError"
        ),
        Client("root for itself", by_token("root", original_principal="root"), refused="AuthorizationError"),
        Client("root as a proxy", by_token("root", proxy_version="1"), refused="AuthorizationError"),
        Client("forged", {"auth_method_name": "token", "auth_data": b"x"}, refused="AuthenticationError"),
        Client("no certificate", {"auth_method_name": "tls"}, refused="AuthenticationError"),
        Client(
            "wrong password",
            {"auth_method_name": "basic", "auth_data": b"alice:wrong"},
            refused="AuthenticationError",
        ),
    ]


_ADMINS: Final = {"admin", "root"}
_PRODUCERS: Final = {*_ADMINS, "producer"}
_CONSUMERS: Final = {*_ADMINS, "consumer", "keeper"}
_USERS: Final = _PRODUCERS | _CONSUMERS

Ask = Callable[[Line], int]


def asking(name: str, **fields: Any) -> Ask:
    return lambda line: line.request(name, **fields)


def subscribing(subscription: str, consumer_id: int) -> Ask:
    return asking(
        "subscribe", topic=TOPIC, subscription=subscription, consumer_id=consumer_id, subType="Shared"
    )


_TRANSACTION: Final = {"txnid_most_bits": 0, "txnid_least_bits": 2**40}
"""One that never began."""

GUARDED: Final[Mapping[str, tuple[Ask, set[str], str]]] = {
    "LOOKUP": (asking("lookupTopic", topic=TOPIC), _USERS, "lookupTopicResponse"),
    "PARTITIONED_METADATA": (asking("partitionMetadata", topic=TOPIC), _USERS, "partitionMetadataResponse"),
    "PRODUCER": (asking("producer", topic=TOPIC, producer_id=1), _PRODUCERS, "producer_success"),
    "PRODUCER with a subscription": (
        asking("producer", topic=TOPIC, producer_id=2, initial_subscription_name="first"),
        _ADMINS,
        "producer_success",
    ),
    "SUBSCRIBE": (subscribing("s", 1), _CONSUMERS, "success"),
    "SUBSCRIBE by a granted subscription": (subscribing(KEPT, 2), {*_ADMINS, "keeper"}, "success"),
    "GET_TOPICS_OF_NAMESPACE": (
        asking("getTopicsOfNamespace", namespace=NAMESPACE),
        _USERS,
        "getTopicsOfNamespaceResponse",
    ),
    "WATCH_TOPIC_LIST": (
        asking("watchTopicList", namespace=NAMESPACE, watcher_id=1, topics_pattern=f"{TOPIC}.*"),
        _USERS,
        "watchTopicListSuccess",
    ),
    "GET_SCHEMA": (asking("getSchema", topic=TOPIC), _USERS, "getSchemaResponse"),
    "GET_OR_CREATE_SCHEMA": (
        asking("getOrCreateSchema", topic=TOPIC, schema={"name": "s", "schema_data": b"", "type": "String"}),
        _PRODUCERS,
        "getOrCreateSchemaResponse",
    ),
    "ADD_PARTITION_TO_TXN": (
        asking("addPartitionToTxn", partitions=[TOPIC], **_TRANSACTION),
        _PRODUCERS,
        "addPartitionToTxnResponse",
    ),
    "ADD_SUBSCRIPTION_TO_TXN": (
        asking("addSubscriptionToTxn", subscription=[{"topic": TOPIC, "subscription": "s"}], **_TRANSACTION),
        _CONSUMERS,
        "addSubscriptionToTxnResponse",
    ),
}
"""Commands that name a topic or a namespace: (request, roles that may, the answer to these)."""


UNOPENED: Final[Mapping[str, tuple[Ask, str]]] = {
    "SEEK": (asking("seek", consumer_id=9, message_id={"ledgerId": 1, "entryId": 1}), "MetadataError"),
    "UNSUBSCRIBE": (asking("unsubscribe", consumer_id=9), "MetadataError"),
    "GET_LAST_MESSAGE_ID": (asking("getLastMessageId", consumer_id=9), "MetadataError"),
    "CONSUMER_STATS": (asking("consumerStats", consumer_id=9), "ConsumerNotFound"),
    "TC_CLIENT_CONNECT_REQUEST": (asking("tcClientConnectRequest", tc_id=0), ""),
    "NEW_TXN": (asking("newTxn", txn_ttl_seconds=1_000), ""),
    "END_TXN": (asking("endTxn", txn_action="COMMIT", **_TRANSACTION), "TransactionNotFound"),
}
"""Commands about something that is not open on the connection: the error of each, whatever the role; "" where
any role may begin something of its own.
"""

SUPER_USERS: Final[Mapping[str, Ask]] = {
    "END_TXN_ON_PARTITION": asking("endTxnOnPartition", topic=TOPIC, txn_action="ABORT", **_TRANSACTION),
    "END_TXN_ON_SUBSCRIPTION": asking(
        "endTxnOnSubscription",
        subscription={"topic": TOPIC, "subscription": "s"},
        txn_action="ABORT",
        **_TRANSACTION,
    ),
}
"""Commands of coordinators to topics. For every other role the transaction does not exist."""

SILENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "flow": {"consumer_id": 9, "messagePermits": 1},
    "ack": {"consumer_id": 9, "ack_type": "Individual", "message_id": [{"ledgerId": 1, "entryId": 1}]},
    "redeliverUnacknowledgedMessages": {"consumer_id": 9},
}
"""Commands about a consumer that is not open, which have no answer."""


@pytest.fixture(scope="module")
def endpoint(secured: Secured) -> Any:
    secured.do("PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})
    permissions = f"/admin/v2/namespaces/{NAMESPACE}/permissions"
    for role, actions in (("consumer", ["consume"]), ("keeper", ["consume"]), ("producer", ["produce"])):
        secured.do("POST", f"{permissions}/{role}", actions)
    secured.do("POST", f"{permissions}/subscription/{KEPT}", ["keeper"])
    secured.do("PUT", f"/admin/v2/persistent/{NAMESPACE}/t")
    return secured.server.endpoint


def connected(endpoint: Any, client: Client) -> Line:
    line = Line(endpoint)
    line.send("connect", client_version="matrix", protocol_version=20, **client.connect)
    return line


def error_of(frame: Frame) -> str:
    """The error's name in an answer; empty without one."""
    for name in ("error", "error_code"):
        if name in frame.command.DESCRIPTOR.fields_by_name and frame.command.HasField(name):
            return str(pb.ServerError.Name(getattr(frame.command, name)))
    return ""


def answers_of(line: Line, client: Client) -> Iterator[str]:
    """Yield the mistakes in the answers to an admitted client."""
    assert line.receive().name == "connected", client.name
    for name, (ask, roles, form) in GUARDED.items():
        request_id = ask(line)
        frame = line.receive()
        error = error_of(frame)
        assert frame.command.request_id == request_id, f"{name} as {client.name}: {frame}"
        if client.role not in roles:
            if error != "AuthorizationError":
                yield f"{name} as {client.name}: {error or frame.name}, not AuthorizationError"
        elif frame.name != form or error == "AuthorizationError":
            yield f"{name} as {client.name}: {frame.name} {error}, not {form}"
    for name, (ask, due) in UNOPENED.items():
        ask(line)
        frame = line.receive()
        if error_of(frame) != due:
            yield f"{name} as {client.name}: {frame.name} {error_of(frame)}, not {due}"
    for name, ask in SUPER_USERS.items():
        ask(line)
        frame = line.receive()
        due = "" if client.role == "root" else "TransactionNotFound"
        if error_of(frame) != due:
            yield f"{name} as {client.name}: {frame.name} {error_of(frame)}, not {due}"
    for name, fields in SILENT.items():
        line.send(name, **fields)
    line.send_bytes(payload_frame(9, 0, b"x"))
    frame = line.receive()
    if (frame.name, error_of(frame)) != ("error", "NotAllowedError"):
        yield f"SEND as {client.name}: {frame}"
    line.expect_closed()


def test_every_command_answers_each_client_as_the_table_says(endpoint: Any) -> None:
    wrong: list[str] = []
    kinds = clients()
    for client in kinds:
        with closing(connected(endpoint, client)) as line:
            if client.refused:
                frame = line.receive()
                found = (frame.name, error_of(frame), getattr(frame.command, "request_id", 0))
                if found != ("error", client.refused, NO_REQUEST):
                    wrong.append(f"CONNECT as {client.name}: {frame}")
                line.expect_closed()
            else:
                wrong += answers_of(line, client)
    commands = len(GUARDED) + len(UNOPENED) + len(SUPER_USERS) + len(SILENT) + 1
    print(f"{commands} commands as {len(kinds)} kinds of clients, {commands * len(kinds)} cells")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_before_connect_no_command_is_answered(endpoint: Any, name: str) -> None:
    with closing(Line(endpoint)) as line:
        GUARDED[name][0](line)
        try:
            frames = line.expect_closed()
        except ConnectionEnded:
            frames = []
        assert [(frame.name, error_of(frame)) for frame in frames] == [("error", "NotAllowedError")]


def test_a_transaction_is_its_owners_and_for_other_roles_there_is_none(endpoint: Any) -> None:
    with (
        closing(connected(endpoint, Client("producer", by_token("producer")))) as owner,
        closing(connected(endpoint, Client("consumer", by_token("consumer")))) as other,
        closing(connected(endpoint, Client("root", by_token("root")))) as root,
    ):
        for each in (owner, other, root):
            each.receive()
        ids = []
        for _ in range(2):
            owner.request("newTxn", txn_ttl_seconds=60_000)
            answer = owner.expect("newTxnResponse").command
            ids.append(
                {"txnid_most_bits": answer.txnid_most_bits, "txnid_least_bits": answer.txnid_least_bits}
            )
        for line, txn, due in (
            (other, ids[0], "TransactionNotFound"),
            (owner, ids[0], ""),
            (other, ids[0], "TransactionNotFound"),
            (root, ids[1], ""),
        ):
            line.request("endTxn", txn_action="ABORT", **txn)
            assert error_of(line.expect("endTxnResponse")) == due
