"""Messages of a topic: browsed from a position, filtered, decoded; and one published."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.client import ClientError, MessageId
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_paths import topic_path
from magnetar.console.errors import BadRequest
from magnetar.console.message_reading import READ_MESSAGES_MAX, READ_S, Filters, Found, Letter
from magnetar.console.pages.changes import done_text, position_of, time_ms_of
from magnetar.console.pages.commands import browse_command, produce_command
from magnetar.console.pages.topic_facts import ledgers_of, position_before_end, topic_facts
from magnetar.console.visit import Visit

COUNT: Final = 25
COUNT_MAX: Final = 200

SEARCHED_ENTRIES: Final = 1_000
"""Entries before the end in which filters search the latest messages."""

STARTS: Final = ("latest", "earliest", "time", "id")
ENCODINGS: Final = ("text", "hexadecimal")


async def _messages(visit: Visit) -> web.Response:
    name = visit.topic()
    facts = await topic_facts(visit.admin, name, excludePublishers=True, excludeConsumers=True)
    start = visit.text("start", "latest")
    if start not in STARTS:
        raise BadRequest(f"start = {start[:80]!r} is not a start; one of {', '.join(STARTS)}")
    count = visit.number("count", COUNT, low=1, high=COUNT_MAX)
    filters = Filters(key=visit.text("key"), prop=visit.text("prop"), text=visit.text("text"))
    values: dict[str, Any] = {
        "topic": name.full,
        "namespace": str(name.namespace),
        "parts": facts.parts,
        "start": start,
        "starts": STARTS,
        "time": visit.text("time"),
        "id": visit.text("id"),
        "excluded": visit.text("excluded") == "true",
        "filters": filters,
        "count": count,
        "found": Found(),
        "problem": "",
        "next": "",
        "command": _command(visit, name, start, count) if filters == Filters() else "",
        "search": urlencode(_search_query(visit, name, start, count, filters)) if start != "latest" else "",
        "looked_at_max": READ_MESSAGES_MAX,
        "seconds_max": READ_S,
        "done": done_text(visit.text("done")),
    }
    if not facts.partitions and name.persistent:
        try:
            found = await _found(visit, name, start, filters, count)
        except ClientError as error:
            return await visit.page(
                "messages.html", title=f"Messages of {name.full}", **{**values, "problem": str(error)}
            )
        values |= {"found": found, "next": _next(name, found.next_id, filters, count)}
    return await visit.page("messages.html", title=f"Messages of {name.full}", **values)


async def _found(visit: Visit, name: TopicName, start: str, filters: Filters, count: int) -> Found:
    last = False
    if start == "latest":
        entries = count if filters == Filters() else SEARCHED_ENTRIES
        internal = await visit.admin.get(f"{topic_path(name)}/internalStats") or {}
        position = position_before_end(ledgers_of(internal), entries)
        if position is None:
            return Found()
        at: MessageId | int = MessageId(*position)
        inclusive, last = True, True
    else:
        at, inclusive = _start(visit, start)
    token = visit.admin.token
    return await visit.messages.read(
        token, name.full, at, inclusive=inclusive, filters=filters, count=count, last=last
    )


def message_id(text: str) -> MessageId:
    """Return a message id such as 12:3, or 12:3:-1:0 for the first message of a batch."""
    ledger_id, entry_id = position_of(text)
    parts = text.strip().split(":")
    batch_index = int(parts[3]) if len(parts) > 3 and parts[3].isdigit() else -1
    return MessageId(ledger_id, entry_id, batch_index=min(batch_index, 2**31 - 1))


def _command(visit: Visit, name: TopicName, start: str, count: int) -> str:
    position = position_of(visit.required("id")) if start == "id" else None
    at_ms = time_ms_of(visit.required("time")) if start == "time" else 0
    return browse_command(name.full, start, count, position=position, time_ms=at_ms)


def _search_query(visit: Visit, name: TopicName, start: str, count: int, filters: Filters) -> dict[str, Any]:
    """Return the parameters of a search that is watched."""
    query = {"topic": name.full, "start": start, "count": count, **_given(filters)}
    for each in ("time", "id", "excluded"):
        if visit.text(each):
            query[each] = visit.text(each)
    return query


def _given(filters: Filters) -> dict[str, str]:
    given = {"key": filters.key, "prop": filters.prop, "text": filters.text}
    return {name: text for name, text in given.items() if text}


async def _search(visit: Visit) -> web.StreamResponse:
    """Streams what a search finds, with its progress; the browser ends it by leaving."""
    name = visit.topic()
    await topic_facts(visit.admin, name, excludePublishers=True, excludeConsumers=True)
    start = visit.text("start", "earliest")
    if start not in STARTS or start == "latest":
        raise BadRequest(f"start = {start[:80]!r} is not a start of a search; one of earliest, time, id")
    count = visit.number("count", COUNT, low=1, high=COUNT_MAX)
    filters = Filters(key=visit.text("key"), prop=visit.text("prop"), text=visit.text("text"))
    at, inclusive = _start(visit, start)

    async def events() -> AsyncGenerator[dict[str, Any], None]:
        total = 0
        try:
            reports = visit.messages.search(
                visit.admin.token, name.full, at, inclusive=inclusive, filters=filters, count=count
            )
            async with aclosing(reports):
                async for found in reports:
                    total += len(found.messages)
                    values = {"topic": name.full, "found": found}
                    html = await visit.part("_messages.html", **values) if found.messages else ""
                    following = _next(name, found.next_id, filters, count)
                    yield {"looked": found.looked_at, "found": total, "html": html, "next": following}
            yield {"done": True}
        except (ClientError, BadRequest) as error:
            yield {"problem": str(error), "done": True}

    return await visit.streams.relay(visit.request, events())


def _start(visit: Visit, start: str) -> tuple[MessageId | int, bool]:
    """Return where reading begins, an id or a time in milliseconds, and whether with the message there."""
    if start == "time":
        return time_ms_of(visit.required("time")), True
    if start == "id":
        return message_id(visit.required("id")), visit.text("excluded") != "true"
    return MessageId.EARLIEST, False


def _next(name: TopicName, next_id: str, filters: Filters, count: int) -> str:
    """Return the query of the page after this one; empty at the topic's end."""
    if not next_id:
        return ""
    query = {"topic": name.full, "start": "id", "id": next_id, "excluded": "true", "count": count}
    return urlencode({**query, **_given(filters)})


