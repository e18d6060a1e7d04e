"""Routes of brokers: active brokers, leader, readiness, health and owned bundles.

A standalone is the only broker, and the leader. In a cluster, the active brokers are the registered ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, plain
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.owners import redirect, send_on
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import active_brokers, broker_id
from magnetar.broker.admin.routes.brokers.topic_bundles import topics_by_bundle
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.security.authorization.operations import Operation

_TOPIC_VERSIONS: Final = ("V1", "V2")


@dataclass(frozen=True, slots=True)
class ActiveBroker:
    """A broker that serves clients."""

    broker_id: str
    """Broker id: host:port of its HTTP listener."""
    http_url: str


def leader(call: Call) -> ActiveBroker | None:
    """Returns the broker that assigns bundles; None without one."""
    cluster = call.broker.cluster
    if cluster is None:
        return None if call.broker.not_ready else _standalone(call)
    found = cluster.directory.leader
    registered = None if found is None else cluster.directory.get(found.id)
    return (
        None
        if registered is None
        else ActiveBroker(
            registered.broker_id, registered.addresses.http_url or registered.addresses.http_url_tls
        )
    )


def _send_on(call: Call, asked: str) -> None:
    """Raises a redirect to another broker, given by id; Refused (404) when it is not active; ServiceNotReady
    when another broker redirected the call here.
    """
    cluster = call.broker.cluster
    found = None if cluster is None else cluster.directory.get(asked)
    if found is None:
        raise Refused(404, f"Broker {asked} is not active; GET /admin/v2/brokers lists those that are")
    send_on(call, found, f"broker {asked}")


def _standalone(call: Call) -> ActiveBroker:
    own = broker_id(call)
    return ActiveBroker(own, call.broker.urls.any_http_url or f"{call.request.scheme}://{own}")


async def _list(call: Call) -> web.Response:
    return answer(active_brokers(call))


async def _of_cluster(call: Call) -> web.Response:
    await _here(call, call.names["cluster"])
    return answer(active_brokers(call))


async def _leader(call: Call) -> web.Response:
    found = leader(call)
    if found is None:
        raise Refused(404, "Leader broker not found: no broker serves clients now")
    return answer({"serviceUrl": found.http_url, "brokerId": found.broker_id})


async def _owned(call: Call) -> web.Response:
    await _here(call, call.names["clusterName"])
    asked = call.names["brokerId"]
    if asked != broker_id(call):
        _send_on(call, asked)
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return answer({f"{name}/{bundle}": status for name, bundle in await _own_bundles(call)})


async def _own_bundles(call: Call) -> list[tuple[NamespaceName, str]]:
    """Returns the bundles that this broker owns; in a standalone, which owns all, the bundles with loaded
    topics.
    """
    cluster = call.broker.cluster
    if cluster is not None:
        return sorted((own.namespace, str(own.range)) for own in cluster.ownership.table)
    by_bundle = await topics_by_bundle(call.broker)
    return [(name, bundle) for name, bundles in by_bundle.items() for bundle in bundles]


async def _here(call: Call, cluster: str) -> None:
    """Checks that the cluster is this broker's own. Raises Refused (404) or a redirect."""
    clusters = call.broker.clusters
    if cluster == clusters.local:
        return
    known = await clusters.get(cluster)
    url = ""
    if known is not None:
        url = known.data.service_url_tls if call.request.scheme == "https" else known.data.service_url
    if not url:
        raise Refused(404, f"Cluster does not exist: cluster={cluster}")
    raise _elsewhere(call, url)


def _elsewhere(call: Call, http_url: str) -> web.HTTPTemporaryRedirect:
    """Builds a redirect to the same path at another broker, the first of several hosts."""
    parts = urlsplit(http_url)
    host = parts.netloc.partition(",")[0]
    return redirect(f"{parts.scheme}://{host}{call.request.rel_url.raw_path_qs}")


async def _health(call: Call) -> web.Response:
    query = call.request.query
    if query.get("topicVersion", "V1") not in _TOPIC_VERSIONS:
        raise Refused(404, f"topicVersion is one of {', '.join(_TOPIC_VERSIONS)}")
    asked = query.get("brokerId")
    if asked and asked != broker_id(call):
        _send_on(call, asked)
    response = _text_or_why_not(call, "ok")
    if response.status == 200:
        try:
            await call.broker.check_health()
        except MagnetarError as error:
            raise Refused(500, f"Health check failed: {error}") from error
    return response


async def _ready(call: Call) -> web.Response:
    return _text_or_why_not(call, "ok")


