"""A dead or retry letter, published again to the topic that it comes from: asked first."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.client.consumer.dead_letters import (
    DELAY_MS,
    OLD_ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RETRIES,
)
from magnetar.common.errors import InvalidName
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.errors import AdminRefused, BadRequest
from magnetar.console.message_reading import Letter
from magnetar.console.pages.messages import message_id
from magnetar.console.pages.topic_facts import topic_facts
from magnetar.console.visit import Visit

DROPPED: Final = frozenset(
    {REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, OLD_ORIGIN_MESSAGE_ID, RETRIES, DELAY_MS}
)
"""Properties that a client added to the letter, which a message of the origin topic does not have."""


async def _ask(visit: Visit) -> web.Response:
    name = visit.topic()
    letter, origin = await _letter(visit, name)
    facts = await topic_facts(visit.admin, origin)
    return await visit.page(
        "resend.html", **_values(visit, name, letter, origin, sorted(facts.subscriptions))
    )


async def _do(visit: Visit) -> web.Response:
    name = visit.topic()
    letter, origin = await _letter(visit, name)
    if origin.full != visit.required("origin"):
        raise BadRequest(f"message {visit.text('id')[:80]} is of {origin.full} now: open the page again")
    await topic_facts(visit.admin, origin)  # a topic that is gone is not created anew
    again = Letter(
        payload=letter.payload,
        key=letter.key,
        properties={key: value for key, value in letter.properties.items() if key not in DROPPED},
        ordering_key=letter.ordering_key,
        event_time_ms=letter.event_time_ms,
    )
    await visit.messages.publish(visit.admin.token, origin.full, again)
    query = {"topic": name.full, "start": "id", "id": visit.text("id"), "done": "resend"}
    return visit.redirect(f"/messages?{urlencode(query)}")


async def _letter(visit: Visit, name: TopicName) -> tuple[Letter, TopicName]:
    """Return the letter and its origin topic. Raises AdminRefused without one, BadRequest for a message that
    is no letter.
    """
    text = visit.required("id")
    await topic_facts(visit.admin, name, excludePublishers=True, excludeConsumers=True)
    letter = await visit.messages.letter(visit.admin.token, name.full, message_id(text))
    if letter is None:
        raise AdminRefused(404, f"{name.full} has no readable message {text[:80]}")
    named = letter.properties.get(REAL_TOPIC, "")
    if not named:
        raise BadRequest(f"message {text[:80]} is no dead letter: it has no property {REAL_TOPIC}")
    try:
        origin = TopicName.parse(named)
    except InvalidName as error:
        raise BadRequest(f"{REAL_TOPIC} of message {text[:80]} is not a topic: {error}") from error
    if origin.full == name.full:
        raise BadRequest(f"message {text[:80]} names its own topic as its origin")
    return letter, origin


def _values(
    visit: Visit, name: TopicName, letter: Letter, origin: TopicName, subscriptions: list[str]
) -> dict[str, Any]:
    kept = {key: value for key, value in letter.properties.items() if key not in DROPPED}
    return {
        "title": f"Resend {visit.text('id')[:80]} of {name.full}",
        "topic": name.full,
        "id": visit.text("id"),
        "origin": origin.full,
        "origin_id": letter.properties.get(ORIGIN_MESSAGE_ID, ""),
        "failed_at": letter.properties.get(REAL_SUBSCRIPTION, ""),
        "size": len(letter.payload or b""),
        "kept": len(kept),
        "dropped": sorted(DROPPED & set(letter.properties)),
        "subscriptions": subscriptions,
    }


READS = {"/resend": _ask}
CHANGES = {"/resend": _do}
