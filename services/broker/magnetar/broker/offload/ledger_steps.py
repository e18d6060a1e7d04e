"""Offload steps of ledgers: wanted, begun, completed, failed.

Every step is recorded in metadata, so that jobs can call any broker of a cluster.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from magnetar.broker.offload.attempt_metrics import count_completed, count_failed
from magnetar.broker.offload.held_ledgers import is_held, why_held
from magnetar.broker.offload.ledger_messages import BookiesOf, ledger_message
from magnetar.broker.offload.topic_names import TopicNames
from magnetar.broker.offload_policy.location import normalized
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import read_instance_id
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_pb2 import (
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    FailRequest,
    FailResponse,
    Ledger,
    State,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    HeldByTransaction,
    NoLedgerToOffload,
    OnlyCopy,
)
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.ledger.cold.layout import attempt_path
from magnetar.ledger.managed_ledger import offload_progress, offload_state
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_objects_intents
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers, Step, TopicLedgers

log = get_logger(__name__)

WANTED_MAX: Final = 1_000
"""Maximum ledgers in one Wanted response."""

ANSWER_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of ledgers in one Wanted or Want response; the rest is left out."""


class LedgerSteps:
    """Offload steps of ledgers, stored in metadata: any broker can execute them."""

    def __init__(
        self,
        context: ManagedLedgerContext,
        topics: TopicRegistry,
        policies: PolicyStore,
        ledgers: OffloadLedgers,
        names: TopicNames,
        bookies: BookiesOf,
        passes: asyncio.Semaphore,
        stale_after_ms: Callable[[], int],
    ) -> None:
        """`passes` bounds the concurrent calls that read the ledgers of all topics."""
        self._context = context
        self._metadata = context.metadata
        self._keys = context.keys
        self._clock = context.clock
        self._policies = policies
        self._stale_after_ms = stale_after_ms
        self._topics = topics
        self._passes = passes
        self._ledgers = ledgers
        self._names = names
        self._bookies = bookies

    async def wanted(self, request: WantedRequest) -> WantedResponse:
        most = min(request.most or WANTED_MAX, WANTED_MAX)
        now_ms, stale_after_ms = self._clock.wall_ms(), self._stale_after_ms()
        waiting: list[tuple[int, str, int, TopicLedgers, TopicLedger]] = []
        more = False
        async with self._passes:
            async for found in self._topics_of(request.topics):
                waiting += [
                    (ledger.offload.wanted_ms, found.topic.full, ledger.ref.id, found, ledger)
                    for ledger in found.ledgers
                    if offload_state.waits(ledger, now_ms, stale_after_ms)
                ]
                if len(waiting) > 2 * most:
                    waiting, more = _oldest(waiting, most), True
        response = WantedResponse(more=more or len(waiting) > most)
        byte_length = 0
        async for *_, found, ledger in iterate_cooperatively(_oldest(waiting, most)):
            message = ledger_message(found.topic, found.creation_id, ledger)
            byte_length += message.ByteSize()
            if response.ledgers and byte_length > ANSWER_BYTES_MAX:
                response.more = True
                break
            response.ledgers.append(message)
        return response

    async def want(self, request: WantRequest) -> WantResponse:
        topic = await self._names.persistent(request.topic)
        location, exact = await self._place(topic, request)
        found = await self._ledgers.of_topic(topic)
        step = partial(offload_state.want, location=location, exact=exact, now_ms=self._clock.wall_ms())
        response = WantResponse()
        count = byte_length = 0
        for ledger in found.ledgers:
            if not _before(ledger, request) or ledger.last_entry_id < 0:
                continue
            if offload_state.is_complete(ledger) and not (
                request.again and await self._once_more(topic, found.creation_id, ledger)
            ):
                continue
            try:
                message, _ = await self._step(topic, found.creation_id, ledger.ref.id, step)
            except NoLedgerToOffload:
                continue  # trimmed meanwhile
            if message.offload.state != State.COMPLETE:
                count += 1
                byte_length += message.ByteSize()
                if byte_length <= ANSWER_BYTES_MAX:
                    response.ledgers.append(message)
        log.info("offload of ledgers requested", topic=topic.full, ledgers=count, location=location)
        return response

    async def begin(self, request: BeginRequest) -> BeginResponse:
        topic = await self._same_topic(request.topic, request.creation_id, request.ledger_id)
        if len(request.attempt) != offload_state.ATTEMPT_BYTES:
            raise AttemptOver(f"an attempt id has 16 random bytes, not {len(request.attempt)}")
        self._check_settled(topic, request)
        step = partial(
            offload_state.begin,
            attempt=request.attempt,
            path=attempt_path(topic, request.ledger_id, request.attempt),
            now_ms=self._clock.wall_ms(),
            stale_after_ms=self._stale_after_ms(),
        )
        message, ledger = await self._step(topic, request.creation_id, request.ledger_id, step)
        message.instance_id = await read_instance_id(self._metadata, self._keys)
        await self._bookies.fill([(message, ledger)])
        log.debug("offload begun", topic=topic.full, ledger=request.ledger_id, attempt=request.attempt.hex())
        return BeginResponse(ledger=message)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        topic = await self._same_topic(request.topic, request.creation_id, request.ledger_id)
        step = partial(
            offload_state.complete,
            attempt=request.attempt,
            entries=request.entries,
            rows=request.rows,
            raw_entries=request.raw_entries,
            object_bytes=request.object_bytes,
            manifest_sha256=request.manifest_sha256,
            now_ms=self._clock.wall_ms(),
        )
        message, _ = await self._step(topic, request.creation_id, request.ledger_id, step)
        count_completed(request)
        log.info(
            "ledger offloaded",
            topic=topic.full,
            ledger=request.ledger_id,
            entries=request.entries,
            rows=request.rows,
            raw_entries=request.raw_entries,
            object_bytes=request.object_bytes,
            attempt=request.attempt.hex(),
        )
        return CompleteResponse(ledger=message)

    async def fail(self, request: FailRequest) -> FailResponse:
        topic = await self._same_topic(request.topic, request.creation_id, request.ledger_id)
        step = partial(
            offload_state.fail,
            attempt=request.attempt,
            reason=request.reason,
            now_ms=self._clock.wall_ms(),
        )
        message, _ = await self._step(topic, request.creation_id, request.ledger_id, step)
        count_failed(topic)
        log.warning(
            "offload failed",
            topic=topic.full,
            ledger=request.ledger_id,
            attempt=request.attempt.hex(),
            failures=message.offload.failures,
            reason=message.offload.error,
        )
        return FailResponse()

    # --- inside ---

    async def _topics_of(self, names: Sequence[str]) -> AsyncIterator[TopicLedgers]:
        if not names:
            async for found in self._ledgers.everywhere():
                yield found
        for name in dict.fromkeys(names):
            yield await self._ledgers.of_topic(await self._names.persistent(name))

    async def _same_topic(self, name: str, creation_id: int, ledger_id: int) -> TopicName:
        """Returns the topic if it still has the creation id of the job's request."""
        topic = await self._names.persistent(name)
        now = await self._ledgers.creation_id(topic)
        if now != creation_id:
            raise NoLedgerToOffload(
                f"topic {topic} was deleted and recreated since (creation id {now}, not {creation_id}): it "
                f"has no ledger {ledger_id}"
            )
        return topic

    def _check_settled(self, topic: TopicName, request: BeginRequest) -> None:
        """Raises HeldByTransaction if this broker knows that the ledger is. Others do not know: jobs ask the
        owner first.
        """
        loaded = self._topics.loaded.get(topic.full)
        if not isinstance(loaded, PersistentTopic) or loaded.ledger.creation_id != request.creation_id:
            return
        span = loaded.ledger.spans.by_id.get(request.ledger_id)
        if span is not None and is_held(loaded.ledger, span):
            raise HeldByTransaction(
                f"ledger {request.ledger_id} of {topic} {why_held(loaded.ledger)}: it is offloaded after that"
            )

    async def _step(
        self, topic: TopicName, creation_id: int, ledger_id: int, step: Step
    ) -> tuple[Ledger, TopicLedger]:
        after = await self._ledgers.change(topic, creation_id, ledger_id, step)
        await self._let_know(topic, ledger_id)
        return ledger_message(topic, creation_id, after), after

    async def _once_more(self, topic: TopicName, creation_id: int, ledger: TopicLedger) -> bool:
        """Requests a new offload of completed objects and the deletion of the old ones; returns False when
        bookies no longer store the entries, or a job is already offloading them.
        """
        step = partial(
            offload_state.again,
            attempt=ledger.offload.attempt,
            error="",
            now_ms=self._clock.wall_ms(),
        )
        try:
            await self._ledgers.change(
                topic,
                creation_id,
                ledger.ref.id,
                step,
                lambda after: delete_objects_intents(self._context, after),
            )
        except (OnlyCopy, AttemptOver, NoLedgerToOffload):
            return False
        return True

    async def _let_know(self, topic: TopicName, ledger_id: int) -> None:
        """Updates the loaded topic at once, before its next refresh from metadata."""
        loaded = self._topics.loaded.get(topic.full)
        if not isinstance(loaded, PersistentTopic):
            return
        span = loaded.ledger.spans.by_id.get(ledger_id)
        if span is not None:
            try:
                await offload_progress.refresh(self._context, loaded.ledger.creation_id, span)
            except MagnetarError as error:
                log.debug("cannot refresh a topic's offload state", topic=topic.full, reason=str(error))

    async def _place(self, topic: TopicName, request: WantRequest) -> tuple[str, bool]:
        """Returns the location and whether to keep entries verbatim, from the request or else the
        policies.
        """
        policies = await self._policies.of_topic(topic)
        exact = request.exact if request.HasField("exact") else policies.offload.exact
        if request.location:
            try:
                return normalized(request.location), exact
            except ConfigError as error:
                raise BadLocation(str(error)) from error
        if policies.offload.location is None:
            raise BadLocation(policies.offload.missing_location)
        return policies.offload.location, exact


def _before(ledger: TopicLedger, request: WantRequest) -> bool:
    """Returns whether the ledger lies wholly before the requested position."""
    if not request.before_ledger_id and not request.before_entry_id:
        return True
    return (ledger.ref.id, ledger.last_entry_id) < (request.before_ledger_id, request.before_entry_id)


def _oldest(
    waiting: list[tuple[int, str, int, TopicLedgers, TopicLedger]], most: int
) -> list[tuple[int, str, int, TopicLedgers, TopicLedger]]:
    return heapq.nsmallest(most, waiting, key=lambda each: each[:3])
