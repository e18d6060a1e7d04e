"""Why a bookie gets no entries, and what waits for it. No I/O.

Loaded by the first call only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.reason import Reason
from magnetar.common.cluster.bookie_states import BookieState
from magnetar.common.cluster.under_replication import Auditor, MarkedLedger
from magnetar.common.metadata.values import BookieMark


class BookieCode(StrEnum):
    """The kinds of reasons; docs/explain.md has each with its test."""

    LOCAL_LOG = "local_log"
    WRITABLE = "writable"
    DOWN = "down"
    READ_ONLY = "read_only"
    LEAVING = "leaving"
    DECOMMISSIONED = "decommissioned"
    NO_ANSWER = "no_answer"
    QUARANTINED = "quarantined"
    IN_DOUBT = "in_doubt"
    UNDER_REPLICATED = "under_replicated"
    COPIES = "copies"
    AUTO_RECOVERY_OFF = "auto_recovery_off"


_NEXT: Final[Mapping[BookieCode, str]] = {
    BookieCode.LOCAL_LOG: "nothing: a standalone has no bookies",
    BookieCode.WRITABLE: "nothing",
    BookieCode.DOWN: "start it; if its disk is lost, magnetar admin bookies decommission ID",
    BookieCode.READ_ONLY: (
        "free space on its disk, or raise diskUsageThreshold: it takes entries again below "
        "diskUsageLwmThreshold"
    ),
    BookieCode.LEAVING: "wait until its ledgers are moved; magnetar admin bookies recommission ID cancels it",
    BookieCode.DECOMMISSIONED: "stop its process and delete its data",
    BookieCode.NO_ANSWER: "look at its log, and at the network between this broker and its address",
    BookieCode.QUARANTINED: "nothing: it ends by itself, or when the bookie restarts; look at its disk",
    BookieCode.IN_DOUBT: "nothing: it compares its data with other bookies; see magnetar admin ledgers stuck",
    BookieCode.UNDER_REPLICATED: "magnetar explain ledger ID says why one of them is not copied yet",
    BookieCode.COPIES: "nothing: it copies entries of other bookies",
    BookieCode.AUTO_RECOVERY_OFF: "start a bookie with autoRecoveryDaemonEnabled=true",
}


def bookie_reason(
    code: BookieCode, text: str, *, since_ms: int = 0, stops: bool = False, **data: Any
) -> Reason:
    """Returns a reason with the advice of its code; `stops` is set for what keeps new entries away."""
    return Reason(code, text, _NEXT[code], since_ms, stops, data)


@dataclass(frozen=True, slots=True)
class Space:
    """Disk figures that the bookie reports, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSituation:
    """Facts about a bookie from metadata, from itself and from brokers."""

    state: BookieState
    doubt: BookieMark | None
    """Its mark when it may lack data."""
    auditor: Auditor | None
    marked: Sequence[MarkedLedger]
    """All under-replicated ledgers."""
    space: Space | None
    """None when it gave no answer."""
    quarantines: Mapping[str, tuple[float, str]]
    """By the broker that gives it no new fragments: for how many more seconds, and why."""


def why_not_written(now: BookieSituation) -> list[Reason]:
    """Returns why the bookie gets no new entries, or that it does, and what waits for it."""
    found = [*_obstacles(now)]
    if not any(each.stops for each in found):
        registration = now.state.registration
        assert registration is not None, "a bookie that is not registered is down"
        text = f"it takes new entries, registered at {registration.address}"
        found.insert(
            0,
            bookie_reason(
                BookieCode.WRITABLE, text, since_ms=registration.started_ms, address=registration.address
            ),
        )
    return [*found, *_work(now)]


