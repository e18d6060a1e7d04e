"""Routes of schemas: versions of a topic's schema, and checks of new ones. The topic need not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.broker.admin.routes.schemas.schema_json import schema_json, schema_of
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.broker.schemas.schema_store import version_number
from magnetar.common.errors import NotAllowed
from magnetar.common.metadata.values import SchemaRecord
from magnetar.common.naming.topic_name import NON_PERSISTENT, PERSISTENT, TopicName
from magnetar.common.security.authorization.operations import Operation

_NOT_FOUND: Final = "Schema not found"


async def _latest(call: Call) -> web.Response:
    return answer(schema_json((await _versions(call))[-1]))


async def _at_version(call: Call) -> web.Response:
    """Returns one version, even a deleted one, because messages may refer to it."""
    number = call.number("version")
    history = await call.broker.schemas.history(await _topic(call))
    found = [each for each in history if each.version == number and each.type]
    if not found:
        raise Refused(404, _NOT_FOUND)
    return answer(schema_json(found[0]))


async def _all(call: Call) -> web.Response:
    return answer({"getSchemaResponses": [schema_json(each) for each in await _versions(call)]})


async def _metadata(call: Call) -> web.Response:
    """Returns placeholder metadata: schemas are stored in metadata, not in a ledger."""
    index = [{"ledgerId": -1, "entryId": -1, "version": each.version} for each in await _versions(call)]
    return answer({"info": index[-1], "index": index})


async def _post(call: Call) -> web.Response:
    """Adds a schema by the topic's compatibility strategy, also where clients may not."""
    topic = await _topic(call)
    schema = schema_of(await call.json(), topic.base_local_name)
    rules = replace(await _rules(call, topic), may_update=True)
    call.broker.schemas.forget(topic)  # another broker may have erased its versions just now
    try:
        version = await call.broker.schemas.put(topic, schema, rules)
    except NotAllowed as error:
        raise Refused(413, str(error)) from error
    return answer({"version": {"version": version_number(version)}})


async def _delete(call: Call) -> web.Response:
    topic, schemas = await _topic(call), call.broker.schemas
    if call.flag("force"):
        await schemas.erase(topic)
        return answer({"version": -1})
    return answer({"version": await schemas.retire(topic)})


async def _version_of(call: Call) -> web.Response:
    topic = await _topic(call)
    found = await call.broker.schemas.find(topic, schema_of(await call.json(), topic.base_local_name))
    return answer({"version": -1 if found is None else found})


async def _compatibility(call: Call) -> web.Response:
    topic = await _topic(call)
    schema = schema_of(await call.json(), topic.base_local_name)
    strategy = (await _rules(call, topic)).strategy
    fits = await call.broker.schemas.is_compatible(topic, schema, strategy)
    body = {"schemaCompatibilityStrategy": strategy.value, "compatibility": fits}
    return web.json_response(body, status=202)


async def _rules(call: Call, topic: TopicName) -> SchemaRules:
    return (await call.broker.policies.of_topic(topic.base)).schemas


async def _topic(call: Call) -> TopicName:
    """Returns the topic of the path, which has no domain: the persistent topic, unless only the
    non-persistent one has schemas.
    """
    namespace, local_name = call.namespace, call.names["topic"]
    topic, other = (TopicName.of(domain, namespace, local_name) for domain in (PERSISTENT, NON_PERSISTENT))
    await require_namespace(call.broker, namespace, "Namespace not found")
    schemas = call.broker.schemas
    return other if not await schemas.history(topic) and await schemas.history(other) else topic


async def _versions(call: Call) -> list[SchemaRecord]:
    """Returns the versions that are not deleted. Raises Refused (404) without any."""
    found = await call.broker.schemas.current(await _topic(call))
    if not found:
        raise Refused(404, _NOT_FOUND)
    return found


_ERRORS: Final = {404: "Namespace not found", 412: "invalid name"}
_NONE: Final = {**_ERRORS, 404: "Namespace not found; Schema not found"}
_INVALID: Final = {**_ERRORS, 422: "not a valid schema of its type"}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="schemas",
        method=method,
        path=f"/admin/v2/schemas/{{tenant}}/{{namespace}}/{{topic}}/{path}",
        handler=handler,
        summary=summary,
        **more,
    )


ROUTES: Final = [
    _route(
        "GET",
        "schema",
        _latest,
        "Get the latest schema of a topic.",
        answer="GetSchemaResponse",
        errors=_NONE,
        operation=Operation.TOPIC_LOOKUP,
    ),
    _route(
        "GET",
        "schema/{version}",
        _at_version,
        "Get one version of a topic's schema, even if it was deleted.",
        answer="GetSchemaResponse",
        errors=_NONE,
        operation=Operation.TOPIC_LOOKUP,
    ),
    _route(
        "GET",
        "schemas",
        _all,
        "Get all versions of a topic's schema.",
        answer="GetAllVersionsSchemaResponse",
        errors=_NONE,
        operation=Operation.TOPIC_LOOKUP,
    ),
    _route(
        "GET",
        "metadata",
        _metadata,
        "List the versions of a topic's schema.",
        answer="SchemaMetadata",
        errors=_NONE,
        operation=Operation.TOPIC_LOOKUP,
    ),
    _route(
        "POST",
        "schema",
        _post,
        "Add a schema version, unless an equal one exists, and return its version.",
        body="PostSchemaPayload",
        answer="PostSchemaResponse",
        errors={**_INVALID, 409: "the schema is incompatible", 413: "the schema is too large"},
        operation=Operation.TOPIC_PRODUCE,
    ),
    _route(
        "DELETE",
        "schema",
        _delete,
        "Delete the schema of a topic; versions that messages were written with stay readable, unless "
        "`force` is set.",
        query=("force:boolean=false",),
        answer="DeleteSchemaResponse",
        errors=_ERRORS,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "POST",
        "version",
        _version_of,
        "Get the version of a schema; -1 when it is not stored.",
        body="PostSchemaPayload",
        answer="LongSchemaVersion",
        errors=_INVALID,
        operation=Operation.TOPIC_LOOKUP,
    ),
    _route(
        "POST",
        "compatibility",
        _compatibility,
        "Check whether a topic would take a schema, and name its compatibility strategy.",
        body="PostSchemaPayload",
        status=202,
        answer="IsCompatibilityResponse",
        errors=_INVALID,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
]
