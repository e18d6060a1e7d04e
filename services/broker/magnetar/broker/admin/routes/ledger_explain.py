"""The route that explains why a ledger lacks copies, from metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.json_types import INT64_MAX
from magnetar.broker.admin.edge.routing import Route
from magnetar.common.cluster.bookie_states import bookie_doubts, bookie_states
from magnetar.common.cluster.under_replication import read_auditor, read_mark
from magnetar.common.metadata.keys import ID_DIGITS, Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.security.authorization.operations import Operation

if TYPE_CHECKING:
    from magnetar.broker.admin.stats.ledger_explanation import LedgerSituation


async def _explain(call: Call) -> web.Response:
    from magnetar.broker.admin.stats.ledger_explanation import ledger_explanation  # few ask for it

    ledger_id = _ledger_id(call.names["ledger"])
    found = await situation_of(call.broker.ledgers.metadata, call.broker.ledgers.keys, ledger_id)
    if found is None:
        raise Refused(404, f"ledger {ledger_id} does not exist: it was deleted, or never created")
    return answer(ledger_explanation(found))


async def situation_of(metadata: MetadataStore, keys: Keys, ledger_id: int) -> LedgerSituation | None:
    """Returns what metadata says about the ledger; None when it does not exist. Raises MetadataError."""
    from magnetar.broker.admin.stats.ledger_explanation import LedgerSituation

    # The mark first: a worker removes it after the last change of the ledger.
    mark = await read_mark(metadata, keys, ledger_id)
    found = await metadata.get(keys.ledger(ledger_id))
    if found is None:
        return None
    ledger = decode(LedgerMetadata, found.value)
    if mark is not None and mark.ledger_key != ledger.ref.key:
        mark = None  # of an earlier ledger with this id
    return LedgerSituation(
        ledger=ledger,
        mark=mark,
        auditor=await read_auditor(metadata, keys),
        bookies={each.bookie_id: each for each in await bookie_states(metadata, keys)},
        doubts=await bookie_doubts(metadata, keys),
    )


def _ledger_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= ID_DIGITS and int(text) <= INT64_MAX):
        raise Refused(412, f"{text[:80]!r} is not a ledger id: a number is expected, of at most 63 bits")
    return int(text)


ROUTES: Final = [
    Route(
        object="bookies",
        method="GET",
        path="/admin/magnetar/v1/ledgers/{ledger}/explain",
        handler=_explain,
        summary="Explain why a ledger lacks copies, what auto-recovery does about it, and why not yet.",
        answer="LedgerExplanation",
        errors={404: "no such ledger", 412: "not a ledger id"},
        operation=Operation.SUPER_USER,
    )
]