def _obstacles(now: BookieSituation) -> Iterator[Reason]:
    bookie, registration, request = now.state.bookie_id, now.state.registration, now.state.decommission
    if request is not None:
        left = f"{request.ledgers} ledgers have entries on it" if request.audited_ms else "not audited yet"
        text = f"it is being decommissioned: {left}"
        yield bookie_reason(
            BookieCode.LEAVING,
            text,
            since_ms=request.created_ms,
            stops=True,
            ledgers=request.ledgers if request.audited_ms else None,
        )
    if registration is None:
        yield bookie_reason(BookieCode.DOWN, f"bookie {bookie} is not registered", stops=True)
        return
    if now.state.state == "decommissioned":
        text = "it runs without an identity: its decommissioning is complete"
        yield bookie_reason(BookieCode.DECOMMISSIONED, text, stops=True)
    elif registration.read_only and request is None:
        yield bookie_reason(BookieCode.READ_ONLY, f"it is read-only: {_disk(now)}", stops=True)
    if now.space is None:
        text = f"it is registered at {registration.address}, and gives this broker no answer"
        yield bookie_reason(BookieCode.NO_ANSWER, text, stops=True, address=registration.address)
    for broker, (left_s, reason) in sorted(now.quarantines.items()):
        text = f"broker {broker} gives it no new ledgers for {left_s:.0f} s: {reason}"
        yield bookie_reason(BookieCode.QUARANTINED, text, broker=broker, seconds=round(left_s), cause=reason)


def _disk(now: BookieSituation) -> str:
    if now.space is None or not now.space.total:
        return "its disk is too full, or its log takes no entries"
    used = 100 * (1 - now.space.free / now.space.total)
    return f"{used:.1f} percent of its disk are used, {now.space.free} bytes are free"


def _work(now: BookieSituation) -> Iterator[Reason]:
    bookie = now.state.bookie_id
    if now.doubt is not None:
        text = f"it may lack entries: {now.doubt.doubt}"
        yield bookie_reason(BookieCode.IN_DOUBT, text, since_ms=now.doubt.doubt_ms, doubt=now.doubt.doubt)
    naming = [each for each in now.marked if bookie in each.missing]
    if naming:
        copied = sum(bool(each.copied_by) for each in naming)
        text = f"{len(naming)} under-replicated ledgers name it, of which {copied} are being copied"
        first = min(naming, key=lambda each: (each.since_ms, each.ledger_id))
        yield bookie_reason(
            BookieCode.UNDER_REPLICATED,
            text,
            since_ms=first.since_ms,
            ledgers=len(naming),
            copied=copied,
            ledger=first.ledger_id,
        )
    copying = [each for each in now.marked if each.copied_by == bookie]
    if copying:
        text = f"its replication worker repairs {len(copying)} ledgers"
        yield bookie_reason(BookieCode.COPIES, text, ledgers=len(copying))
    if now.auditor is None and (naming or now.state.state in ("down", "decommissioning")):
        text = "no bookie with auto-recovery is up: its ledgers are not copied"
        yield bookie_reason(BookieCode.AUTO_RECOVERY_OFF, text)


def bookie_explanation(now: BookieSituation) -> dict[str, Any]:
    """Returns the explanation as the admin API shows it."""
    registration = now.state.registration
    free = registration.free_bytes if registration is not None else -1
    return {
        "bookieId": now.state.bookie_id,
        "state": now.state.state,
        "address": registration.address if registration is not None else "",
        "rack": registration.rack if registration is not None else "",
        "freeBytes": free if now.space is None else now.space.free,
        "totalBytes": -1 if now.space is None else now.space.total,
        "underReplicated": sum(now.state.bookie_id in each.missing for each in now.marked),
        "reasons": [each.to_json() for each in why_not_written(now)],
    }


def local_explanation(bookie_id: str) -> dict[str, Any]:
    """Returns the answer of a standalone, which has no bookies."""
    text = "a standalone has no bookies: its local log is the only copy of each ledger"
    return {
        "bookieId": bookie_id,
        "state": "",
        "address": "",
        "rack": "",
        "freeBytes": -1,
        "totalBytes": -1,
        "underReplicated": 0,
        "reasons": [bookie_reason(BookieCode.LOCAL_LOG, text).to_json()],
        "unreachable": {},
    }
