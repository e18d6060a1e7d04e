"""Routes for the offload of topics: requests offload of ledgers, and returns the status.

In Apache Pulsar the broker itself offloads, one request at a time. This broker records the requested ledgers,
and a job offloads them. So a second request during an offload extends it instead of being refused, and the
status of a failed offload is RUNNING again as soon as a job retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.subscriptions import reset_data
from magnetar.broker.admin.objects.topics import owned_topic_routes, persistent
from magnetar.broker.admin.routes.topics.topics import message_id
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_refusals import NoLedgerToOffload, OffloadRefused
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_state import want

log = get_logger(__name__)

NOT_RUN: Final = "NOT_RUN"
RUNNING: Final = "RUNNING"
SUCCESS: Final = "SUCCESS"
ERROR: Final = "ERROR"


def offload_ledgers(call: Call) -> OffloadLedgers:
    """Returns the closed ledgers of the cluster in metadata."""
    ledgers = call.broker.ledgers
    return OffloadLedgers(ledgers.metadata, ledgers.keys, ledgers.clock)


def process_status(ledgers: Sequence[TopicLedger]) -> dict[str, Any]:
    """Returns Pulsar's offload status of a topic with these closed ledgers, oldest first.

    RUNNING while a job works on one of them or has not tried it yet; ERROR once only ledgers remain at which
    a job has failed, which wait for the next job.
    """
    waiting = [each.offload for each in ledgers if each.offload.state == Offload.WANTED]
    failed = [each for each in waiting if each.error]
    if len(waiting) > len(failed) or any(each.offload.state == Offload.RUNNING for each in ledgers):
        return _shown(RUNNING)
    if failed:
        return _shown(ERROR, error=max(failed, key=lambda each: each.wanted_ms).error)
    if not any(each.offload.state == Offload.COMPLETE for each in ledgers):
        return _shown(NOT_RUN)
    return _shown(SUCCESS, first_left=_first_left(ledgers))


def last_failure_ms(ledgers: Sequence[TopicLedger]) -> int:
    """Returns the time of a job's last failure at one of these ledgers; 0 without one, or when it succeeded
    since.
    """
    return max(
        (each.offload.wanted_ms for each in ledgers if each.offload.failures and each.offload.error),
        default=0,
    )


def _first_left(ledgers: Sequence[TopicLedger]) -> Position:
    """Returns the first position that is in no offloaded ledger. Entries after the last closed ledger are not
    considered.
    """
    for each in ledgers:
        if each.offload.state != Offload.COMPLETE and each.last_entry_id >= 0:
            return Position(each.ref.id, 0)
    last = ledgers[-1]
    return Position(last.ref.id, last.last_entry_id + 1)


def _shown(status: str, *, error: str = "", first_left: Position = EARLIEST) -> dict[str, Any]:
    return {"status": status, "lastError": error, "firstUnoffloadedMessage": message_id(first_left)}


def wanted_anew(ledger: TopicLedger, *, location: str, exact: bool, now_ms: int) -> TopicLedger:
    """Calls `offload_state.want`, and clears the error of an earlier attempt so that it is retried."""
    after = want(ledger, location=location, exact=exact, now_ms=now_ms)
    if after.offload.state == Offload.WANTED:
        after.offload.ClearField("error")
    return after


async def _status(call: Call) -> web.Response:
    topic = await persistent(call, "Offload status")
    return answer(process_status((await offload_ledgers(call).of_topic(topic.name)).ledgers))


async def _offload(call: Call) -> web.Response:
    """Marks the ledgers entirely before a message as wanted. Offloaded ledgers and those in progress are
    unchanged.
    """
    before, _, _ = reset_data(await call.json())
    topic = await persistent(call, "Offload")
    policies = topic.policies
    location = policies.offload.location
    if location is None:
        raise Refused(412, policies.offload.missing_location)
    ledgers = offload_ledgers(call)
    now_ms = call.broker.ledgers.clock.wall_ms()
    step = partial(wanted_anew, location=location, exact=policies.offload.exact, now_ms=now_ms)
    wanted = []
    for span in list(topic.ledger.spans.spans):
        if not span.closed or span.last_position >= before:
            break
        try:
            await ledgers.change(topic.name, topic.ledger.creation_id, span.ref.id, step)
        except NoLedgerToOffload:
            continue  # trimmed meanwhile
        except OffloadRefused as error:
            raise Refused(412, str(error)) from error
        wanted.append(span.ref.id)
    log.info("offload of ledgers requested", topic=topic.name.full, ledgers=wanted, to=location)
    with suppress(MagnetarError):  # the request is recorded; the topic sees it at its next refresh
        await topic.ledger.refresh_offload()
    return done()


ROUTES: Final = [
    *owned_topic_routes(
        "GET",
        "offload",
        _status,
        "Get the status of offload: RUNNING while ledgers wait for a job or are being offloaded, ERROR "
        "after a failure.",
        answer="OffloadProcessStatus",
        errors={405: "the topic is partitioned or not persistent"},
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "PUT",
        "offload",
        _offload,
        "Request offload of the closed ledgers before a message; the next job (`magnetar offload run`) "
        "does it.",
        body="MessageId",
        status=204,
        errors={
            405: "the topic is partitioned or not persistent",
            412: "invalid name; no offload target is configured",
        },
        operation=Operation.TOPIC_ADMIN,
    ),
]
