"""Changes: each is named with what it means, confirmed, and done by a call of the admin API.

GET /change asks, POST /change does it: the page of the first has the form of the second. Both plan the change
from the same parameters, so that what was confirmed is what is done.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_paths import subscription_path, topic_path
from magnetar.console.errors import AdminRefused, BadRequest
from magnetar.console.figures import byte_text, count_text, time_text
from magnetar.console.pages import bundle_moves
from magnetar.console.pages.commands import subscription_command, topics_command
from magnetar.console.pages.plan import Plan
from magnetar.console.pages.topic_facts import TopicFacts, entries_from, ledgers_of, topic_facts
from magnetar.console.visit import Visit

_POSITION: Final = re.compile(r"(\d{1,19}):(\d{1,19})(?::-?\d+)*")
_HIDDEN: Final = frozenset({"form_token"})


_DONE: Final = {
    "skip": "The entries were skipped.",
    "clear": "The backlog was cleared.",
    "reset-time": "The subscription was reset.",
    "reset-id": "The subscription was reset.",
    "delete-subscription": "The subscription was deleted.",
    "create-subscription": "The subscription was created.",
    "unload": "The topic was unloaded; its clients come back by themselves.",
    "delete-topic": "The topic was deleted.",
    "publish": "The message was published.",
    "move-bundle": "The bundle was unloaded; its clients come back by themselves.",
    "resend": "The message was published to its origin topic.",
}


def done_text(kind: str) -> str:
    """Return what to say after a change; empty for what is no change."""
    return _DONE.get(kind, "")


async def _ask(visit: Visit) -> web.Response:
    plan = await _planned(visit)
    fields = {name: value for name, value in visit.request.query.items() if name not in _HIDDEN}
    return await visit.page("change.html", title=plan.title, plan=plan, fields=fields)


async def _do(visit: Visit) -> web.Response:
    plan = await _planned(visit)
    await visit.admin.ask(plan.method, plan.path, plan.body, plan.query)
    mark = "&" if "?" in plan.back else "?"
    return visit.redirect(f"{plan.back}{mark}{urlencode({'done': visit.text('kind')})}")


async def _planned(visit: Visit) -> Plan:
    kind = visit.text("kind")
    plan = _KINDS.get(kind)
    if plan is None:
        raise BadRequest(f"kind = {kind[:80]!r} is not a change; one of {', '.join(_KINDS)}")
    return await plan(visit)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A subscription that is changed."""

    topic: TopicName
    name: str
    facts: TopicFacts

    @property
    def stats(self) -> dict[str, Any]:
        return self.facts.subscriptions[self.name]

    @property
    def backlog(self) -> int:
        return int(self.stats.get("msgBacklog", 0))

    @property
    def path(self) -> str:
        return subscription_path(self.topic, self.name)

    @property
    def back(self) -> str:
        return f"/subscription?{urlencode({'topic': self.topic.full, 'name': self.name})}"

    def command(self, verb: str, *words: str) -> str:
        """The `magnetar` command about it."""
        return subscription_command(verb, self.topic.full, self.name, *words)

    @property
    def told(self) -> str:
        return f"subscription {self.name} of {self.topic.full}"


async def _subject(visit: Visit) -> _Subject:
    topic, name = visit.topic(), visit.required("name")
    facts = await topic_facts(visit.admin, topic)
    if name not in facts.subscriptions:
        raise AdminRefused(404, f"subscription {name} of {topic.full} does not exist")
    return _Subject(topic, name, facts)


async def _skip(visit: Visit) -> Plan:
    it, count = await _subject(visit), visit.number("count", 1, low=1)
    skipped = min(count, it.backlog)
    means = [
        f"Of {it.backlog:,} entries that wait, the first {skipped:,} are never delivered to this "
        f"subscription; {it.backlog - skipped:,} remain.",
        "An entry is a message, or a batch of them.",
    ]
    return Plan(
        f"Skip {count:,} entries of {it.told}",
        "Skip them",
        means,
        "POST",
        f"{it.path}/skip/{count}",
        it.back,
        command=it.command("skip", f"--count={count}"),
    )


