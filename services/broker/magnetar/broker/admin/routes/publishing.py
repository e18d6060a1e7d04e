"""Routes for publishing over HTTP (PIP-64), which is not supported yet: the broker would have to encode
payloads.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.topics import require_namespace, require_topic
from magnetar.common.naming.topic_name import DOMAINS, TopicName
from magnetar.common.security.authorization.operations import Operation

_REASON: Final = (
    "publishing over HTTP is not supported yet: use a client of the binary protocol, or `magnetar produce`"
)


async def _publish(call: Call) -> web.Response:
    """Reports invalid names and missing topics before anything else."""
    topic = TopicName.of(call.parts[1], call.namespace, call.names["topic"])
    if "partition" in call.names:
        topic = topic.partition(call.number("partition"))
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    await require_topic(call.broker, topic, may_be_created=False)
    raise Refused(405, _REASON)


ROUTES: Final = [
    Route(
        object=domain,
        method="POST",
        path=f"/topics/{domain}/{{tenant}}/{{namespace}}/{{topic}}{partition}",
        handler=_publish,
        summary=f"Publish messages to a {what}: always refused, because it is not supported yet.",
        body="ProducerMessages",
        answer="ProducerAcks",
        errors={
            404: "Namespace not found; Topic not found",
            405: "publishing over HTTP is not supported yet",
            412: "invalid name",
        },
        operation=Operation.TOPIC_PRODUCE,
    )
    for domain in DOMAINS
    for partition, what in (("", "topic"), ("/partitions/{partition}", "partition"))
]
