"""In which clusters a single topic is, over HTTP; messages are not replicated between clusters yet."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.topics import topic_routes, topic_with_policies
from magnetar.broker.admin.policies.replication_clusters import check_clusters, check_local, clusters_of
from magnetar.common.metadata.values import Policies


async def _get(call: Call) -> web.Response:
    topic, writer = await topic_with_policies(call), call.broker.policy_writer
    own = await writer.topic(topic)
    if own.HasField("replication_clusters"):
        return answer(list(own.replication_clusters.names))
    if call.flag("applied"):
        return answer(clusters_of(await writer.namespace(topic.namespace), call.broker.clusters.local))
    return nothing()


async def _set(call: Call) -> web.Response:
    topic = await topic_with_policies(call)
    wanted = names(await call.json_or(None), "the clusters")
    if not wanted:
        raise Refused(412, "ClusterIds should not be null; DELETE leaves it to the namespace")
    tenant = await call.broker.tenancy.tenant(topic.tenant)
    await check_clusters(call.broker.clusters, wanted, topic.tenant, tenant)
    check_local(call.broker.clusters, wanted)

    def edit(policies: Policies) -> None:
        policies.replication_clusters.names[:] = wanted

    await call.broker.policy_writer.change_topic(topic, edit)
    return done()


async def _remove(call: Call) -> web.Response:
    topic = await topic_with_policies(call)

    def edit(policies: Policies) -> None:
        policies.ClearField("replication_clusters")

    await call.broker.policy_writer.change_topic(topic, edit)
    return done()


async def _no_shadows(call: Call) -> web.Response:
    await topic_with_policies(call)
    return nothing()


async def _set_shadows(call: Call) -> web.Response:
    await topic_with_policies(call)
    if names(await call.json_or(None), "the shadow topics"):
        raise Refused(
            405, "there are no shadow topics yet: read the topic itself, each with its subscription"
        )
    return done()


async def _remove_shadows(call: Call) -> web.Response:
    await topic_with_policies(call)
    return done()


_CHANGED: Final = {
    403: "Invalid cluster id; the tenant may not use the cluster",
    405: "messages are not replicated between clusters yet",
    409: "of two peer clusters only one may be in the list; Concurrent modification",
    412: "the list cannot be; a partition has no policies of its own; a name cannot be",
}

ROUTES: Final = [
    *topic_routes(
        "GET",
        "replication",
        _get,
        "In which clusters it is.",
        query=("applied:boolean=false",),
        answer="List<String>",
    ),
    *topic_routes(
        "POST",
        "replication",
        _set,
        "Say in which clusters it is.",
        body="List<String>",
        status=204,
        errors=_CHANGED,
    ),
    *topic_routes("DELETE", "replication", _remove, "It is where its namespace is.", status=204),
    *topic_routes(
        "GET", "shadowTopics", _no_shadows, "Its shadow topics: there are none.", answer="List<String>"
    ),
    *topic_routes(
        "PUT",
        "shadowTopics",
        _set_shadows,
        "Not yet: give it shadow topics.",
        body="List<String>",
        status=204,
        errors={405: "there are no shadow topics yet"},
    ),
    *topic_routes("DELETE", "shadowTopics", _remove_shadows, "Have no shadow topics.", status=204),
]
