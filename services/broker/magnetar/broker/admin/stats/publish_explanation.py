"""Why publishes to a topic were slow lately: the slowest ones with their steps, and what was not read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from magnetar.broker.read_pauses import (
    ACKNOWLEDGEMENTS,
    BROKER_PUBLISHES,
    CONNECTION_PUBLISHES,
    CREDENTIALS,
    PUBLISH_RATE,
    UNREAD_OUTPUT,
    ReadPause,
)
from magnetar.broker.reason import Reason, iso_time
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.slow_publishes import SLOW_S, WINDOW_S, PublishStep, SlowPublish
from magnetar.broker.topics.topic import Topic
from magnetar.common.runtime.clock import Clock

PUBLISHES_MAX: Final = 20
"""Maximum slow publishes of a topic that are listed."""

PAUSES_MAX: Final = 20
"""Maximum connections whose pauses are listed."""


class PublishCode(StrEnum):
    """The kinds of reasons beside the steps of a publish; docs/explain.md has each with its test."""

    NO_SLOW_PUBLISH = "no_slow_publish"
    UNCONFIRMED = "unconfirmed"
    NOT_READ = "not_read"


_STEPS: Final = {
    PublishStep.WAITED_FOR_LEDGER: (
        "the wait for a ledger that takes it",
        "see the cause: metadata, bookies or the disk did not let a ledger be opened, or its limit of "
        "unconfirmed bytes was reached",
    ),
    PublishStep.WAITED_FOR_SYNC: (
        "the wait for the sync before it",
        "give the log a faster disk, or fewer messages a second: one group is synced at a time",
    ),
    PublishStep.LOG_WRITE: (
        "writing it to the log and syncing the disk",
        "compare magnetar_log_sync_seconds: the disk is slow, or shared with something that writes",
    ),
    PublishStep.BOOKIES: (
        "the acknowledgements of bookies",
        "compare disks and network of those that answered last: magnetar explain bookie ID",
    ),
    PublishStep.STORAGE: (
        "storage, which confirmed it with the end of its ledger",
        "nothing: a ledger failed and was closed; magnetar explain ledger ID names its bookies",
    ),
    PublishStep.RECEIPT: (
        "the way from storage to its receipt",
        "the broker's event loop was busy, or an earlier ledger was not closed yet: move bundles to other "
        "brokers, or see magnetar_event_loop_lag_seconds",
    ),
}

_PAUSES: Final = {
    PUBLISH_RATE: "raise the publish rate: magnetar explain policies shows from which level it comes",
    CONNECTION_PUBLISHES: "storage is slower than this client sends: see the slowest publishes for the step",
    BROKER_PUBLISHES: "all clients together send faster than storage takes it: add brokers, or raise "
    "maxMessagePublishBufferSizeInMB",
    UNREAD_OUTPUT: "the client does not read what it is sent: magnetar admin topics stats has its consumers",
    ACKNOWLEDGEMENTS: "acknowledgements wait for storage: see magnetar admin topics stats-internal",
    CREDENTIALS: "nothing: the credentials of a new connection were checked",
}


def publish_explanation(topic: Topic, clock: Clock) -> dict[str, Any]:
    """Returns why publishes to a topic were slow in the last minute, with the slowest ones."""
    now, now_ms = clock.monotonic(), clock.wall_ms()
    slowest = topic.publishing.slow_publishes() if isinstance(topic, PersistentTopic) else []
    reasons = _unconfirmed(topic, now_ms) + _steps(slowest)
    reasons += _pauses(topic, now, now_ms)
    if not reasons:
        text = f"no publish of the last {WINDOW_S} s took longer than {SLOW_S * 1000:g} ms in this broker"
        hint = "look at the client and the network: magnetar admin topics stats shows its address"
        reasons = [Reason(PublishCode.NO_SLOW_PUBLISH, text, hint, stops=False)]
    return {
        "topic": topic.name.full,
        "windowSeconds": WINDOW_S,
        "slowMilliseconds": SLOW_S * 1000,
        "reasons": [each.to_json() for each in reasons],
        "publishes": [_publish(each) for each in slowest[:PUBLISHES_MAX]],
        "partitions": {},
    }


def _unconfirmed(topic: Topic, now_ms: int) -> list[Reason]:
    """Returns the oldest publish that still waits, if it waits for long already."""
    oldest = topic.publishing.unconfirmed() if isinstance(topic, PersistentTopic) else None
    if oldest is None or oldest[1] <= SLOW_S:
        return []
    pending, waited_s, cause = oldest
    text = (
        f"a publish of producer {pending.producer.name} at {pending.producer.peer.address} has waited "
        f"{_ms(waited_s)} ms"
    )
    text += " for its ledger to confirm it" if cause is None else f" for a ledger: {cause}"
    hint = (
        "see its ledger: magnetar admin topics stats-internal"
        if cause is None
        else _STEPS[PublishStep.WAITED_FOR_LEDGER][1]
    )
    data = {"producer": pending.producer.name, "milliseconds": _ms(waited_s), "cause": cause}
    return [Reason(PublishCode.UNCONFIRMED, text, hint, now_ms - round(waited_s * 1000), True, data)]


def _steps(slowest: Sequence[SlowPublish]) -> list[Reason]:
    """Returns the steps that took most of the time of a slow publish, the slowest first."""
    by_step: dict[PublishStep, list[SlowPublish]] = {}
    for each in slowest:
        by_step.setdefault(each.longest.step, []).append(each)
    return [_step(step, publishes, len(slowest)) for step, publishes in by_step.items()]


def _step(step: PublishStep, publishes: Sequence[SlowPublish], of: int) -> Reason:
    worst = publishes[0]
    name, hint = _STEPS[step]
    detail = f": {worst.longest.detail}" if worst.longest.detail else ""
    text = (
        f"{name} took most of the time of {len(publishes)} of the {of} slowest publishes: "
        f"{_ms(worst.longest.seconds)} of {_ms(worst.seconds)} ms of the slowest{detail}"
    )
    since_ms = min(each.at_ms - round(each.seconds * 1000) for each in publishes)
    data = {
        "publishes": len(publishes),
        "milliseconds": _ms(worst.seconds),
        "stepMilliseconds": _ms(worst.longest.seconds),
        "detail": worst.longest.detail,
    }
    return Reason(step, text, hint, since_ms, False, data)


def _pauses(topic: Topic, now: float, now_ms: int) -> list[Reason]:
    """Returns why the connections of producers were not read lately: messages waited there, unseen."""
    peers = dict.fromkeys(producer.peer for producer in topic.producers.values())
    found = [(peer.address, each) for peer in peers for each in peer.read_pauses.since(now - WINDOW_S)]
    by_cause: dict[str, list[tuple[str, ReadPause]]] = {}
    for address, pause in found:
        by_cause.setdefault(pause.cause, []).append((address, pause))
    return [
        pause_reason(cause, pauses, now, now_ms) for cause, pauses in by_cause.items() if cause != CREDENTIALS
    ]


def pause_reason(cause: str, pauses: Sequence[tuple[str, ReadPause]], now: float, now_ms: int) -> Reason:
    """Returns the reason for pauses of one cause; each with the address of its connection."""
    total = sum(each.seconds(now) for _, each in pauses)
    longest = max(each.seconds(now) for _, each in pauses)
    lasting = any(each.until_s is None for _, each in pauses)
    addresses = list(dict.fromkeys(address for address, _ in pauses))
    text = (
        f"reading {'is' if lasting else 'was'} paused because of {cause}: {len(pauses)} pauses of "
        f"{_ms(total)} ms together, the longest {_ms(longest)} ms, at {_named(addresses)}"
    )
    since = min(each.since_s for _, each in pauses)
    data = {
        "cause": cause,
        "pauses": len(pauses),
        "milliseconds": _ms(total),
        "longestMilliseconds": _ms(longest),
        "addresses": addresses[:PAUSES_MAX],
    }
    since_ms = now_ms - round((now - since) * 1000)
    return Reason(PublishCode.NOT_READ, text, _PAUSES[cause], since_ms, lasting, data)


def _named(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - 3} more" if len(addresses) > 3 else ""
    return ", ".join(addresses[:3]) + more


def _publish(publish: SlowPublish) -> dict[str, Any]:
    return {
        "time": iso_time(publish.at_ms),
        "milliseconds": _ms(publish.seconds),
        "producer": publish.producer,
        "address": publish.address,
        "entries": publish.entries,
        "bytes": publish.byte_length,
        "messageId": f"{publish.ledger_id}:{publish.entry_id}",
        "steps": [
            {"step": str(each.step), "milliseconds": _ms(each.seconds), "detail": each.detail}
            for each in publish.steps
            if each.seconds > 0 or each.detail
        ],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
