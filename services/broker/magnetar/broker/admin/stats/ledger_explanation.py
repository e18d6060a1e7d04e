"""Why a ledger lacks copies: reasons made of what auto-recovery decides by. No I/O.

Loaded by the first call only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.reason import Reason, iso_time
from magnetar.common.cluster.bookie_states import BookieState
from magnetar.common.cluster.under_replication import Auditor, MarkedLedger
from magnetar.common.metadata.values import BookieMark, LedgerMetadata
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END
from magnetar.ledger.quorum.repair_plan import (
    Move,
    Plan,
    bookies_in_use,
    has_room,
    lacking_copies,
    lost_of,
    members_to_replace,
    needs_mark,
    open_fragment,
    plan_repair,
    settled_fragments,
    without_source,
)

NAMED_MAX: Final = 20
"""Reasons of one kind."""

LISTED_MAX: Final = 1_000
"""Fragments, ranges without all copies, and steps of a repair."""


class LedgerCode(StrEnum):
    """The kinds of reasons; docs/explain.md has each with its test."""

    LOCAL_COPY = "local_copy"
    REPLICATED = "replicated"
    MEMBER_DOWN = "member_down"
    MEMBER_LEAVING = "member_leaving"
    MEMBER_GONE = "member_gone"
    MEMBER_IN_DOUBT = "member_in_doubt"
    GAP = "gap"
    NOT_MARKED = "not_marked"
    MARKED = "marked"
    AUTO_RECOVERY_OFF = "auto_recovery_off"
    COPYING = "copying"
    WAITS_FOR_WORKER = "waits_for_worker"
    NO_BOOKIE = "no_bookie"
    NO_SOURCE = "no_source"
    GAP_WAITS = "gap_waits"
    WRITER_REPLACES = "writer_replaces"
    NO_ROOM = "no_room"
    IN_RECOVERY = "in_recovery"
    REPAIRED = "repaired"


_NEXT: Final[Mapping[LedgerCode, str]] = {
    LedgerCode.LOCAL_COPY: "nothing: run a cluster to have more copies",
    LedgerCode.REPLICATED: "nothing",
    LedgerCode.MEMBER_DOWN: "start the bookie, or see magnetar explain bookie ID",
    LedgerCode.MEMBER_LEAVING: "nothing: its entries are copied first; see magnetar explain bookie ID",
    LedgerCode.MEMBER_GONE: "nothing: it was decommissioned, and its entries are copied from others",
    LedgerCode.MEMBER_IN_DOUBT: "nothing: it compares its data with others; see magnetar admin ledgers stuck",
    LedgerCode.GAP: "nothing: auto-recovery fills it",
    LedgerCode.NOT_MARKED: (
        "wait for the auditor: it marks ledgers of a bookie that is away for lostBookieRecoveryDelay, and "
        "others at its next pass (auditorPeriodicBookieCheckInterval)"
    ),
    LedgerCode.MARKED: "see the other reasons",
    LedgerCode.AUTO_RECOVERY_OFF: "start a bookie with autoRecoveryDaemonEnabled=true",
    LedgerCode.COPYING: "nothing: it is being copied",
    LedgerCode.WAITS_FOR_WORKER: (
        "nothing: a replication worker takes it, after rwRereplicateBackoffMs or, after failures, later: "
        "the logs of bookies name the failure"
    ),
    LedgerCode.NO_BOOKIE: "start another bookie, or make a read-only one writable",
    LedgerCode.NO_SOURCE: "start one of the bookies that have these entries: no other copy is left",
    LedgerCode.GAP_WAITS: "start the bookie; after lostBookieRecoveryDelay its entries go to another one",
    LedgerCode.WRITER_REPLACES: (
        "nothing: its writer replaces the bookie at its next append, and one without appends is recovered "
        "after openLedgerRereplicationGracePeriod"
    ),
    LedgerCode.NO_ROOM: "start more bookies: without a whole ensemble an idle ledger is not recovered",
    LedgerCode.IN_RECOVERY: (
        "nothing: the topic's owner finishes it, or a bookie after openLedgerRereplicationGracePeriod; see "
        "magnetar admin ledgers stuck if it does not end"
    ),
    LedgerCode.REPAIRED: "nothing: the next worker removes the mark",
}


def ledger_reason(
    code: LedgerCode, text: str, *, since_ms: int = 0, stops: bool = False, **data: Any
) -> Reason:
    """Returns a reason with the advice of its code; `stops` is set for what keeps copies lacking for now."""
    return Reason(code, text, _NEXT[code], since_ms, stops, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSituation:
    """Facts about a ledger and the bookies of the cluster from metadata."""

    ledger: LedgerMetadata
    mark: MarkedLedger | None
    auditor: Auditor | None
    bookies: Mapping[str, BookieState]
    """All known bookies by id."""
    doubts: Mapping[str, BookieMark]
    """Marks of bookies that may lack data, by id."""

    @property
    def up(self) -> set[str]:
        return {each for each, state in self.bookies.items() if state.registration is not None}

    @property
    def leaving(self) -> set[str]:
        return {each for each, state in self.bookies.items() if state.decommission is not None}

    @property
    def known(self) -> set[str]:
        """Bookies with an identity."""
        return {each for each, state in self.bookies.items() if state.state != "decommissioned"}

    @property
    def writable(self) -> list[_Writable]:
        return [
            _Writable(each, state.registration.rack, state.registration.free_bytes)
            for each, state in sorted(self.bookies.items())
            if state.registration is not None and not state.registration.read_only
        ]


@dataclass(frozen=True, slots=True)
class _Writable:
    """A candidate of placement."""

    bookie_id: str
    rack: str
    free_bytes: int
    started_ms: int = 0


def why_lacking(now: LedgerSituation) -> list[Reason]:
    """Returns why copies of the ledger are missing, what repairs it, and why it did not yet."""
    if not now.ledger.fragments:
        text = "it is in the log of one process: that copy is the only one"
        return [ledger_reason(LedgerCode.LOCAL_COPY, text)]
    found = [*_members(now), *_gaps(now.ledger)]
    if now.mark is None:
        found += _unmarked(now)
    else:
        found += _marked(now, now.mark)
    if not found:
        text = f"each of its {now.ledger.write_quorum} copies is on a bookie that is up"
        found.append(ledger_reason(LedgerCode.REPLICATED, text, copies=now.ledger.write_quorum))
    return found


def _members(now: LedgerSituation) -> Iterator[Reason]:
    up, leaving, known = now.up, now.leaving, now.known
    for bookie in sorted(bookies_in_use(now.ledger))[:LISTED_MAX]:
        if bookie not in up and bookie not in known:
            text = f"bookie {bookie} does not exist any more"
            yield ledger_reason(LedgerCode.MEMBER_GONE, text, bookie=bookie)
        elif bookie not in up:
            text = f"bookie {bookie} is down"
            yield ledger_reason(LedgerCode.MEMBER_DOWN, text, bookie=bookie)
        if bookie in leaving:
            request = now.bookies[bookie].decommission
            since_ms = 0 if request is None else request.created_ms
            text = f"bookie {bookie} is being decommissioned"
            yield ledger_reason(LedgerCode.MEMBER_LEAVING, text, since_ms=since_ms, bookie=bookie)
        doubt = now.doubts.get(bookie)
        if doubt is not None:
            text = f"bookie {bookie} may lack entries: {doubt.doubt}"
            yield ledger_reason(
                LedgerCode.MEMBER_IN_DOUBT, text, since_ms=doubt.doubt_ms, bookie=bookie, doubt=doubt.doubt
            )


def _gaps(ledger: LedgerMetadata) -> Iterator[Reason]:
    for gap in ledger.gaps[:NAMED_MAX]:
        last = None if gap.last_entry_id == OPEN_GAP_END else gap.last_entry_id
        which = f"entries {gap.first_entry_id} to {last}" if last is not None else _from(gap.first_entry_id)
        text = f"bookie {gap.bookie_id} lacks {which}: the writer went on without it"
        yield ledger_reason(LedgerCode.GAP, text, bookie=gap.bookie_id, first=gap.first_entry_id, last=last)


def _from(entry_id: int) -> str:
    return f"the entries from {entry_id} on"


def _unmarked(now: LedgerSituation) -> Iterator[Reason]:
    """Yields why a ledger that needs a repair is not marked yet."""
    given_up = now.leaving | (now.known - now.up)
    missing = members_to_replace(now.ledger, given_up, now.known, now.up)
    if not needs_mark(now.ledger, missing):
        return
    if now.auditor is None:
        yield _off()
    else:
        text = f"the auditor, bookie {now.auditor.bookie_id}, has not marked it as under-replicated"
        yield ledger_reason(LedgerCode.NOT_MARKED, text, stops=True, auditor=now.auditor.bookie_id)
    yield from _end(now, plan_repair(now.ledger, missing, now.up))


def _marked(now: LedgerSituation, mark: MarkedLedger) -> Iterator[Reason]:
    """Yields what the replication workers do about a marked ledger, by their own plan."""
    lost = lost_of(mark.missing, now.leaving, now.up)
    plan = plan_repair(now.ledger, lost, now.up)
    named = ", ".join(mark.missing) or "none"
    text = f"marked as under-replicated; bookies to replace: {named}"
    yield ledger_reason(
        LedgerCode.MARKED, text, since_ms=mark.since_ms, stops=not plan.is_empty, missing=list(mark.missing)
    )
    if now.auditor is None:
        yield _off()
    if mark.copied_by:
        text = f"bookie {mark.copied_by} repairs it"
        yield ledger_reason(LedgerCode.COPYING, text, since_ms=mark.copied_since_ms, bookie=mark.copied_by)
    if plan.is_empty:
        yield ledger_reason(LedgerCode.REPAIRED, "nothing is left to repair")
        return
    if now.ledger.state != LedgerMetadata.IN_RECOVERY:
        yield from _steps(now, plan, mark, lost)
    yield from _end(now, plan)


def _off() -> Reason:
    text = "no bookie with auto-recovery is up: no ledger is marked or copied"
    return ledger_reason(LedgerCode.AUTO_RECOVERY_OFF, text, stops=True)


def _steps(now: LedgerSituation, plan: Plan, mark: MarkedLedger, lost: set[str]) -> Iterator[Reason]:
    up = now.up
    possible = len(plan.fills) + plan.void_gaps
    blocked = 0
    for move in plan.moves:
        fragment = move.fragment
        which = f"entries {fragment.first} to {fragment.last} of bookie {move.lost}"
        data: dict[str, Any] = {"bookie": move.lost, "first": fragment.first, "last": fragment.last}
        if without_source(now.ledger, move, up):
            code, text = LedgerCode.NO_SOURCE, f"no other bookie with {which} is up"
        elif not targets(now, move, lost):
            code = LedgerCode.NO_BOOKIE
            text = f"no bookie can take {which}: {len(now.writable)} are writable, {len(up)} are up"
        else:
            possible += 1
            continue
        blocked += 1
        if blocked <= NAMED_MAX:
            yield ledger_reason(code, text, stops=True, **data)
    if plan.waiting:
        text = "a bookie with a gap is down, and not given up yet"
        yield ledger_reason(LedgerCode.GAP_WAITS, text, stops=True)
    if possible and not mark.copied_by and now.auditor is not None:
        text = f"{possible} steps of its repair can be done, and no replication worker has it now"
        yield ledger_reason(LedgerCode.WAITS_FOR_WORKER, text, steps=possible)


def _end(now: LedgerSituation, plan: Plan) -> Iterator[Reason]:
    """Yields what happens to the end of a ledger that is not closed."""
    if now.ledger.state == LedgerMetadata.IN_RECOVERY:
        text = "its recovery is not finished: until then nothing is copied"
        yield ledger_reason(LedgerCode.IN_RECOVERY, text, stops=True)
    elif plan.tail_lacks:
        text = "it is open: its last fragment is left to its writer"
        yield ledger_reason(LedgerCode.WRITER_REPLACES, text, stops=True)
        writable = [each.bookie_id for each in now.writable]
        if not has_room(now.ledger, writable, now.leaving):
            size = now.ledger.ensemble_size
            text = (
                f"a whole ensemble takes {size} bookies, and {len(set(writable) - now.leaving)} may take it"
            )
            yield ledger_reason(LedgerCode.NO_ROOM, text, stops=True, ensemble=size, writable=len(writable))


def targets(now: LedgerSituation, move: Move, lost: Iterable[str]) -> list[str]:
    """Returns the bookies that the move may choose from."""
    from magnetar.ledger.quorum.placement import free_candidates  # not for a standalone

    excluded = {*lost, *now.leaving}
    candidates = [each for each in now.writable if each.bookie_id not in excluded]
    ensemble = move.fragment.bookie_ids
    return [each.bookie_id for each in free_candidates(candidates, ensemble, ensemble.index(move.lost))]


def ledger_explanation(now: LedgerSituation) -> dict[str, Any]:
    """Returns the explanation as the admin API shows it."""
    ledger = now.ledger
    topic, kind = ledger.properties.get("topic", ""), ledger.properties.get("kind", "")
    return {
        "ledgerId": ledger.ref.id,
        "state": LedgerMetadata.State.Name(ledger.state),
        "topic": topic,
        "kind": kind,
        "keptBy": f"magnetar explain storage {topic}" if topic else "",
        "created": iso_time(ledger.created_ms),
        "closed": iso_time(ledger.closed_ms),
        "lastEntryId": ledger.last_entry_id if ledger.state == LedgerMetadata.CLOSED else None,
        "bytes": ledger.byte_length if ledger.state == LedgerMetadata.CLOSED else None,
        "ensembleSize": ledger.ensemble_size,
        "writeQuorum": ledger.write_quorum,
        "ackQuorum": ledger.ack_quorum,
        "fragments": _fragments(now),
        "lacking": [
            {"first": each.first, "last": each.last, "copies": each.copies}
            for each in (lacking_copies(ledger, now.up) if ledger.fragments else [])[:LISTED_MAX]
        ],
        "steps": _planned(now),
        "reasons": [each.to_json() for each in why_lacking(now)],
    }


def _fragments(now: LedgerSituation) -> list[dict[str, Any]]:
    ledger = now.ledger
    ranges = [(each.first, each.last, each.bookie_ids) for each in settled_fragments(ledger)]
    tail = open_fragment(ledger)
    shown = [*ranges, *([] if tail is None else [(tail.first_entry_id, None, tuple(tail.bookie_ids))])]
    return [
        {
            "first": first,
            "last": last,
            "bookies": {bookie: _state(now, bookie) for bookie in bookies},
        }
        for first, last, bookies in shown[:LISTED_MAX]
    ]


def _state(now: LedgerSituation, bookie_id: str) -> str:
    state = now.bookies.get(bookie_id)
    text = "gone" if state is None else state.state
    return f"{text}, in doubt" if bookie_id in now.doubts else text


def _planned(now: LedgerSituation) -> list[dict[str, Any]]:
    """Returns the steps of the workers' plan, as (entries, bookie) with the bookies that may take a copy."""
    if now.mark is None or not now.ledger.fragments:
        return []
    lost = lost_of(now.mark.missing, now.leaving, now.up)
    plan = plan_repair(now.ledger, lost, now.up)
    moves = [
        {
            "step": "move",
            "first": move.fragment.first,
            "last": move.fragment.last,
            "bookie": move.lost,
            "to": targets(now, move, lost)[:NAMED_MAX],
        }
        for move in plan.moves[:LISTED_MAX]
    ]
    fills = [
        {
            "step": "fill",
            "first": fill.first,
            "last": fill.last,
            "bookie": fill.bookie_id,
            "to": [fill.bookie_id],
        }
        for fill in plan.fills[:LISTED_MAX]
    ]
    return [*moves, *fills][:LISTED_MAX]
