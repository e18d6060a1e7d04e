"""Why clients were refused or closed lately, and what the connections that are open now do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.admin.stats.publish_explanation import pause_reason
from magnetar.broker.client_endings import KEPT_S, ClientEnd, EndCode
from magnetar.broker.handlers.client import Client, OpenConsumer, OpenProducer
from magnetar.broker.read_pauses import ReadPause
from magnetar.broker.reason import Reason, iso_time
from magnetar.broker.topics.topic import Topic
from magnetar.common.runtime.clock import Clock

REASONS_MAX: Final = 100
"""Maximum reasons of an answer."""

CONNECTIONS_MAX: Final = 100
"""Maximum open connections of an answer."""

OPENED_MAX: Final = 100
"""Maximum producers and consumers of one connection that are listed, of each."""


class ClientCode(StrEnum):
    """The kinds of reasons beside ends; docs/explain.md has each with its test."""

    CONNECTED = "connected"
    NOT_READ = "not_read"
    SOCKET_FULL = "socket_full"
    NOTHING_ENDED = "nothing_ended"
    NO_SUCH_CONNECTION = "no_such_connection"


_RECONNECTS: Final = "nothing: clients reconnect by themselves"
_TOPIC_STATS: Final = "magnetar admin topics stats shows the connected ones"

_ENDS: Final = {
    EndCode.REFUSED: ("was refused", ""),
    EndCode.CLOSED_BY_CLIENT: ("was closed by its client", "nothing, if the application meant to"),
    EndCode.REPLACED: (
        "was replaced by the same client, which opened it again",
        "nothing: the client took its first attempt for lost; see its log if this repeats",
    ),
    EndCode.UNLOADED: ("was closed because the topic was unloaded", _RECONNECTS),
    EndCode.MOVED: (
        "was closed because the topic moved to another broker",
        f"{_RECONNECTS}; magnetar explain topic says where it is and why",
    ),
    EndCode.TOPIC_DELETED: (
        "was closed because the topic was deleted",
        "stop the client, or create the topic again",
    ),
    EndCode.TOPIC_TERMINATED: (
        "was closed because the topic was terminated",
        "stop the producer, or publish to another topic: a terminated one takes no more messages",
    ),
    EndCode.OWNERSHIP_LOST: (
        "was closed because this broker no longer owns the topic",
        f"{_RECONNECTS}; the broker's log says why it lost the topic",
    ),
    EndCode.STORAGE_LOST: (
        "was closed because the storage of the topic failed",
        f"{_RECONNECTS}; magnetar admin bookies list shows the bookies",
    ),
    EndCode.BROKER_STOPPING: ("was closed because the broker stopped", _RECONNECTS),
    EndCode.FENCED: (
        "was closed because another producer took exclusive access",
        "stop one of the two: this producer may publish no more",
    ),
    EndCode.RIGHT_REVOKED: (
        "was closed because its role lost the right",
        "grant it again, if it was meant to have it: magnetar admin namespaces grant-permission",
    ),
    EndCode.ENCRYPTION_REQUIRED: (
        "was closed because the topic requires encryption",
        "give the producer keys to encrypt with; magnetar explain policies says who requires it",
    ),
    EndCode.BACKLOG_QUOTA: (
        "was closed because a backlog quota is exceeded",
        "consume the backlog or raise the quota: magnetar explain policies shows it",
    ),
    EndCode.MESSAGE_REFUSED: (
        "was closed because one of its messages was refused",
        "see the client's log for the message; the broker's log has 'messages refused' with the reason",
    ),
    EndCode.UNSUBSCRIBED: (
        "was closed because the subscription was deleted",
        "subscribe again, if it was not meant to be deleted",
    ),
    EndCode.CURSOR_RESET: ("was closed because the subscription was moved (seek)", _RECONNECTS),
    EndCode.CONNECTION_ENDED: (
        "ended: the client or a network device closed the connection",
        "see the client's log; nothing, if it was stopped",
    ),
    EndCode.CONNECTION_LOST: (
        "was lost",
        "look at the network, load balancers and the client's process: the connection was cut",
    ),
    EndCode.KEEP_ALIVE_TIMEOUT: (
        "was closed: the client did not answer Ping",
        "look for a suspended client process or a cut network; keepAliveIntervalSeconds is the limit",
    ),
    EndCode.NO_CONNECT: (
        "was closed: the client sent no Connect in time",
        "check that it is a Pulsar client, and that a TLS client uses the TLS port",
    ),
    EndCode.HANDSHAKE_FAILED: (
        "was refused: the TLS handshake failed",
        "compare the client's trusted certificates, its certificate and its URL (pulsar+ssl://)",
    ),
    EndCode.PROTOCOL_ERROR: (
        "was closed because of a protocol error",
        "update the client, or report its version with the message: it sent what the protocol forbids",
    ),
    EndCode.CONNECTION_LIMIT: (
        "was refused because of a limit",
        "close idle connections, or raise the limit that the message names",
    ),
    EndCode.AUTHENTICATION_FAILED: (
        "was refused: its credentials were not accepted",
        "give the client valid credentials; the audit log has the attempt",
    ),
    EndCode.CREDENTIALS_ENDED: (
        "was closed because its credentials are no longer good",
        "renew the client's token or certificate",
    ),
    EndCode.OLD_PROTOCOL: (
        "was closed because its client is too old to be told that a producer or consumer is closed",
        "update the client",
    ),
    EndCode.COORDINATOR_GONE: (
        "was closed because its transaction coordinator moved",
        f"{_RECONNECTS}; magnetar admin transactions shows the coordinators",
    ),
}
"""Words and the next step for each end."""

_REFUSALS: Final = {
    "ConsumerBusy": f"use another subscription, or a Shared one; {_TOPIC_STATS}",
    "ConsumerAssignError": "give consumers of a sticky Key_Shared subscription ranges that do not overlap",
    "ProducerBusy": f"give each producer a name of its own, or wait for the other one; {_TOPIC_STATS}",
    "ProducerFenced": "close one of the producers that want exclusive access",
    "ProducerBlockedQuotaExceededError": "consume the backlog or raise its quota: magnetar explain policies",
    "ProducerBlockedQuotaExceededException": "see the message: the backlog quota, or refused messages",
    "TopicTerminatedError": "publish to another topic: a terminated one takes no more messages",
    "TopicNotFound": "create the topic, or allow automatic creation: magnetar explain policies",
    "InvalidTopicName": "correct the name: persistent://tenant/namespace/topic",
    "SubscriptionNotFound": "create the subscription, or allow automatic creation: magnetar explain policies",
    "IncompatibleSchema": "compare the schemas: magnetar admin schemas get shows the topic's",
    "AuthorizationError": "grant the role the right: magnetar admin namespaces grant-permission",
    "AuthenticationError": "give the client valid credentials",
    "NotAllowedError": "see the message: a policy or a limit does not allow it (magnetar explain policies)",
    "TooManyRequests": "wait: the client tries again; if it repeats, raise the limit in the message",
    "ServiceNotReady": "nothing, if it stopped: clients try again; otherwise magnetar explain topic",
    "MetadataError": "see the message; magnetar doctor checks the metadata",
    "PersistenceError": "magnetar admin bookies list shows whether the bookies take messages",
}
_OTHER_REFUSAL: Final = "see the message, and the broker's log for 'command refused'"


def end_reason(end: ClientEnd, *, roles: bool) -> Reason:
    """Returns an end as a reason. `roles`: whether the caller may see the client's role."""
    words, hint = _ENDS[end.code]
    if end.code is EndCode.REFUSED:
        hint = _REFUSALS.get(end.error, _OTHER_REFUSAL)
    text = f"{_named(end)} at {end.address} {words}"
    if end.error:
        text += f" with {end.error}"
    if end.message:
        text += f": {end.message}"
    if end.times > 1:
        text += f" ({end.times} times since {iso_time(end.since_ms)})"
    data = {
        "kind": str(end.kind),
        "topic": end.topic,
        "name": end.name,
        "subscription": end.subscription,
        "address": end.address,
        "connectionId": end.connection_id,
        "role": end.role if roles else None,
        "clientVersion": end.client_version,
        "error": end.error,
        "message": end.message,
        "times": end.times,
        "first": iso_time(end.since_ms),
    }
    return Reason(end.code, text, hint, end.at_ms, False, data)


