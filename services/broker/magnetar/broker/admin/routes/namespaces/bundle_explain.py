"""The route that explains why a bundle is at its broker, and what would move or split it.

The leader answers for the place, and asks the owner for the load of the bundle's topics.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id, require_leader
from magnetar.broker.admin.objects.bundles import bundle_in
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS
from magnetar.broker.admin.stats.bundle_explanation import brokers_json, measured, reasons_json
from magnetar.broker.load.explanation import PlacementCode, placement_reason
from magnetar.common.cluster.bundles import bundles_of
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.security.authorization.operations import Operation

OWNER_S: Final = 5.0
"""Time limit for the owner's answer, in seconds."""

_HERE: Final = "here"


async def _explain(call: Call) -> web.Response:
    broker = call.broker
    namespace = await broker.policy_writer.namespace(call.namespace)
    bundles = bundles_of(namespace)
    bundle = bundle_in(call, namespace)
    if call.flag(_HERE):
        return answer(await _owned(call, bundle, len(bundles)))
    shown: dict[str, Any] = {
        "namespace": str(call.namespace),
        "bundle": str(bundle),
        "namespaceBundles": len(bundles),
    }
    if broker.load_leader is None:
        own = broker_id(call)
        text = "a standalone has one broker, which serves every bundle"
        sole = placement_reason(PlacementCode.SOLE_BROKER, text, broker=own)
        load = await _owned(call, bundle, len(bundles))
        return answer({**shown, "broker": own, **reasons_json([sole], []), "brokers": [], **load})
    require_leader(call, f"the place of bundle {call.namespace}/{bundle}")
    here, moves, placement = broker.load_leader.explain((call.namespace, bundle))
    owner = None if placement.owner is None else placement.owner.broker_id
    load = {"splits": [], "topics": [], "unreachable": ""}
    if owner is not None:
        load = await _of_owner(call, owner, bundle, len(bundles))
    place = {**reasons_json(here, moves), "brokers": brokers_json(placement)}
    return answer({**shown, "broker": owner, **place, **load})


async def _of_owner(call: Call, owner: str, bundle: BundleRange, bundles: int) -> dict[str, Any]:
    """Returns the load that the owner measures; none, with the reason, when it does not answer."""
    cluster = call.broker.cluster
    registered = None if cluster is None else cluster.directory.get(owner)
    if owner == broker_id(call):
        return await _owned(call, bundle, bundles)
    unreachable = f"broker {owner} has stopped"
    if registered is not None:
        try:
            async with asyncio.timeout(OWNER_S):
                path = call.request.rel_url.raw_path
                found: dict[str, Any] = await call.request.app[PEERS].ask(
                    registered, "GET", path, {_HERE: "true"}, caller=call.request
                )
                return found
        except TimeoutError:
            unreachable = f"broker {owner} gave no answer within {OWNER_S:g} s"
        except (MagnetarError, Refused) as error:
            unreachable = str(error)
    return {"splits": [], "topics": [], "unreachable": unreachable}


async def _owned(call: Call, bundle: BundleRange, bundles: int) -> dict[str, Any]:
    """Returns what would split the bundle, and its most loaded topics, as loaded at this broker."""
    broker = call.broker
    load, topics = await measured(
        topic
        for topic in broker.topics.values()
        if topic.name.namespace == call.namespace and topic.name.hash in bundle
    )
    leader = broker.load_leader
    splits = [] if leader is None else [each.to_json() for each in leader.explain_split(load, bundles)]
    return {"splits": splits, "topics": topics, "unreachable": ""}


ROUTES: Final = [
    Route(
        object="namespaces",
        method="GET",
        path="/admin/magnetar/v1/namespaces/{tenant}/{namespace}/{bundle}/explain",
        handler=_explain,
        summary="Explain why a bundle is at its broker, what would move or split it, and its busiest topics.",
        query=(f"{_HERE}:boolean=false",),
        answer="BundleExplanation",
        errors={**NAMESPACE_ERRORS, 412: "Invalid bundle range; invalid name"},
        operation=Operation.SUPER_USER,
    )
]
