"""Calls of the admin API: names, parameters and bodies, validated strictly."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web
from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.coercion import JsonFraction, coerce
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.handlers.name_limits import check_properties
from magnetar.common.errors import InvalidName, NotAllowed
from magnetar.common.naming.namespace_name import NamespaceName, check_entity
from magnetar.common.naming.topic_name import DOMAINS, PERSISTENT, TopicName
from magnetar.common.security.principal import Principal

BROKER: Final = web.AppKey("broker", BrokerView)

PRINCIPAL: Final = web.RequestKey("principal", Principal)
"""Where authentication leaves the `Principal` of a request; nothing is there while it is off."""

NAME_CHARS_MAX: Final = 1024
"""Longest name of a subscription, and longest key or value of a property in a path."""

BODY_S: Final = 30.0
"""Time limit for a body to arrive."""


class Call:
    """A request that matched a route."""

    __slots__ = ("body_type", "broker", "names", "parts", "request")

    def __init__(
        self,
        request: web.Request,
        broker: BrokerView,
        parts: list[str],
        names: Mapping[str, str],
        body_type: str,
    ) -> None:
        self.request = request
        self.broker = broker
        self.parts = parts
        """The decoded segments of the path."""
        self.names = names
        """The path segments that the route names."""
        self.body_type = body_type
        """The type of the body, as the route declares it; empty for none."""

    @property
    def principal(self) -> Principal | None:
        """The roles of the caller; None without authentication."""
        return self.request.get(PRINCIPAL)

    @property
    def tenant(self) -> str:
        """Raises InvalidName."""
        return _entity("tenant", self.names["tenant"])

    @property
    def namespace(self) -> NamespaceName:
        """Raises InvalidName."""
        return NamespaceName(self.tenant, _entity("namespace", self.names["namespace"]))

    @property
    def domain(self) -> str:
        """The domain in the path /admin/v2/{domain}/...; 'persistent' where the path names none."""
        found = self.parts[2]
        return found if found in DOMAINS else PERSISTENT

    @property
    def topic(self) -> TopicName:
        """Raises InvalidName."""
        domain = self.names.get("domain") or self.domain
        return TopicName.of(domain, self.namespace, self.names["topic"])

    @property
    def subscription(self) -> str:
        """The subscription name, decoded twice: clients encode it twice (a%252Fb and a%2Fb are both a/b)."""
        name = unquote(self.names["subscription"])
        if not name.strip() or len(name) > NAME_CHARS_MAX:
            raise InvalidName("Subscription name is not valid")
        return name

    def number(self, name: str) -> int:
        """Returns a number in the path. Raises Refused."""
        return _number(name, self.names[name])

    def flag(self, name: str, default: bool = False) -> bool:
        """Returns a boolean query parameter; any value except 'true' is false."""
        value = self.request.query.get(name)
        return default if value is None else value.lower() == "true"

    def query_number(self, name: str, default: int) -> int:
        """Returns a numeric query parameter; `default` when it is missing or empty. Raises Refused."""
        value = self.request.query.get(name)
        return _number(name, value) if value else default

    async def json(self) -> Any:
        """Returns the JSON body. Raises Refused when it is empty or not JSON."""
        value = await self.json_if_any()
        if value is _NOTHING:
            raise Refused(400, "The request entity cannot be empty.")
        return value

    async def json_or(self, default: Any) -> Any:
        """Returns the JSON body; `default` when it is empty or null. Raises Refused when it is not JSON."""
        value = await self.json_if_any()
        return default if value is _NOTHING or value is None else value

    async def body(self) -> bytes:
        """Returns the whole body. Raises Refused when it does not arrive in time (408) or is not declared as
        JSON (415).

        A browser cannot be tricked by a page of another site into sending a JSON type without a preflight
        request.
        """
        try:
            async with asyncio.timeout(BODY_S):
                raw = await self.request.read()
        except TimeoutError as error:
            raise Refused(408, f"the body did not arrive within {BODY_S:g} s") from error
        content_type = self.request.headers.get("Content-Type")
        if raw.strip() and content_type is not None and not _JSON_TYPE.match(content_type):
            raise Refused(
                415, f"a body must have the content type application/json, not {content_type!r:.80}"
            )
        return raw

    async def json_if_any(self) -> Any:
        """Returns the JSON body coerced to the route's type; _NOTHING when it is empty. Raises Refused.

        When members share a name, the last one wins.
        """
        raw = await self.body()
        if not raw.strip():
            return _NOTHING
        try:
            value = json.loads(raw, parse_constant=_no_constant, parse_float=JsonFraction.parse)
            if b"\\u" in raw:
                # A lone surrogate cannot be encoded as UTF-8, so it could not be stored.
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        return coerce(self.body_type, value, "the body") if self.body_type else value

    async def text_map(self) -> dict[str, str]:
        """Returns a body that maps strings to strings; empty when there is no body. Raises Refused."""
        value = await self.json_or({})
        return text_map(value)


_NOTHING: Final = object()

_JSON_TYPE: Final = re.compile(r"\s*application/([\w.+-]+\+)?json\s*(;|$)", re.IGNORECASE)
"""Content types such as application/vnd.partitioned-topic-metadata+json are JSON, too."""

_WHOLE: Final = re.compile(r"[+-]?\d{1,20}")


def _entity(kind: str, name: str) -> str:
    if name in (".", ".."):
        raise InvalidName(
            f"the {kind} name {name!r} is a relative path segment, which many clients "
            "cannot send; choose another name"
        )
    return check_entity(kind, name)


def text_map(value: object) -> dict[str, str]:
    """Returns `value` as a map of strings to strings; numbers and booleans are written as in JSON.

    Raises Refused when it is something else.
    """
    if not isinstance(value, dict):
        raise Refused(400, "the body must be an object whose values are strings")
    found = {}
    for key, item in value.items():
        if isinstance(item, dict | list):
            raise Refused(400, f"the value of {key!r} must be a string")
        if item is not None:
            found[key] = item if isinstance(item, str) else json.dumps(item)
    return found


def names(value: Any, what: str) -> list[str]:
    """Returns a list of strings without duplicates; empty for null. Raises Refused (400)."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Refused(400, f"{what} must be a list of strings")
    return list(dict.fromkeys(value))


def bounded(kind: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns `properties` as a dict. Raises Refused (412) when they are too large in total."""
    found = dict(properties)
    try:
        check_properties(kind, found)
    except NotAllowed as error:
        raise Refused(412, str(error)) from error
    return found


def _number(name: str, text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise Refused(400, f"{name} must be a whole number, not {text!r}")
    return int(text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def done() -> web.Response:
    """Returns 204: a write succeeded."""
    return web.Response(status=204)


def nothing() -> web.Response:
    """Returns 200 without a body: the requested value is not set."""
    return web.Response(status=200)


def answer(value: object) -> web.Response:
    """Returns 200 with JSON."""
    return web.json_response(value)


def plain(text: str) -> web.Response:
    """Returns unquoted text although the content type is JSON, as Pulsar does."""
    return web.Response(text=text, content_type="application/json")
