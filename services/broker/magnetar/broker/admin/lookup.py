"""Lookups over HTTP, for clients whose service URL is http://."""

from __future__ import annotations

from aiohttp import web
from magnetar.broker.admin.routing import BROKER, add_get, require_namespace, segments, topic_in
from magnetar.broker.admin.topics import require_topic
from magnetar.broker.admin.view import BrokerView
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.topic_name import TopicName


def add_routes(app: web.Application) -> None:
    prefix = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic:.+}"
    add_get(app, f"{prefix}/bundle", _bundle, action="lookup")
    add_get(app, prefix, _lookup, action="lookup")


async def _lookup(request: web.Request) -> web.Response:
    _, _, _, domain, *rest = segments(request)
    broker = request.app[BROKER]
    topic = await _topic(broker, domain, rest)
    await require_topic(broker, topic, may_be_created=broker.config.topics.auto_creation)
    urls = await broker.lookup(topic)
    http_url = urls.http_url or f"{request.url.scheme}://{request.host}"
    return web.json_response(
        {
            "brokerUrl": urls.broker_url,
            "httpUrl": http_url,
            "nativeUrl": urls.broker_url,
            "brokerUrlSsl": urls.broker_url_tls,
        }
    )


async def _bundle(request: web.Request) -> web.Response:
    _, _, _, domain, *rest = segments(request)
    broker = request.app[BROKER]
    topic = await _topic(broker, domain, rest[:-1])
    namespace = await broker.namespaces.get(topic.namespace)
    if namespace is None:
        raise NamespaceNotFound("Namespace not found")
    bundle = next(each for each in split_ring(namespace.bundle_count) if topic.hash in each)
    return web.Response(text=str(bundle), content_type="application/json")


async def _topic(broker: BrokerView, domain: str, rest: list[str]) -> TopicName:
    topic = topic_in(domain, rest)
    await require_namespace(broker, topic.namespace, "Namespace not found")
    return topic
