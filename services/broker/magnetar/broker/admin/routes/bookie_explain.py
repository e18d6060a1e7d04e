"""The route that explains why a bookie gets no entries, and what waits for it.

States come from metadata. The called broker asks the bookie for its space, and the other brokers for their
quarantines.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id
from magnetar.common.cluster.bookie_states import bookie_doubts, bookie_states
from magnetar.common.cluster.under_replication import read_auditor, read_under_replication
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.ledger_store import LedgerStore

if TYPE_CHECKING:
    from magnetar.broker.admin.stats.bookie_explanation import Space

PEER_S: Final = 5.0
"""Time limit for the answer of another broker, and of the bookie, in seconds."""

_HERE: Final = "here"


async def _explain(call: Call) -> web.Response:
    from magnetar.broker.admin.stats.bookie_explanation import (  # few ask for it
        BookieSituation,
        bookie_explanation,
        local_explanation,
    )

    bookie_id, ledgers = call.names["bookie"], call.broker.ledgers
    if call.broker.cluster is None:
        return answer(local_explanation(bookie_id))
    if call.flag(_HERE):
        return answer(_quarantine_here(ledgers.ledgers, bookie_id))
    states = {each.bookie_id: each for each in await bookie_states(ledgers.metadata, ledgers.keys)}
    state = states.get(bookie_id)
    if state is None:
        raise Refused(404, f"bookie {bookie_id!r} not found; the bookies are {', '.join(states) or 'none'}")
    space = None if state.registration is None else await _space(ledgers.ledgers, bookie_id)
    quarantines, unreachable = await _quarantines(call, bookie_id)
    situation = BookieSituation(
        state=state,
        doubt=(await bookie_doubts(ledgers.metadata, ledgers.keys)).get(bookie_id),
        auditor=await read_auditor(ledgers.metadata, ledgers.keys),
        marked=(await read_under_replication(ledgers.metadata, ledgers.keys)).ledgers,
        space=space,
        quarantines=quarantines,
    )
    return answer({**bookie_explanation(situation), "unreachable": unreachable})


async def _space(store: LedgerStore, bookie_id: str) -> Space | None:
    from magnetar.broker.admin.stats.bookie_explanation import Space
    from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore  # a cluster's

    if not isinstance(store, QuorumLedgerStore):
        return None
    try:
        async with asyncio.timeout(PEER_S):
            found = await store.space_of(bookie_id)
    except TimeoutError:
        return None
    return None if found is None else Space(*found)


def _quarantine_here(store: LedgerStore, bookie_id: str) -> dict[str, Any]:
    """Returns for how long this broker gives the bookie no new fragments, and why."""
    from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore  # a cluster's

    left = store.placement.quarantine.left(bookie_id) if isinstance(store, QuorumLedgerStore) else None
    return {} if left is None else {"seconds": left[0], "cause": left[1]}


async def _quarantines(call: Call, bookie_id: str) -> tuple[dict[str, tuple[float, str]], dict[str, str]]:
    """Returns the quarantines of all brokers, and the errors of those that did not answer."""
    cluster, own = call.broker.cluster, broker_id(call)
    others = [] if cluster is None else [each for each in cluster.directory.all() if each.broker_id != own]
    found = {own: _quarantine_here(call.broker.ledgers.ledgers, bookie_id)}
    unreachable: dict[str, str] = {}
    answers = await asyncio.gather(*(_ask(call, each) for each in others))
    for broker, answered in zip(others, answers, strict=True):
        if isinstance(answered, str):
            unreachable[broker.broker_id] = answered
        else:
            found[broker.broker_id] = answered
    return {
        broker: (float(each["seconds"]), str(each["cause"])) for broker, each in found.items() if each
    }, unreachable


async def _ask(call: Call, broker: BrokerRegistration) -> dict[str, Any] | str:
    """Returns the other broker's quarantine of the bookie, or a text that says why there is none."""
    try:
        async with asyncio.timeout(PEER_S):
            found: dict[str, Any] = await call.request.app[PEERS].ask(
                broker, "GET", call.request.rel_url.raw_path, {_HERE: "true"}, caller=call.request
            )
            return found
    except TimeoutError:
        return f"no answer within {PEER_S:g} s"
    except (MagnetarError, Refused) as error:
        return str(error)


ROUTES: Final = [
    Route(
        object="bookies",
        method="GET",
        path="/admin/magnetar/v1/bookies/{bookie}/explain",
        handler=_explain,
        summary="Explain why a bookie gets no entries, and what waits for it.",
        query=(f"{_HERE}:boolean=false",),
        answer="BookieExplanation",
        errors={404: "no such bookie"},
        operation=Operation.SUPER_USER,
    )
]