async def _clear(visit: Visit) -> Plan:
    it = await _subject(visit)
    means = [
        f"All {it.backlog:,} entries that wait ({byte_text(it.stats.get('backlogSize'))}) are never "
        "delivered to this subscription. It continues with messages that are published from now on."
    ]
    return Plan(
        f"Clear the backlog of {it.told}",
        "Clear it",
        means,
        "POST",
        f"{it.path}/skip_all",
        it.back,
        command=it.command("skip-all"),
    )


async def _reset_time(visit: Visit) -> Plan:
    it, at_ms = await _subject(visit), time_ms_of(visit.required("time"))
    means = []
    # The command takes a time back from when it runs.
    command = it.command("reset-cursor", f"--time={max(1, round(time.time() - at_ms / 1000))}s")
    if it.facts.partitions:
        means.append(f"Each of {it.facts.partitions} partitions is reset to its first message of that time.")
    else:
        found = await visit.admin.get(f"{topic_path(it.topic)}/messageid/{at_ms}")
        position = int(found["ledgerId"]), int(found["entryId"])
        means += await _after_reset(visit, it, *position, excluded=False)
        command = it.command("reset-cursor", f"--messageId={position[0]}:{position[1]}")
    title = f"Reset {it.told} to {time_text(at_ms)} UTC"
    return Plan(
        title,
        "Reset it",
        [*means, *_consumers_told(it)],
        "POST",
        f"{it.path}/resetcursor/{at_ms}",
        it.back,
        command=command,
    )


async def _reset_id(visit: Visit) -> Plan:
    it, (ledger_id, entry_id) = await _subject(visit), position_of(visit.required("id"))
    excluded = visit.text("excluded") == "true"
    means = await _after_reset(visit, it, ledger_id, entry_id, excluded=excluded)
    body = {
        "ledgerId": ledger_id,
        "entryId": entry_id,
        "partitionIndex": it.topic.partition_index,
        "batchIndex": -1,
        "excluded": excluded,
    }
    title = f"Reset {it.told} to {'after ' if excluded else ''}message {ledger_id}:{entry_id}"
    return Plan(
        title,
        "Reset it",
        [*means, *_consumers_told(it)],
        "POST",
        f"{it.path}/resetcursor",
        it.back,
        body,
        command=it.command(
            "reset-cursor",
            f"--messageId={ledger_id}:{entry_id}",
            *(["--exclude-reset-position"] if excluded else []),
        ),
    )


async def _after_reset(
    visit: Visit, it: _Subject, ledger_id: int, entry_id: int, *, excluded: bool
) -> list[str]:
    """Return the preview of a reset to a position."""
    internal = await visit.admin.get(f"{topic_path(it.topic)}/internalStats") or {}
    ledgers = ledgers_of(internal)
    waits = entries_from(ledgers, ledger_id, entry_id + excluded)
    if waits > it.backlog:
        change = f"about {waits - it.backlog:,} entries are delivered again"
    elif waits < it.backlog:
        change = f"about {it.backlog - waits:,} entries are never delivered"
    else:
        change = "about as many as now"
    mark = internal.get("cursors", {}).get(it.name, {}).get("markDeletePosition", "unknown")
    found = [
        f"The next message is {'after ' if excluded else ''}{ledger_id}:{entry_id}; "
        f"the mark-delete position is {mark} now.",
        f"Then {waits:,} entries wait, now {it.backlog:,}: {change}.",
    ]
    if ledgers and ledger_id < ledgers[0].ledger_id:
        found.append(
            f"Ledger {ledger_id} is not stored: the topic begins with ledger {ledgers[0].ledger_id}."
        )
    return found


def _consumers_told(it: _Subject) -> list[str]:
    consumers = len(it.stats.get("consumers", []))
    return [f"Its {count_text(consumers)} consumers are disconnected, and come back by themselves."] * bool(
        consumers
    )


