"""Routes that report on bookies from metadata: their states and space, recovery, and their ledgers.

A standalone has no bookies: its lists are empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.common.cluster.bookie_states import BookieState, bookie_states
from magnetar.common.cluster.under_replication import read_auditor, read_under_replication
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

LIMIT_MAX: Final = 1_000
_LIMIT: Final = 100
"""Under-replicated ledgers named unless the caller asks for another number."""

LEDGERS_MAX: Final = 200_000
"""Ledgers whose metadata one call reads."""

_PATH: Final = "/admin/magnetar/v1/bookies"


async def _report(call: Call) -> web.Response:
    limit = call.query_number("limit", _LIMIT)
    if not 0 < limit <= LIMIT_MAX:
        raise Refused(412, f"limit must be from 1 to {LIMIT_MAX}, not {limit}")
    metadata, keys = call.broker.ledgers.metadata, call.broker.ledgers.keys
    auditor = await read_auditor(metadata, keys)
    under_replication = await read_under_replication(metadata, keys)
    ledgers = [
        {
            "ledgerId": each.ledger_id,
            "missing": list(each.missing),
            "since": each.since_ms,
            "copiedBy": each.copied_by,
        }
        for each in under_replication.ledgers[:limit]
    ]
    return answer(
        {
            "bookies": [_bookie(each) for each in await bookie_states(metadata, keys)],
            "auditor": "" if auditor is None else auditor.bookie_id,
            "auditorSince": 0 if auditor is None else auditor.since_ms,
            "underReplicated": len(under_replication.ledgers),
            "inProgress": under_replication.in_progress,
            "underReplicatedLedgers": ledgers,
        }
    )


def _bookie(bookie: BookieState) -> dict[str, Any]:
    registration, request = bookie.registration, bookie.decommission
    return {
        "bookieId": bookie.bookie_id,
        "state": bookie.state,
        "rack": registration.rack if registration else "",
        "address": registration.address if registration else "",
        "freeBytes": registration.free_bytes if registration else -1,
        "started": registration.started_ms if registration else 0,
        "ledgersToMove": request.ledgers if request is not None and request.audited_ms else 0,
    }


@dataclass(slots=True)
class _Share:
    """The ledgers that metadata assigns to one bookie."""

    ledgers: int = 0
    fragments: int = 0
    open_fragments: int = 0
    gaps: int = 0

    def to_json(self) -> dict[str, int]:
        return {
            "ledgers": self.ledgers,
            "fragments": self.fragments,
            "openFragments": self.open_fragments,
            "gaps": self.gaps,
        }


async def _ledgers(call: Call) -> web.Response:
    """Reads the metadata of all ledgers, in pages and in turns of the loop."""
    shares: dict[str, _Share] = {}
    count, complete = 0, True
    async for page in ledger_pages(call.broker.ledgers.metadata, call.broker.ledgers.keys):
        if count >= LEDGERS_MAX:
            complete = False
            break
        count += len(page.items)
        async for item in iterate_cooperatively(page.items):
            _count(decode(LedgerMetadata, item.value), shares)
    bookies = {bookie: share.to_json() for bookie, share in sorted(shares.items())}
    return answer({"ledgers": count, "complete": complete, "bookies": bookies})


def _count(ledger: LedgerMetadata, shares: dict[str, _Share]) -> None:
    for bookie in {each for fragment in ledger.fragments for each in fragment.bookie_ids}:
        shares.setdefault(bookie, _Share()).ledgers += 1
    for fragment in ledger.fragments:
        for bookie in fragment.bookie_ids:
            shares[bookie].fragments += 1
    if ledger.fragments and ledger.state != LedgerMetadata.CLOSED:
        for bookie in ledger.fragments[-1].bookie_ids:
            shares[bookie].open_fragments += 1
    for gap in ledger.gaps:
        shares.setdefault(gap.bookie_id, _Share()).gaps += 1


ROUTES: Final = [
    Route(
        object="bookies",
        method="GET",
        path=_PATH,
        handler=_report,
        summary="Get the state and free space of each bookie, and the progress of auto-recovery.",
        query=(f"limit:int={_LIMIT}",),
        answer="BookieReport",
        errors={412: f"limit is not 1 to {LIMIT_MAX}"},
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="bookies",
        method="GET",
        path=f"{_PATH}/ledgers",
        handler=_ledgers,
        summary="Count the ledgers, fragments and gaps of each bookie: reads the metadata of all ledgers.",
        answer="LedgersByBookie",
        operation=Operation.SUPER_USER,
    ),
]
