"""The route that maps bundles to the brokers that own them, with the load that each broker reported.

Owners come from metadata, which every broker mirrors; load comes from the leader, to which others redirect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import active_brokers, broker_id, require_leader
from magnetar.broker.admin.routes.brokers.load_report import MB, load_report, loads_of
from magnetar.broker.admin.routes.brokers.load_report import Load as TopicLoad
from magnetar.broker.admin.routes.brokers.topic_bundles import topics_by_bundle
from magnetar.common.control.control_pb2 import BrokerLoad, Load
from magnetar.common.errors import ServiceNotReady
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

BUNDLES_MAX: Final = 1_000
"""Largest number of bundles named of each broker."""

_BUNDLES: Final = 200
"""Bundles named of each broker unless the caller asks for another number."""


async def _map(call: Call) -> web.Response:
    limit = call.query_number("limit", _BUNDLES)
    if not 0 < limit <= BUNDLES_MAX:
        raise Refused(412, f"limit must be from 1 to {BUNDLES_MAX}, not {limit}")
    if call.broker.cluster is None:
        return answer({"brokers": await _sole(call, limit)})
    require_leader(call, "the map of bundles")
    return answer({"brokers": await _all(call, limit)})


async def _all(call: Call, limit: int) -> list[dict[str, Any]]:
    cluster, leader = call.broker.cluster, call.broker.load_leader
    assert cluster is not None
    try:
        loads = [] if leader is None else leader.loads()
    except ServiceNotReady:
        loads = []  # no broker leads now: the map is without load
    reported = {each.report.broker_id: each for each in loads}
    parts: dict[str, dict[tuple[str, str], Load]] = {
        broker: {(part.namespace, part.bundle): part.load for part in each.report.loads}
        for broker, each in reported.items()
    }
    by_broker: dict[str, list[dict[str, Any]]] = {}
    async for namespace, bundle, owned in iterate_cooperatively(list(cluster.owners.all())):
        if cluster.directory.is_current(owned.broker_id, owned.run):
            load = parts.get(owned.broker_id, {}).get((str(namespace), str(bundle)))
            row = {"namespace": str(namespace), "bundle": str(bundle), "since": owned.since_ms}
            by_broker.setdefault(owned.broker_id, []).append({**row, **_bundle(load)})
    leading = cluster.directory.leader
    return [
        {
            "brokerId": each.broker_id,
            "httpUrl": each.addresses.http_url or each.addresses.http_url_tls,
            "leader": leading is not None and leading.id == each.broker_id,
            **_usage(reported.get(each.broker_id)),
            **_listed(by_broker.get(each.broker_id, []), limit),
        }
        for each in cluster.directory.all()
    ]


def _usage(load: BrokerLoad | None) -> dict[str, Any]:
    if load is None:
        return {}
    report = load.report
    return {
        "loadAgeMs": load.age_ms,
        "draining": report.draining,
        "cpuPercent": round(report.cpu_percent, 1),
        "memoryBytes": report.memory_bytes,
        "memoryBytesMax": report.memory_bytes_max,
        **_rates(report.total),
    }


def _bundle(load: Load | None) -> dict[str, Any]:
    """Returns the figures of a bundle; none for one that no report names."""
    return {} if load is None else _rates(load)


def _rates(load: Load | TopicLoad) -> dict[str, Any]:
    return {
        "msgRateIn": load.message_rate_in,
        "msgRateOut": load.message_rate_out,
        "msgThroughputIn": load.byte_rate_in,
        "msgThroughputOut": load.byte_rate_out,
        "topics": load.topics,
        "producers": load.producers,
        "consumers": load.consumers,
    }


def _listed(bundles: Iterable[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Returns the bundles with the most messages, and how many there are."""
    found = sorted(
        bundles,
        key=lambda each: (
            -(each.get("msgRateIn", 0.0) + each.get("msgRateOut", 0.0)),
            -each.get("topics", 0),
            each["namespace"],
            each["bundle"],
        ),
    )
    return {"bundleCount": len(found), "bundles": found[:limit]}


async def _sole(call: Call, limit: int) -> list[dict[str, Any]]:
    """Returns the broker of a standalone, which owns every bundle, with the bundles that have topics."""
    if not active_brokers(call):
        return []
    loads = await loads_of(await topics_by_bundle(call.broker))
    report = load_report(call.broker, loads)
    row = {"since": call.broker.started_ms}
    bundles = [
        {"namespace": str(namespace), "bundle": bundle, **row, **_rates(load)}
        for namespace, parts in loads.items()
        for bundle, load in parts.items()
    ]
    total = TopicLoad.sum_of(load for parts in loads.values() for load in parts.values())
    return [
        {
            "brokerId": broker_id(call),
            "httpUrl": call.broker.urls.any_http_url,
            "leader": True,
            "loadAgeMs": 0,
            "draining": call.broker.leaving is not None,
            "cpuPercent": round(report["cpu"]["usage"], 1),
            "memoryBytes": int(report["memory"]["usage"] * MB),
            "memoryBytesMax": int(report["memory"]["limit"] * MB),
            **_rates(total),
            **_listed(bundles, limit),
        }
    ]


ROUTES: Final = [
    Route(
        object="brokers",
        method="GET",
        path="/admin/magnetar/v1/brokers",
        handler=_map,
        summary="List brokers with their load and their bundles, those with the most messages first.",
        query=(f"limit:int={_BUNDLES}",),
        answer="BundleMap",
        errors={412: f"limit is not 1 to {BUNDLES_MAX}"},
        operation=Operation.SUPER_USER,
    )
]