async def _publish_form(visit: Visit) -> web.Response:
    name = visit.topic()
    await topic_facts(visit.admin, name, excludePublishers=True, excludeConsumers=True)
    return await visit.page("publish.html", **_form_values(visit, name))


async def _publish(visit: Visit) -> web.Response:
    """Asks with what will be published, and publishes once that was confirmed."""
    name = visit.topic()
    values = _form_values(visit, name)
    try:
        facts = await topic_facts(visit.admin, name)
        payload, properties = (
            payload_of(visit.text("payload"), visit.text("encoding")),
            properties_of(visit.text("properties")),
        )
        if visit.text("confirmed") != "true":
            return await visit.page(
                "publish_confirm.html",
                **values,
                size=len(payload),
                count=len(properties),
                subscriptions=len(facts.subscriptions),
                command=produce_command(name.full, payload, visit.text("key"), properties),
            )
        letter = Letter(payload=payload, key=visit.text("key") or None, properties=properties)
        await visit.messages.publish(visit.admin.token, name.full, letter)
    except (BadRequest, ClientError) as error:
        return await visit.page("publish.html", status=400, **{**values, "problem": str(error)})
    query = {"topic": name.full, "done": "publish"}
    path = "/topic" if facts.partitions or not name.persistent else "/messages"
    return visit.redirect(f"{path}?{urlencode(query)}")


def _form_values(visit: Visit, name: TopicName) -> dict[str, Any]:
    return {
        "title": f"Publish to {name.full}",
        "topic": name.full,
        "namespace": str(name.namespace),
        "payload": visit.text("payload"),
        "encoding": visit.text("encoding", "text"),
        "encodings": ENCODINGS,
        "key": visit.text("key"),
        "properties": visit.text("properties"),
        "problem": "",
    }


def payload_of(text: str, encoding: str) -> bytes:
    """Return the payload that a form has. Raises BadRequest."""
    if encoding == "text":
        # Browsers send lines of a form with CR LF.
        return text.replace("\r\n", "\n").encode()
    if encoding != "hexadecimal":
        raise BadRequest(f"encoding = {encoding[:80]!r} is not an encoding; one of {', '.join(ENCODINGS)}")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadRequest(
            "the payload is not in hexadecimal digits; write it as 0a ff, or choose text"
        ) from None


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of lines with name=value. Raises BadRequest."""
    found = {}
    for line in text.splitlines():
        if line.strip():
            name, has_value, value = line.partition("=")
            if not has_value or not name.strip():
                raise BadRequest(f"{line[:80]!r} is not a property; write a line name=value for each")
            found[name.strip()] = value
    return found


READS = {"/messages": _messages, "/messages/search": _search, "/publish": _publish_form}
CHANGES = {"/publish": _publish}