def _named(end: ClientEnd) -> str:
    named = f"{end.kind} {end.name}" if end.name else f"a {end.kind}"
    return f"{named} of subscription {end.subscription}" if end.subscription else named


def topic_clients_explanation(
    name: str, topic: Topic | None, ends: Sequence[ClientEnd], *, roles: bool
) -> dict[str, Any]:
    """Returns why clients of a topic were refused or closed lately. `topic`: None when it is not loaded."""
    reasons = [end_reason(each, roles=roles) for each in ends[:REASONS_MAX]]
    producers = 0 if topic is None else topic.producer_count
    consumers = 0
    if topic is not None:
        consumers = sum(len(each.consumers) for each in topic.subscriptions.values())
    if not reasons:
        text = f"no client of this topic was refused or closed at this broker in the last {KEPT_S // 60} min"
        hint = (
            "look at the client's log, and at its connection: magnetar explain connection ADDRESS; "
            "another broker may have refused it before the topic moved here"
        )
        reasons = [Reason(ClientCode.NOTHING_ENDED, text, hint, stops=False)]
    return {
        "topic": name,
        "windowSeconds": KEPT_S,
        "producers": producers,
        "consumers": consumers,
        "reasons": [each.to_json() for each in reasons],
        "partitions": {},
    }


def connections_explanation(
    asked: str, clients: Iterable[Client], ends: Sequence[ClientEnd], clock: Clock
) -> dict[str, Any]:
    """Returns what ended lately and what open connections do, for an address, a host or a connection id.

    All connections' ends, and no open connection, for an empty `asked`.
    """
    chosen = [each for each in ends if not asked or _is_meant(asked, each.address, each.connection_id)]
    found = [each for each in clients if asked and _is_meant(asked, each.peer.address, each.connection_id)]
    opened = found[:CONNECTIONS_MAX]
    reasons = [reason for each in opened for reason in open_reasons(each, clock)]
    reasons += [end_reason(each, roles=True) for each in chosen[:REASONS_MAX]]
    if not reasons:
        reasons = [_nothing(asked)]
    return {
        "asked": asked,
        "windowSeconds": KEPT_S,
        "open": len(found),
        "ended": len(chosen),
        "reasons": [each.to_json() for each in reasons],
        "connections": [_connection(each) for each in opened],
    }


