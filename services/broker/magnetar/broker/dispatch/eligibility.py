"""Why a subscription is not dispatching, as a pure function of its state.

Dispatch never waits on a flag: it asks whether it can go on at every event. This is the same question, asked
by an operator, so that "it hangs until the topic is unloaded" has an answer.
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
    delayed: int = 0,
    due_in_ms: int | None = None,
) -> str | None:
    """The first thing that keeps entries from going out now, in words; None when nothing does.

    `consumers` are those that may get entries now; `paused_by` is why not even these do, if so, and
    `throttled_by` whose dispatch rate is used up. So many entries are `delayed`, the next for `due_in_ms`.
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
    if delayed and due_in_ms is not None:
        return f"{delayed} entries wait for their time, the next one for {due_in_ms / 1000:.3f} s"
    return None
