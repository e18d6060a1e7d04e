"""Routes for the replication clusters of a topic; replication is not supported yet."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.topics import topic_routes, topic_with_policies
from magnetar.broker.admin.policies.replication_clusters import check_clusters, check_local, clusters_of
from magnetar.common.metadata.values import Policies
from magnetar.common.security.authorization.operations import Operation


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
        raise Refused(412, "ClusterIds should not be null; DELETE resets them to those of the namespace")
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
            405, "shadow topics are not supported yet: give each reader a subscription of the topic itself"
        )
    return done()


async def _remove_shadows(call: Call) -> web.Response:
    await topic_with_policies(call)
    return done()


_CHANGED: Final = {
    403: "Invalid cluster id; the tenant may not use the cluster",
    405: "replication between clusters is not supported yet",
    409: "the list contains two peer clusters; concurrent modification",
    412: "invalid list of clusters; partitions have no policies of their own; invalid name",
}

ROUTES: Final = [
    *topic_routes(
        "GET",
        "replication",
        _get,
        "Get the replication clusters of a topic.",
        query=("applied:boolean=false",),
        answer="List<String>",
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "POST",
        "replication",
        _set,
        "Set the replication clusters of a topic.",
        body="List<String>",
        status=204,
        errors=_CHANGED,
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "DELETE",
        "replication",
        _remove,
        "Reset the replication clusters of a topic to those of its namespace.",
        status=204,
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "GET",
        "shadowTopics",
        _no_shadows,
        "List the shadow topics: always empty, because shadow topics are not supported yet.",
        answer="List<String>",
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "PUT",
        "shadowTopics",
        _set_shadows,
        "Set shadow topics: always refused, because shadow topics are not supported yet.",
        body="List<String>",
        status=204,
        errors={405: "shadow topics are not supported yet"},
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "DELETE",
        "shadowTopics",
        _remove_shadows,
        "Remove the shadow topics: succeeds without effect, because shadow topics are not supported yet.",
        status=204,
        operation=Operation.POLICY,
    ),
]
