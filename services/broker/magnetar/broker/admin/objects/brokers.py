"""Ids of this broker and of the active brokers, and calls that only the leader answers."""

from __future__ import annotations

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.owners import send_on


def broker_id(call: Call) -> str:
    """Returns the id of this broker."""
    cluster, url = call.broker.cluster, call.broker.urls.any_http_url
    registered = "" if cluster is None else cluster.presence.broker_id
    return registered or url.partition("://")[2] or call.request.host


def require_leader(call: Call, what: str) -> None:
    """Checks that this broker is the leader, which handles `what`. Raises a redirect to it, and as
    `send_on`.
    """
    cluster = call.broker.cluster
    leader = None if cluster is None else cluster.directory.leader
    if cluster is not None and leader is not None and leader.id != broker_id(call):
        send_on(call, cluster.directory.get(leader.id), what)


def active_brokers(call: Call) -> list[str]:
    """Returns the ids of the brokers that serve clients."""
    cluster = call.broker.cluster
    if cluster is None:
        return [] if call.broker.not_ready else [broker_id(call)]
    return [each.broker_id for each in cluster.directory.all()]
