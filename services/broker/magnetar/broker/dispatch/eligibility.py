"""Explains why a subscription is not dispatching, as a pure function of its state.

Dispatch never waits on a flag: it checks at every event whether it can continue. This module expresses the
same check in words, for an operator whose subscription seems to hang.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.dispatch.candidate import Candidate


def explain(
    consumers: Sequence[Candidate],
    backlog: int,
    *,
    reading: bool,
    unacked_limit_reached: bool,
    paused_by: str | None = None,
    throttled_by: str | None = None,
    waits_for: str | None = None,
    delayed: int = 0,
    due_in_ms: int | None = None,
) -> str | None:
    """Explains in words what keeps entries from going out now; None when nothing does.

    `consumers` are those that may get entries now; `paused_by` is the reason why not even these do, if any;
    `throttled_by` is the scope of the dispatch rate that is used up; `waits_for` is the open transaction
    behind which nothing can be read. `delayed` entries wait for their time, the first of them for
    `due_in_ms`.
    """
    if backlog == 0:
        return "nothing to deliver: every entry is acknowledged"
    if not consumers:
        return "no consumer is connected"
    if paused_by is not None:
        return paused_by
    if unacked_limit_reached:
        return (
            "the subscription has too many unacknowledged messages (maxUnackedMessagesPerSubscription, "
            "maxUnackedMessagesPerBroker)"
        )
    reasons = [consumer.held_back_by for consumer in consumers]
    if all(reasons):
        return "no consumer can take anything: " + "; ".join(sorted({reason for reason in reasons if reason}))
    if throttled_by is not None:
        return f"throttled by the dispatch rate of {throttled_by}"
    if reading:
        return "waiting for a read from storage"
    if waits_for is not None:
        return f"waits for {waits_for}"
    if delayed and due_in_ms is not None:
        return f"{delayed} entries wait for their time, the next one for {due_in_ms / 1000:.3f} s"
    return None
