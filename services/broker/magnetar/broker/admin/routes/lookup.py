"""Lookups over HTTP, for clients whose service URL is http://."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, plain
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.topics import require_namespace, require_topic
from magnetar.common.cluster.bundles import bundle_at, bundles_of
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.http.topic_lookups import listener_name
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation


async def _lookup(call: Call) -> web.Response:
    topic = await _topic(call)
    broker = call.broker
    policies = await broker.policies.of_namespace(topic.namespace)
    await require_topic(broker, topic, may_be_created=policies.auto_topic_creation)
    urls = await broker.lookup(topic, listener_name(call.request))
    http_url = urls.http_url
    if not http_url and not urls.http_url_tls:
        http_url = f"{call.request.url.scheme}://{call.request.host}"
    return answer(
        {
            "brokerUrl": urls.broker_url,
            **({"brokerUrlTls": urls.broker_url_tls} if urls.broker_url_tls else {}),
            "httpUrl": http_url,
            **({"httpUrlTls": urls.http_url_tls} if urls.http_url_tls else {}),
            "nativeUrl": urls.broker_url,
            "brokerUrlSsl": urls.broker_url_tls,
        }
    )


async def _bundle(call: Call) -> web.Response:
    topic = await _topic(call)
    namespace = await call.broker.namespaces.get(topic.namespace)
    if namespace is None:
        raise NamespaceNotFound("Namespace not found")
    bundles = bundles_of(namespace)
    return plain(str(bundles[bundle_at(bundles, topic.hash)]))


async def _topic(call: Call) -> TopicName:
    topic = call.topic
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    return topic


_PATH: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_ERRORS: Final = {404: "Namespace not found; Topic not found", 412: "invalid topic name"}

ROUTES: Final = [
    Route(
        object="lookup",
        method="GET",
        path=f"{_PATH}/bundle",
        handler=_bundle,
        summary="Get the bundle that a topic belongs to.",
        answer="String",
        errors=_ERRORS,
        operation=Operation.NAMESPACE_USE,
    ),
    Route(
        object="lookup",
        method="GET",
        path=_PATH,
        handler=_lookup,
        summary="Look up the broker that serves a topic.",
        query=("listenerName:String",),
        answer="LookupData",
        errors=_ERRORS,
        operation=Operation.TOPIC_LOOKUP,
    ),
]
