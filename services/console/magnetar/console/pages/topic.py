"""One topic: live rates, clients, subscriptions, policies, schemas, ledgers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Any, Final

from aiohttp import web
from magnetar.common.errors import MagnetarError
from magnetar.console.admin_paths import MAGNETAR, schemas_path, topic_path
from magnetar.console.errors import AdminRefused
from magnetar.console.pages.changes import done_text
from magnetar.console.pages.topic_facts import ROWS_MAX, TopicFacts, ledgers_of, topic_facts
from magnetar.console.visit import Visit

_LEVELS: Final = {"topic": 0, "namespace": 1, "broker": 2}
"""Order of the levels of policies: what is set for the topic first."""

LEDGERS_MAX: Final = 200
DIFF_LINES_MAX: Final = 400
_WITH_REASONS: Final = {"whyNotDispatching": True, "getEarliestTimeInBacklog": True}
_FIGURES_ONLY: Final = {"excludePublishers": True, "excludeConsumers": True}


async def _topic(visit: Visit) -> web.Response:
    facts = await topic_facts(visit.admin, visit.topic(), **_WITH_REASONS)
    done = done_text(visit.text("done"))
    return await visit.page("topic.html", title=facts.name.full, done=done, **_values(facts))


async def _clients(visit: Visit) -> web.Response:
    facts = await topic_facts(visit.admin, visit.topic(), **_WITH_REASONS)
    return await visit.page("_topic_clients.html", **_values(facts))


def _values(facts: TopicFacts) -> dict[str, Any]:
    publishers = facts.stats.get("publishers", [])
    now_ms = time.time() * 1000
    return {
        "topic": facts.name.full,
        "namespace": str(facts.name.namespace),
        "tenant": facts.name.tenant,
        "base": facts.name.base.full if facts.name.partition_index >= 0 else "",
        "persistent": facts.name.persistent,
        "facts": facts,
        "stats": facts.stats,
        "rows_max": ROWS_MAX,
        "publishers": publishers[:ROWS_MAX],
        "publishers_count": len(publishers),
        "subscriptions": [
            subscription_row(name, each, now_ms)
            for name, each in islice(facts.subscriptions.items(), ROWS_MAX)
        ],
        "parts": [(name, facts.stats.get("partitions", {}).get(name, {})) for name in facts.parts[:ROWS_MAX]],
    }


def subscription_row(name: str, stats: Mapping[str, Any], now_ms: float) -> dict[str, Any]:
    """Return the figures of a subscription; its age is that of the oldest message that waits."""
    earliest_ms = stats.get("earliestMsgPublishTimeInBacklog", 0)
    consumers = stats.get("consumers", [])
    return {
        "name": name,
        "type": stats.get("type", "None"),
        "backlog": stats.get("msgBacklog", 0),
        "backlog_bytes": stats.get("backlogSize", -1),
        "age": max(0.0, (now_ms - earliest_ms) / 1000) if earliest_ms else -1,
        "unacked": stats.get("unackedMessages", 0),
        "delayed": stats.get("msgDelayed", 0),
        "rate_out": stats.get("msgRateOut", 0.0),
        "ack_rate": stats.get("messageAckRate", 0.0),
        "why": stats.get("whyNotDispatching") or "",
        "active": stats.get("activeConsumerName", ""),
        "durable": stats.get("isDurable", stats.get("durable", True)),
        "consumers": consumers[:ROWS_MAX],
        "consumers_count": len(consumers),
    }


async def _live(visit: Visit) -> web.StreamResponse:
    name = visit.topic()

    async def figures() -> dict[str, Any]:
        try:
            facts = await topic_facts(visit.admin, name, **_FIGURES_ONLY)
        except MagnetarError as error:
            return {"problem": str(error)}
        stats = facts.stats
        counts = {"in": stats.get("msgInCounter", 0), "out": stats.get("msgOutCounter", 0)}
        return {"time": time.time(), **counts, "backlog": facts.backlog}

    return await visit.streams.serve(visit.request, figures)


async def _policies(visit: Visit) -> web.Response:
    """Shows each policy in effect with the level that it comes from, as the broker explains it."""
    found = await _explanation(visit, f"{topic_path(visit.topic().base, MAGNETAR)}/policies/explain")
    rows = sorted(found.get("policies", []), key=lambda each: (_LEVELS.get(each["level"], 9), each["name"]))
    return await visit.page("_policies.html", rows=rows, problem=found.get("problem", ""))


async def _schemas(visit: Visit) -> web.Response:
    found = await visit.admin.find(f"{schemas_path(visit.topic())}/schemas") or {}
    versions = sorted(found.get("getSchemaResponses", []), key=lambda each: each.get("version", 0))
    rows: list[dict[str, Any]] = []
    before: list[str] | None = None
    for each in versions:
        text = definition_text(each.get("data", ""))
        diff: list[str] = []
        if before is not None:
            diff = list(unified_diff(before, text.splitlines(), lineterm="", n=2))[2:]
        rows.append({**each, "text": text, "diff": "\n".join(diff[:DIFF_LINES_MAX])})
        before = text.splitlines()
    return await visit.page("_schemas.html", rows=rows[::-1][:ROWS_MAX], count=len(rows))


def definition_text(data: str) -> str:
    """Return the definition of a schema, indented if it is JSON."""
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return data


async def _ledgers(visit: Visit) -> web.Response:
    name = visit.topic()
    internal, kept = await asyncio.gather(
        visit.admin.get(f"{topic_path(name)}/internalStats"),
        _explanation(visit, f"{topic_path(name, MAGNETAR)}/storage/explain"),
    )
    internal = internal or {}
    ledgers = ledgers_of(internal)
    return await visit.page(
        "_ledgers.html",
        topic=name.full,
        kept={each["ledgerId"]: each for each in kept.get("ledgers", [])},
        by_code=sorted(kept.get("bytesByCode", {}).items(), key=lambda each: -each[1]),
        unexplained=kept.get("problem", ""),
        ledgers=ledgers[-LEDGERS_MAX:],
        count=len(ledgers),
        cold=sum(each.size for each in ledgers if each.offloaded),
        hot=sum(each.size for each in ledgers if not each.offloaded),
        last=internal.get("lastConfirmedEntry", "–"),
        state=internal.get("state", "–"),
    )


async def _explanation(visit: Visit, path: str) -> dict[str, Any]:
    """Return an answer of the admin API; the reason as `problem` when it is refused."""
    try:
        found: dict[str, Any] = await visit.admin.get(path) or {}
    except AdminRefused as error:
        return {"problem": error.reason}
    return found


async def _place(visit: Visit) -> web.Response:
    found = await _explanation(visit, f"{topic_path(visit.topic(), MAGNETAR)}/explain")
    return await visit.page(
        "_topic_place.html",
        found=found,
        namespace=str(visit.topic().namespace),
        bundle=found.get("bundle", ""),
    )


async def _ended(visit: Visit) -> web.Response:
    """Shows clients that were refused or closed lately, of the topic and its partitions."""
    found = await _explanation(visit, f"{topic_path(visit.topic(), MAGNETAR)}/clients/explain")
    parts = [found, *found.get("partitions", {}).values()]
    reasons = [each for part in parts for each in part.get("reasons", []) if each["code"] != "nothing_ended"]
    rows = sorted(reasons, key=lambda each: each["since"] or "", reverse=True)[:ROWS_MAX]
    return await visit.page("_topic_ended.html", rows=rows, problem=found.get("problem", ""))


READS = {
    "/topic": _topic,
    "/topic/clients": _clients,
    "/topic/ended": _ended,
    "/topic/live": _live,
    "/topic/policies": _policies,
    "/topic/schemas": _schemas,
    "/topic/ledgers": _ledgers,
    "/topic/place": _place,
}
