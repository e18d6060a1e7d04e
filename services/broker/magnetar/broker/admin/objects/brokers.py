"""Ids of this broker and of the active brokers."""

from __future__ import annotations

from magnetar.broker.admin.edge.call import Call


def broker_id(call: Call) -> str:
    """Returns the id of this broker."""
    cluster, url = call.broker.cluster, call.broker.urls.any_http_url
    registered = "" if cluster is None else cluster.presence.broker_id
    return registered or url.partition("://")[2] or call.request.host


def active_brokers(call: Call) -> list[str]:
    """Returns the ids of the brokers that serve clients."""
    cluster = call.broker.cluster
    if cluster is None:
        return [] if call.broker.not_ready else [broker_id(call)]
    return [each.broker_id for each in cluster.directory.all()]
