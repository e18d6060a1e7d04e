"""Owners of topics and bundles: redirects of requests to the broker that owns their topic or bundle.

A redirected request carries `authoritative` and is not redirected again: two brokers that briefly disagree
about an owner would redirect it back and forth. It is answered with 503 instead, for the client to retry.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.common.errors import ServiceNotReady
from magnetar.common.http.topic_lookups import bounded_lookup
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter
from yarl import URL

if TYPE_CHECKING:  # not loaded by a standalone
    from magnetar.broker.ownership.cluster import Cluster

_REDIRECTS: Final = Counter(
    "magnetar_http_redirects",
    "HTTP requests redirected to the broker that owns their topic or bundle.",
    registry=REGISTRY,
)

AUTHORITATIVE: Final = "authoritative"
"""Query parameter of redirected requests."""


async def topic_elsewhere(cluster: Cluster | None, topic: TopicName) -> BrokerRegistration | None:
    """Returns the other broker that owns the topic, assigning its bundle if needed; None for this broker.

    Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
    """
    if cluster is None or cluster.ownership.table.of_topic(topic) is not None:
        return None
    return _unless_this(cluster, await bounded_lookup(cluster.ownership.finder.find(topic), str(topic)))


async def bundle_elsewhere(
    cluster: Cluster | None, namespace: NamespaceName, bundle: BundleRange
) -> BrokerRegistration | None:
    """Returns the other broker that owns the bundle, assigning it if needed; None for this broker.

    Raises as `topic_elsewhere`.
    """
    if cluster is None or cluster.ownership.table.get(namespace, bundle) is not None:
        return None
    finder = cluster.ownership.finder
    found = finder.owner(namespace, bundle)
    if found is None:
        found = await bounded_lookup(finder.assigned(namespace, bundle), f"{bundle} of {namespace}")
    return _unless_this(cluster, found)


def _unless_this(cluster: Cluster, found: BrokerRegistration) -> BrokerRegistration | None:
    presence = cluster.presence
    return None if (found.broker_id, found.run) == (presence.broker_id, presence.run) else found


async def require_topic_here(call: Call) -> None:
    """Checks that this broker handles the call: it owns the topic, or the topic is partitioned and its
    partitions may be anywhere.

    Raises a redirect to the owner, InvalidName, and as `topic_elsewhere`.
    """
    broker, topic = call.broker, call.topic
    if broker.cluster is None or not await broker.namespaces.exists(topic.namespace):
        return  # the handler reports the missing namespace in its own words
    if await broker.partitions(topic):
        return
    send_on(call, await topic_elsewhere(broker.cluster, topic), f"topic {topic}")


async def require_bundle_here(call: Call, bundle: BundleRange) -> None:
    """Checks that this broker owns the bundle. Raises a redirect to the owner, and as `bundle_elsewhere`."""
    owner = await bundle_elsewhere(call.broker.cluster, call.namespace, bundle)
    send_on(call, owner, f"bundle {call.namespace}/{bundle}")


def send_on(call: Call, owner: BrokerRegistration | None, what: str, raw_path: str | None = None) -> None:
    """Raises a redirect to the same request at `owner`; returns when `owner` is None.

    `raw_path` is another path to request there. Raises ServiceNotReady when the request was redirected here
    already, or when the owner has no HTTP address, with TLS for a call with TLS.
    """
    if owner is None:
        return
    if call.flag(AUTHORITATIVE):
        raise ServiceNotReady(
            f"{what} is not served by this broker although another broker redirected the request here: "
            "its owner is changing; try again"
        )
    url = _reached_by(call, owner).rstrip("/")
    if not url:
        scheme = call.request.scheme.upper()
        raise ServiceNotReady(f"{what} is served by broker {owner.broker_id}, which has no {scheme} address")
    asked = call.request.rel_url
    given = [each for each in asked.raw_query_string.split("&") if each and not _is_authoritative(each)]
    query = "&".join([*given, f"{AUTHORITATIVE}=true"])
    raise redirect(f"{url}{raw_path or asked.raw_path}?{query}")


def _reached_by(call: Call, owner: BrokerRegistration) -> str:
    """The owner's address for who called: a call with TLS is never sent on to one without."""
    addresses = owner.addresses
    if call.request.scheme == "https":
        return addresses.http_url_tls
    return addresses.http_url or addresses.http_url_tls


def redirect(url: str) -> web.HTTPTemporaryRedirect:
    """Returns a redirect to exactly this URL, and counts it: parsing it would turn `/topic/%2E%2E` into
    another path.
    """
    _REDIRECTS.inc()
    text = quote(url, safe=string.punctuation, errors="surrogateescape")
    return web.HTTPTemporaryRedirect(URL(text, encoded=True))


def _is_authoritative(parameter: str) -> bool:
    return parameter.partition("=")[0] == AUTHORITATIVE