def _is_meant(asked: str, address: str, connection_id: int) -> bool:
    host = address.rpartition(":")[0]
    return asked in (address, host) or (asked.isdecimal() and int(asked) == connection_id != 0)


def _nothing(asked: str) -> Reason:
    if not asked:
        text = f"no client was refused or closed in the last {KEPT_S // 60} min"
        return Reason(ClientCode.NOTHING_ENDED, text, "nothing is to be done", stops=False)
    text = f"this broker has no connection {asked}, and had none in the last {KEPT_S // 60} min that ended"
    hint = (
        "compare the address with magnetar admin topics stats; ask the broker that the client connects "
        "to with --admin-url; behind a proxy the address is the proxy's"
    )
    return Reason(ClientCode.NO_SUCH_CONNECTION, text, hint, stops=True, data={"asked": asked})


def open_reasons(client: Client, clock: Clock) -> list[Reason]:
    """Returns what an open connection does, and what holds it up."""
    peer, now, now_ms = client.peer, clock.monotonic(), clock.wall_ms()
    producers, consumers = _producers(client), _consumers(client)
    text = (
        f"connection {client.connection_id} of {peer.address} is open, client "
        f"{client.client_version or '(no Connect yet)'}, with {len(producers)} producers and "
        f"{len(consumers)} consumers"
    )
    hint = (
        "magnetar explain subscription says why a consumer gets nothing; magnetar explain publishes is for "
    )
    hint += "producers"
    data = {"connectionId": client.connection_id, "address": peer.address}
    found = [Reason(ClientCode.CONNECTED, text, hint, client.connected_since_ms, False, data)]
    pauses: dict[str, list[tuple[str, ReadPause]]] = {}
    for pause in peer.read_pauses.since(now):
        pauses.setdefault(pause.cause, []).append((peer.address, pause))
    found += [pause_reason(cause, each, now, now_ms) for cause, each in pauses.items()]
    if peer.unwritable_s:
        text = f"the client at {peer.address} has not read what was sent for {peer.unwritable_s:.1f} s"
        hint = "look for a client that is suspended, or slower than its messages come"
        since_ms = now_ms - round(peer.unwritable_s * 1000)
        found.append(Reason(ClientCode.SOCKET_FULL, text, hint, since_ms, True, data))
    return found


def _producers(client: Client) -> list[OpenProducer]:
    return [each for each in client.producers.values() if isinstance(each, OpenProducer)]


def _consumers(client: Client) -> list[OpenConsumer]:
    return [each for each in client.consumers.values() if isinstance(each, OpenConsumer)]


def _connection(client: Client) -> dict[str, Any]:
    principal, peer = client.principal, client.peer
    return {
        "connectionId": client.connection_id,
        "address": peer.address,
        "connectedSince": iso_time(client.connected_since_ms),
        "role": None if principal is None else principal.role,
        "originalRole": None if principal is None else principal.original,
        "clientVersion": client.client_version,
        "read": not peer.read_pauses.lasting,
        "writable": peer.writable,
        "producers": [_producer(each) for each in _producers(client)[:OPENED_MAX]],
        "consumers": [_consumer(each) for each in _consumers(client)[:OPENED_MAX]],
    }


def _producer(opened: OpenProducer) -> dict[str, Any]:
    producer = opened.producer
    return {
        "topic": opened.topic.name.full,
        "name": producer.name,
        "connectedSince": iso_time(producer.connected_since_ms),
        "unconfirmed": producer.pending_runs,
        "messageRateIn": round(producer.stats.message_rate_in, 1),
    }


def _consumer(opened: OpenConsumer) -> dict[str, Any]:
    consumer = opened.consumer
    held = consumer.held_back_by
    return {
        "topic": opened.topic.name.full,
        "subscription": opened.subscription.name,
        "name": consumer.name,
        "connectedSince": iso_time(consumer.connected_since_ms),
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.pending.messages,
        "heldBackBy": None if held is None else str(held.code),
    }
