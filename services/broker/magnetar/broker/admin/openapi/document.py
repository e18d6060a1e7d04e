"""OpenAPI 3.1 document of the admin API, made from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Parameter, Route
from magnetar.broker.admin.openapi.json_schema import declared, schema_of

_TEXTS: Final = ("String", "ok", "OK")
"""Response types that are unquoted text although the content type is JSON."""

_NUMBERS: Final = {
    "count": "long",
    "coordinatorId": "int",
    "entry": "long",
    "entryId": "long",
    "leastSigBits": "long",
    "ledger": "long",
    "ledgerId": "long",
    "mostSigBits": "long",
    "position": "int",
    "seconds": "long",
    "timeout": "long",
    "timestamp": "long",
}
"""Path parameters that are numbers."""

_TOPIC_DOMAINS: Final = {"type": "string", "enum": ["persistent", "non-persistent"]}

_DESCRIPTION: Final = (
    "Apache Pulsar's admin API as this broker serves it. A response without a body "
    "means that the requested value is not set. In a body, as in Apache Pulsar, "
    "unknown members are ignored, numbers and booleans may be strings, and null is 0 "
    "or false where a number or boolean cannot be null. Names in paths are one segment "
    "each, percent-encoded once (`+` is a space), names of subscriptions twice."
)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Returns the document of these routes. Raises LookupError when a route uses an undeclared type."""
    paths: dict[str, dict[str, Any]] = {}
    templates: dict[str, str] = {}
    tags: dict[str, None] = {}
    for route in routes:
        # Paths that differ in parameter names only are one path in OpenAPI; the first names hold.
        template = templates.setdefault(re.sub(r"{\w+}", "{}", route.path), route.path)
        paths.setdefault(template, {})[route.method.lower()] = operation(route, template)
        tags[route.object] = None
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Magnetar admin API",
            "version": version("magnetar-broker"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": {**declared(), "Error": _ERROR},
            "responses": {
                str(status): _refusal(reason) for status, reason in COMMON_ERRORS.items() if status >= 400
            },
        },
    }


_ERROR: Final = {
    "type": "object",
    "properties": {"reason": {"type": "string"}},
    "required": ["reason"],
}


def operation(route: Route, template: str) -> dict[str, Any]:
    """Returns the OpenAPI operation of a route at the path `template`."""
    found: dict[str, Any] = {
        "tags": [route.object],
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": [*map(_in_path, re.findall(r"{(\w+)}", template)), *map(_in_query, route.parameters)],
        "responses": _responses(route),
    }
    if route.body:
        content = {"schema": schema_of(route.body)}
        found["requestBody"] = {"content": {"application/json": content}}
    return found


def _operation_id(route: Route) -> str:
    return route.method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", route.path)


def _in_path(name: str) -> dict[str, Any]:
    schema = _TOPIC_DOMAINS if name == "domain" else schema_of(_NUMBERS.get(name, "String"))
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = schema_of(parameter.type)
    if parameter.default is not None:
        schema = {**schema, "default": parameter.default}
    return {"name": parameter.name, "in": "query", "schema": schema}


def _responses(route: Route) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "found" if route.method == "GET" and route.answer else "done"}
    if route.answer:
        success["content"] = _content(route.answer)
    responses: dict[str, Any] = {str(route.status): success}
    for status, what in route.also.items():
        responses[str(status)] = {"description": what}
    for status, reason in sorted({**COMMON_ERRORS, **route.errors}.items()):
        if status < 400:
            responses[str(status)] = {"description": reason}
        elif status in route.errors:
            responses[str(status)] = _refusal(reason)
        else:
            responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _content(type_name: str) -> dict[str, Any]:
    if type_name == "bytes":
        return {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    if type_name in _TEXTS:
        return {"*/*": {"schema": {"type": "string"}}}
    if "/" in type_name:
        return {type_name: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": schema_of(type_name)}}


def _refusal(reason: str) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
