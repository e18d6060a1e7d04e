"""Routes that list the offload states of closed ledgers: of one topic, and of a namespace's topics in pages.

They read metadata, where jobs and brokers record each step, so any broker answers and no topic is loaded.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, require_namespace
from magnetar.common.errors import InvalidName
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers, TopicLedgers

LEDGERS_MAX: Final = 1_000
"""Ledgers shown of a topic: those that run, failed or wait first, then the newest."""

TOPICS_MAX: Final = 100
"""Topics shown by one call for a namespace."""

READ_MAX: Final = 10_000
"""Topics read by one call for a namespace."""

_OWN_API: Final = "/admin/magnetar/v1"
_STATES: Final = {
    Offload.STATE_UNSPECIFIED: "none",
    Offload.WANTED: "waiting",
    Offload.RUNNING: "running",
    Offload.COMPLETE: "complete",
}
_FIRST: Final = {"failed": 0, "running": 1, "waiting": 2}


def state_of(ledger: TopicLedger) -> str:
    """Returns the state of a closed ledger: none, waiting, running, failed or complete."""
    offload = ledger.offload
    if offload.state == Offload.WANTED and offload.error:
        return "failed"
    return _STATES.get(offload.state, "none")


def ledger_json(ledger: TopicLedger) -> dict[str, Any]:
    offload = ledger.offload
    return {
        "ledgerId": ledger.ref.id,
        "entries": ledger.entries,
        "bytes": ledger.byte_length,
        "closed": ledger.closed_ms,
        "state": state_of(ledger),
        "location": f"{offload.location}/{offload.path}" if offload.path else offload.location,
        "wanted": offload.wanted_ms,
        "begun": offload.begun_ms,
        "heard": offload.heard_ms,
        "completed": offload.completed_ms,
        "leftBookies": offload.left_bookies_ms,
        "objectBytes": offload.object_bytes,
        "rows": offload.rows,
        "failures": offload.failures,
        "error": offload.error,
    }


def topic_json(found: TopicLedgers) -> dict[str, Any]:
    """Returns the counts of a topic's ledgers by state, and its last error."""
    states = [state_of(each) for each in found.ledgers]
    failed = [each.offload for each in found.ledgers if state_of(each) == "failed"]
    complete = [each for each in found.ledgers if each.offload.state == Offload.COMPLETE]
    return {
        "topic": found.topic.full,
        "ledgers": len(states),
        **{state: states.count(state) for state in ("waiting", "running", "failed", "complete")},
        "unreadable": found.unreadable,
        "offloadedBytes": sum(each.byte_length for each in complete),
        "lastCompleted": max((each.offload.completed_ms for each in complete), default=0),
        "error": max(failed, key=lambda each: each.wanted_ms).error if failed else "",
    }


def _ledgers_of(call: Call) -> OffloadLedgers:
    ledgers = call.broker.ledgers
    return OffloadLedgers(ledgers.metadata, ledgers.keys, ledgers.clock)


async def _of_topic(call: Call) -> web.Response:
    if not call.topic.persistent:
        raise Refused(405, "a non-persistent topic has no ledgers")
    found = await _ledgers_of(call).of_topic(call.topic)
    rows = [ledger_json(each) for each in reversed(found.ledgers)]
    rows.sort(key=lambda each: _FIRST.get(each["state"], len(_FIRST)))
    return answer({**topic_json(found), "states": rows[:LEDGERS_MAX]})


async def _of_namespace(call: Call) -> web.Response:
    """Reads on from `after` until enough topics with offloaded ledgers are found, or the namespace ends."""
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    after = _after(call)
    shown: list[dict[str, Any]] = []
    read, following = 0, ""
    async for found in _ledgers_of(call).everywhere(after, call.namespace):
        read += 1
        row = topic_json(found)
        if row["waiting"] or row["running"] or row["failed"] or row["complete"] or row["unreadable"]:
            shown.append(row)
        if len(shown) >= TOPICS_MAX or read >= READ_MAX:
            following = found.topic.full
            break
    return answer({"topics": shown, "read": read, "next": following})


def _after(call: Call) -> TopicName | None:
    text = call.request.query.get("after", "")
    if not text:
        return None
    name = TopicName.parse(text)
    if name.namespace != call.namespace:
        raise InvalidName(f"after = {name} is not a topic of {call.namespace}")
    return name


ROUTES: Final = [
    Route(
        object="namespaces",
        method="GET",
        path=NAMESPACE_PATH.replace("/admin/v2", _OWN_API) + "/offload",
        handler=_of_namespace,
        summary="Count the offload states of the ledgers of topics, one page at a time: `after` is the last "
        "topic of the page before.",
        query=("after:String",),
        answer="OffloadPage",
        errors=NAMESPACE_ERRORS,
        operation=Operation.POLICY,
    ),
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/offload",
        handler=_of_topic,
        summary="Get the offload state of each closed ledger of a topic: those that failed or run first.",
        answer="TopicOffload",
        errors=TOPIC_ERRORS,
        operation=Operation.TOPIC_ADMIN,
    ),
]
