"""Routes of a cluster's failure domains: groups of brokers that fail together."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.routes.clusters.clusters import change_cluster, cluster_of, cluster_route
from magnetar.common.metadata.values import Cluster

_NO_CLUSTER: Final = 412
"""Pulsar's status for an unknown cluster in these calls."""


def _json(domain: Cluster.FailureDomain) -> dict[str, Any]:
    return {"brokers": list(domain.brokers)}


async def _list(call: Call) -> web.Response:
    cluster = await cluster_of(call, _NO_CLUSTER)
    return answer({name: _json(domain) for name, domain in sorted(cluster.failure_domains.items())})


async def _get(call: Call) -> web.Response:
    cluster, name = await cluster_of(call, _NO_CLUSTER), call.names["domainName"]
    if name not in cluster.failure_domains:
        raise _unknown(call)
    return answer(_json(cluster.failure_domains[name]))


async def _set(call: Call) -> web.Response:
    await cluster_of(call, _NO_CLUSTER)
    given, name = await call.json(), call.names["domainName"]
    if not isinstance(given, dict):
        raise Refused(400, "a failure domain must be an object with brokers")
    brokers = names(given.get("brokers"), "brokers")

    def edit(cluster: Cluster) -> None:
        for other, domain in cluster.failure_domains.items():
            twice = set(brokers) & set(domain.brokers)
            if other != name and twice:
                raise Refused(409, f"{sorted(twice)[0]} already exists in {other}")
        domain = cluster.failure_domains[name]
        domain.brokers[:] = brokers

    await change_cluster(call, edit, _NO_CLUSTER)
    return done()


async def _delete(call: Call) -> web.Response:
    name = call.names["domainName"]

    def edit(cluster: Cluster) -> None:
        if name not in cluster.failure_domains:
            raise _unknown(call)
        del cluster.failure_domains[name]

    await change_cluster(call, edit, _NO_CLUSTER)
    return nothing()


def _unknown(call: Call) -> Refused:
    names = call.names
    return Refused(404, f"Domain {names['domainName']} for cluster {names['cluster']} does not exist")


_PATH: Final = "/failureDomains/{domainName}"
_ERRORS: Final = {404: "FailureDomain doesn't exist", 412: "Cluster doesn't exist"}

ROUTES: Final = [
    cluster_route(
        "GET",
        "/failureDomains",
        _list,
        "List the failure domains of a cluster.",
        answer="Map<FailureDomain>",
        errors=_ERRORS,
    ),
    cluster_route("GET", _PATH, _get, "Get a failure domain.", answer="FailureDomain", errors=_ERRORS),
    cluster_route(
        "POST",
        _PATH,
        _set,
        "Set the brokers of a failure domain.",
        body="FailureDomain",
        status=204,
        errors={**_ERRORS, 409: "Broker already exists in another domain"},
    ),
    cluster_route("DELETE", _PATH, _delete, "Delete a failure domain.", errors=_ERRORS),
]