async def _delete_subscription(visit: Visit) -> Plan:
    it = await _subject(visit)
    consumers = len(it.stats.get("consumers", []))
    means = [f"Its position, and its backlog of {it.backlog:,} entries, are gone."]
    if consumers:
        means.append(f"Its {consumers:,} consumers are disconnected.")
    back = f"/topic?{urlencode({'topic': it.topic.full})}"
    query: dict[str, object] = {"force": True} if consumers else {}
    command = it.command("unsubscribe", *(["--force"] if consumers else []))
    return Plan(
        f"Delete {it.told}", "Delete it", means, "DELETE", it.path, back, query=query, command=command
    )


async def _create_subscription(visit: Visit) -> Plan:
    topic, name, start = visit.topic(), visit.required("name"), visit.text("start", "latest")
    if start not in ("earliest", "latest"):
        raise BadRequest(f"start = {start[:80]!r} is not a start; give earliest or latest")
    facts = await topic_facts(visit.admin, topic)
    waits = (
        "all messages that are stored wait for it" if start == "earliest" else "it begins with new messages"
    )
    back = f"/topic?{urlencode({'topic': topic.full})}"
    return Plan(
        f"Create subscription {name} of {facts.name.full}",
        "Create it",
        [f"With start {start}, {waits}. Messages are kept until it acknowledged them."],
        "PUT",
        subscription_path(topic, name),
        back,
        start,
        is_final=False,
        command=subscription_command("create-subscription", topic.full, name, f"--messageId={start}"),
    )


async def _unload(visit: Visit) -> Plan:
    topic = visit.topic()
    facts = await topic_facts(visit.admin, topic)
    means = [f"{_clients_told(facts)} are disconnected, and come back by themselves. No message is lost."]
    back = f"/topic?{urlencode({'topic': topic.full})}"
    return Plan(
        f"Unload {topic.full}",
        "Unload it",
        means,
        "PUT",
        f"{topic_path(topic)}/unload",
        back,
        is_final=False,
        command=topics_command("unload", topic.full),
    )


async def _delete_topic(visit: Visit) -> Plan:
    topic = visit.topic()
    facts = await topic_facts(visit.admin, topic)
    means = [
        f"{byte_text(facts.stats.get('storageSize'))} of messages and {len(facts.subscriptions):,} "
        f"subscriptions with {facts.backlog:,} entries that wait are gone.",
        f"{_clients_told(facts)} are disconnected.",
    ]
    if facts.partitions:
        means.insert(0, f"All {facts.partitions} partitions are deleted.")
    path = topic_path(topic) + ("/partitions" if facts.partitions else "")
    back = f"/topics?{urlencode({'namespace': str(topic.namespace)})}"
    verb = "delete-partitioned-topic" if facts.partitions else "delete"
    return Plan(
        f"Delete {topic.full}",
        "Delete it",
        means,
        "DELETE",
        path,
        back,
        query={"force": True},
        command=topics_command(verb, topic.full, "--force"),
    )


def _clients_told(facts: TopicFacts) -> str:
    consumers = sum(len(each.get("consumers", [])) for each in facts.subscriptions.values())
    return f"{len(facts.stats.get('publishers', [])):,} producers and {consumers:,} consumers"


def position_of(text: str) -> tuple[int, int]:
    """Return the ledger and entry of a message id such as 12:3 or 12:3:-1:0. Raises BadRequest."""
    found = _POSITION.fullmatch(text.strip())
    if found is None or max(len(found[1]), len(found[2])) > 18:
        raise BadRequest(f"{text[:80]!r} is not a message id; write it as LEDGER:ENTRY, such as 12:3")
    return int(found[1]), int(found[2])


def time_ms_of(text: str) -> int:
    """Return milliseconds since 1970 of a time in UTC, or of such a number. Raises BadRequest."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return max(0, int(at.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadRequest(f"{text[:80]!r} is not a time; write it as 2026-01-31T12:00, in UTC") from None


_KINDS: Final[dict[str, Callable[[Visit], Awaitable[Plan]]]] = {
    "skip": _skip,
    "clear": _clear,
    "reset-time": _reset_time,
    "reset-id": _reset_id,
    "delete-subscription": _delete_subscription,
    "create-subscription": _create_subscription,
    "unload": _unload,
    "delete-topic": _delete_topic,
    "move-bundle": bundle_moves.planned_move,
}

READS = {"/change": _ask}
CHANGES = {"/change": _do}
