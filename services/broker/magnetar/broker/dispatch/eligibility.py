"""Explains why a subscription is not dispatching, as a pure function of its state.

Dispatch never waits on a flag: it checks at every event whether it can continue. This module lists what those
checks find, for an operator whose subscription seems to hang. Each reason comes from the part that makes the
check, on request: nothing is recorded for it while messages flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.dispatch.candidate import Candidate
from magnetar.broker.reason import Reason


class Code(StrEnum):
    """The kinds of reasons; docs/explain.md has each with its test."""

    NOTHING_TO_DELIVER = "nothing_to_deliver"
    NO_CONSUMER = "no_consumer"
    METADATA_OUTAGE = "metadata_outage"
    SWITCHING_CONSUMER = "switching_consumer"
    NOT_ACTIVE_CONSUMER = "not_active_consumer"
    LOWER_PRIORITY = "lower_priority"
    NO_PERMITS = "no_permits"
    SOCKET_FULL = "socket_full"
    UNACKED_LIMIT = "unacked_limit"
    RATE_LIMITED = "rate_limited"
    READING = "reading"
    READ_FAILED = "read_failed"
    MEMORY_FULL = "memory_full"
    TRANSACTION_OPEN = "transaction_open"
    DELAYED_UNTIL = "delayed_until"
    KEY_BLOCKED = "key_blocked"
    KEY_UNOWNED = "key_unowned"
    LOOK_AHEAD_FULL = "look_ahead_full"
    CHUNK_BLOCKED = "chunk_blocked"
    OUTSIDE_HASH_RANGES = "outside_hash_ranges"
    WAITING_FOR_ACKS = "waiting_for_acks"


_NEXT: Final[Mapping[Code, str]] = {
    Code.NOTHING_TO_DELIVER: "nothing: the next message is delivered when it is published",
    Code.NO_CONSUMER: "connect a consumer, or delete the subscription if it is not needed",
    Code.METADATA_OUTAGE: "look at etcd (magnetar doctor); it resumes once metadata or bookies confirm that",
    Code.SWITCHING_CONSUMER: "wait: the switch ends by itself after activeConsumerFailoverDelayTimeMillis",
    Code.NOT_ACTIVE_CONSUMER: "nothing: it takes over when the active one leaves; all get messages on Shared",
    Code.LOWER_PRIORITY: "nothing: it gets messages when no consumer of a better level can take any",
    Code.NO_PERMITS: "see whether the application still receives: it asks for no more messages",
    Code.SOCKET_FULL: "see whether the client still reads, and its network: the broker waits for its socket",
    Code.UNACKED_LIMIT: "have the consumers acknowledge or return what they hold, or raise the limit",
    Code.RATE_LIMITED: "wait until then, or raise the dispatch rate of that scope",
    Code.READING: "wait; when it lasts, look at the bookies or the disk (magnetar doctor)",
    Code.READ_FAILED: "the broker tries again by itself; look at the bookies that hold the ledger",
    Code.MEMORY_FULL: "wait until other subscriptions and publishes settle their bytes, or raise "
    "magnetarMemoryBudgetMB",
    Code.TRANSACTION_OPEN: "see magnetar admin transactions transaction-metadata; abort-transaction, or its "
    "timeout, ends it",
    Code.DELAYED_UNTIL: "nothing: they go out at their time",
    Code.KEY_BLOCKED: "have that consumer acknowledge or receive, or close it: its keys then move to others",
    Code.KEY_UNOWNED: "connect a consumer whose hash ranges have these slots",
    Code.LOOK_AHEAD_FULL: "free the keys that the other reasons name; the bound is "
    "keySharedLookAheadMsgInReplayThresholdPerConsumer",
    Code.CHUNK_BLOCKED: "have that consumer receive, or close it: another one then gets the whole message",
    Code.OUTSIDE_HASH_RANGES: "connect readers for the other hash ranges, or acknowledge what was received",
    Code.WAITING_FOR_ACKS: "have the consumers acknowledge; what a closed one held is sent again",
}
"""The advice for each."""

IDLE_SHOWN_MAX: Final = 20
"""Maximum consumers, or parts of a subscription, for which one kind of reason is given one by one."""


def reason(code: Code, text: str, *, since_ms: int = 0, stops: bool = True, **data: Any) -> Reason:
    """Returns a reason with the advice of its code; `data` are the figures in `text`."""
    return Reason(code, text, _NEXT[code], since_ms, stops, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The findings of the parts of a subscription, asked whether an entry can go out now."""

    backlog: int
    """Entries that are not acknowledged."""
    nothing_left: bool
    """True when every entry that may be sent was sent: nothing is in memory, to be redelivered or to be
    read.
    """
    candidates: Sequence[Candidate]
    """The consumers that may get entries now."""
    redelivers: bool = False
    """True while entries wait to be redelivered, which limits on unacknowledged messages let pass."""
    paused_by: Reason | None = None
    """Why not even the candidates get anything."""
    limited_by: Reason | None = None
    """The limit on unacknowledged messages of the subscription or the broker."""
    throttled_by: Reason | None = None
    """The dispatch rate that is used up."""
    fetching: Reason | None = None
    """The read, pause or memory that entries wait for, while none is in memory."""
    kept_back: Sequence[Reason] = ()
    """Why entries that are not acknowledged are not there to be sent."""
    unacknowledged: Reason | None = None
    """The entries that were sent; None without any."""
    idle: Sequence[Reason] = ()
    """Why some connected consumers are no candidates."""


def explain(now: Situation, no_consumer: Reason) -> list[Reason]:
    """Returns what keeps entries from going out now; no reason `stops` when one can.

    Reasons that hold up only a part of the entries or consumers come as well, and do not `stop`.
    """
    if now.backlog == 0 and now.nothing_left:
        return [reason(Code.NOTHING_TO_DELIVER, "nothing to deliver: every entry is acknowledged")]
    if not now.candidates:
        return [no_consumer]
    held = [each.held_back_by for each in now.candidates]
    all_held = all(each is not None for each in held)
    found = [each for each in (now.paused_by, None if now.redelivers else now.limited_by) if each is not None]
    found += [replace(each, stops=all_held) for each in held if each is not None]
    found += [each for each in (now.throttled_by, now.fetching) if each is not None]
    found += [replace(each, stops=now.nothing_left) for each in now.kept_back]
    if now.nothing_left and now.unacknowledged is not None:
        found.append(now.unacknowledged)
    return [*found, *now.idle]
