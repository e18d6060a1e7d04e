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
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_paths import schemas_path, topic_path
from magnetar.console.errors import AdminRefused
from magnetar.console.pages.changes import done_text
from magnetar.console.pages.topic_facts import ROWS_MAX, TopicFacts, ledgers_of, topic_facts
from magnetar.console.visit import Visit

POLICIES: Final = (
    ("Retention", "retention"),
    ("Message TTL (s)", "messageTTL"),
    ("Backlog quotas", "backlogQuotaMap"),
    ("Deduplication", "deduplicationEnabled"),
    ("Compaction threshold (bytes)", "compactionThreshold"),
    ("Publish rate", "publishRate"),
    ("Dispatch rate", "dispatchRate"),
    ("Producers at most", "maxProducers"),
    ("Consumers at most", "maxConsumers"),
    ("Unacknowledged messages of a consumer at most", "maxUnackedMessagesOnConsumer"),
    ("Unacknowledged messages of a subscription at most", "maxUnackedMessagesOnSubscription"),
    ("Inactive topics", "inactiveTopicPolicies"),
    ("Offload", "offloadPolicies"),
)
"""Policies shown, by their paths."""

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
    """Effective values, and whether the topic sets them: the admin API tells no more of the level."""
    name = visit.topic().base
    rows = await asyncio.gather(*(_policy(visit, name, label, path) for label, path in POLICIES))
    return await visit.page("_policies.html", rows=rows)


async def _policy(visit: Visit, name: TopicName, label: str, path: str) -> dict[str, Any]:
    try:
        effective, own = await asyncio.gather(
            visit.admin.get(f"{topic_path(name)}/{path}", applied=True),
            visit.admin.get(f"{topic_path(name)}/{path}"),
        )
    except AdminRefused as error:
        return {"label": label, "value": None, "level": "", "problem": error.reason}
    level = "namespace or broker" if own in (None, {}) else "topic"
    return {"label": label, "value": effective, "level": level, "problem": ""}


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
    internal = await visit.admin.get(f"{topic_path(visit.topic())}/internalStats") or {}
    ledgers = ledgers_of(internal)
    return await visit.page(
        "_ledgers.html",
        topic=visit.topic().full,
        ledgers=ledgers[-LEDGERS_MAX:],
        count=len(ledgers),
        cold=sum(each.size for each in ledgers if each.offloaded),
        hot=sum(each.size for each in ledgers if not each.offloaded),
        last=internal.get("lastConfirmedEntry", "–"),
        state=internal.get("state", "–"),
    )


READS = {
    "/topic": _topic,
    "/topic/clients": _clients,
    "/topic/live": _live,
    "/topic/policies": _policies,
    "/topic/schemas": _schemas,
    "/topic/ledgers": _ledgers,
}