async def _status(call: Call) -> web.Response:
    """Responds to load balancers whether this broker accepts clients."""
    return _text_or_why_not(call, "OK")


def _text_or_why_not(call: Call, text: str) -> web.Response:
    not_ready = call.broker.not_ready or call.broker.leaving
    if not_ready is not None:
        return web.Response(status=503, text=f"not ready: {not_ready}")
    return web.Response(text=text)


async def _version(call: Call) -> web.Response:
    return plain(version("magnetar-broker"))


async def _internal_configuration(call: Call) -> web.Response:
    url = call.broker.metadata_url
    return answer(
        {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": call.broker.ledgers.keys.ledgers_prefix.rstrip("/"),
        }
    )


async def _check_quotas(call: Call) -> web.Response:
    await call.broker.check_backlog_quotas()
    return done()


async def _shut_down(call: Call) -> web.Response:
    if call.query_number("maxConcurrentUnloadPerSec", 0) < 0:
        raise Refused(400, "maxConcurrentUnloadPerSec must be 0 (no limit) or more")
    if not call.broker.shut_down():
        raise Refused(405, "this process does not allow shutdown over HTTP: send it SIGTERM")
    return done()


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="brokers",
        method=method,
        path=f"/admin/v2/brokers{path}",
        handler=handler,
        summary=summary,
        **more,
    )


_CLUSTER: Final = {404: "Cluster does not exist"}
_NOT_READY: Final = {503: "clients are not served now, with the reason"}
_HEALTH: Final[dict[str, Any]] = {
    "object": "brokers",
    "method": "GET",
    "handler": _health,
    "summary": "Check the broker's health: publish a message to its heartbeat topic and read it back.",
    "query": ("topicVersion:TopicVersion", "brokerId:String"),
    "answer": "ok",
    "errors": {
        404: "the broker is not active",
        500: "the message could not be stored or read back, with the reason",
        **_NOT_READY,
    },
}

ROUTES: Final = [
    Route(path="/admin/v2/brokers/health", **_HEALTH, operation=Operation.SUPER_USER),
    Route(path="/health", **_HEALTH, operation=Operation.OPEN),
    Route(
        object="brokers",
        method="GET",
        path="/status.html",
        handler=_status,
        summary="Check whether the broker accepts clients, for load balancers.",
        answer="OK",
        errors=_NOT_READY,
        operation=Operation.OPEN,
    ),
    _route(
        "GET", "", _list, "List the active brokers.", answer="Set<String>", operation=Operation.SUPER_USER
    ),
    _route(
        "GET",
        "/leaderBroker",
        _leader,
        "Get the leader broker.",
        answer="BrokerInfo",
        errors={404: "Leader broker not found"},
        operation=Operation.SUPER_USER,
    ),
    _route(
        "GET",
        "/ready",
        _ready,
        "Check whether the broker is ready.",
        answer="ok",
        errors=_NOT_READY,
        operation=Operation.ANY,
    ),
    _route(
        "GET",
        "/version",
        _version,
        "Get the version of the broker, as unquoted text.",
        answer="String",
        operation=Operation.ANY,
    ),
    _route(
        "GET",
        "/internal-configuration",
        _internal_configuration,
        "Get the locations of metadata and ledgers.",
        answer="InternalConfigurationData",
        operation=Operation.SUPER_USER,
    ),
    _route(
        "GET",
        "/backlog-quota-check",
        _check_quotas,
        "Check all backlog quotas now and enforce them.",
        status=204,
        operation=Operation.SUPER_USER,
    ),
    _route(
        "POST",
        "/shutdown",
        _shut_down,
        "Shut down the broker gracefully.",
        query=("maxConcurrentUnloadPerSec:int=0", "forcedTerminateTopic:boolean=true"),
        status=204,
        errors={405: "the process does not allow shutdown over HTTP"},
        anywhere=True,
        operation=Operation.SUPER_USER,
    ),
    _route(
        "GET",
        "/{clusterName}/{brokerId}/ownedNamespaces",
        _owned,
        "List the bundles that a broker owns.",
        answer="Map<NamespaceOwnershipStatus>",
        errors={404: "Cluster does not exist; the broker is not active"},
        operation=Operation.SUPER_USER,
    ),
]

LAST: Final = [
    _route(
        "GET",
        "/{cluster}",
        _of_cluster,
        "List the active brokers of a cluster.",
        answer="Set<String>",
        errors=_CLUSTER,
        operation=Operation.SUPER_USER,
    ),
]
"""Routes tried after all other routes of brokers, whose first segment could be taken for a cluster name."""
