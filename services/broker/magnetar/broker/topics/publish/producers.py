"""A topic's producers: how they come to it, wait for it, and go.

Where a producer holds the topic alone (`access_modes`), the order is: all others are fenced, what they and
those before them had on its way is confirmed, the epoch goes up, and only then the holder hears that it is
ready. So nothing of a former one can come behind the first message of the new one, and the new one that
reads the topic to its end has read everything.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.topics.closed_clients import Departed
from magnetar.broker.topics.publish.access_modes import (
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    AccessModes,
    Decision,
    is_stale,
)
from magnetar.broker.topics.publish.client_refusals import RefusedMessage, ways_of
from magnetar.broker.topics.publish.pending_publish import REFUSED_MESSAGES, Refusals, storage_errors
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishGate, PublishLimits, TerminatedGate
from magnetar.broker.topics.subscribe.consumer_limits import check_encrypts, check_one_more_producer
from magnetar.broker.versions import tell_closed
from magnetar.common.errors import (
    ProducerBusy,
    ProducerFenced,
    ServiceNotReady,
    StorageError,
    TopicTerminated,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.pulsar_pb2 import ServerError


class Publishers(ABC):
    """The part of a topic that knows its producers."""

    __slots__ = (
        "_leaving",
        "_publish_limits",
        "_refusals",
        "access",
        "closing",
        "gate",
        "name",
        "policies",
        "producers",
    )

    def __init__(
        self, name: TopicName, policies: EffectivePolicies, publish_limits: PublishLimits | None
    ) -> None:
        """`publish_limits`: None leaves limits on what is published out of it."""
        self._publish_limits = publish_limits
        self.gate: PublishGate | TerminatedGate | None = (
            None if publish_limits is None else publish_limits.gate(policies)
        )
        """What messages have to pass; None where they are free to come."""
        self._refusals: Refusals | None = None
        self.name = name
        self.policies = policies
        """Those that hold now; shared with the namespace's other topics that have none of their own."""
        self.producers: dict[str, Producer] = {}
        """Those that may publish, by name."""
        self.closing = False
        self.access: AccessModes[Producer] | None = None
        """None while nobody holds the topic alone, or wants to."""
        self._leaving: list[asyncio.Event] | None = None
        # Set once what a producer had on its way when it went is confirmed.

    @property
    @abstractmethod
    def topic_epoch(self) -> int:
        """That of its latest exclusive producer, at least 1; 0 when there never was one."""

    @abstractmethod
    async def raise_topic_epoch(self, at_least: int) -> int:
        """A new exclusive producer: the next epoch, or `at_least` if that is more; it holds on return."""

    async def check_quota(self) -> None:
        """Raises ProducerBlocked or ProducerQuotaExceeded while a backlog quota keeps producers out."""
        return

    @property
    def producer_count(self) -> int:
        return len(self.producers)

    @property
    def waiting_publishers(self) -> int:
        """How many producers wait until the topic is theirs alone."""
        return 0 if self.access is None else len(self.access.waiting)

    @property
    def times_rate_limited(self) -> int:
        """Times that a publish rate kept a producer's connection unread, since there is such a rate."""
        return self.gate.times_limited if isinstance(self.gate, PublishGate) else 0

    def check_open(self) -> None:
        """Raises ServiceNotReady when the topic is going away."""
        if self.closing:
            raise ServiceNotReady(f"topic {self.name} is being closed; look it up again")

    def apply_policies(self, policies: EffectivePolicies) -> None:
        """Other policies hold from now on. Called from the event loop, also when nothing differs."""
        self.policies = policies
        if self._publish_limits is not None and not isinstance(self.gate, TerminatedGate):
            self.gate = self._publish_limits.gate(policies, self.gate)
        if policies.encryption_required:
            for producer in list(self.producers.values()):
                if not producer.encrypts:
                    self.disconnect_producer(producer)

    @property
    def deduplicates(self) -> bool:
        """Whether a sequence id that a producer name has published is not taken again."""
        return False

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id of a producer name; -1 when it is not kept or none is known."""
        return -1

    def _check_publishing(self) -> None:
        self.check_open()
        if isinstance(self.gate, TerminatedGate):
            raise TopicTerminated(f"topic {self.name} was terminated: it takes no more producers")

    def check_connected(self, producer: Producer) -> None:
        """Raises ProducerFenced or ServiceNotReady when it was sent away meanwhile."""
        self.check_open()
        if producer.fenced:
            raise ProducerFenced(f"another producer has taken topic {self.name}")
        if producer.closed:
            raise ServiceNotReady(f"the producer was closed while it was added to topic {self.name}")

    # -- coming

    async def add_producer(self, producer: Producer, waits: Callable[[], None] = lambda: None) -> None:
        """Connect a producer as its access mode says; returns when it may publish.

        Its name is free, or its holder is dead and replaced. `waits` is called when the producer has to wait
        for the topic, and what forbids a producer is looked at again when it has it. One whose messages were
        refused just before waits as well, for DELAY_S_MAX at most. Raises ProducerBusy, ProducerFenced,
        ProducerBlocked, ProducerQuotaExceeded, ProducerRefused, EncryptionRequired, TopicTerminated,
        ServiceNotReady, and what the epoch's being written raises.
        """
        if self._publish_limits is not None:
            held_s = self._publish_limits.refused.hold_s(self.name.full, producer.name)
            if held_s:
                await asyncio.sleep(held_s)
                self.check_connected(producer)
        await self.check_quota()
        self._check_publishing()
        check_encrypts(self.policies, self.name, producer)
        await self._probe_namesake(producer)
        self._check_publishing()
        self.check_connected(producer)
        access = self.access
        if access is None:
            if producer.access_mode == SHARED:
                self._join(producer)
                return
            access = self.access = AccessModes()
        decision = access.arrive(
            producer,
            producer.access_mode,
            claimed_epoch=producer.topic_epoch,
            topic_epoch=self.topic_epoch,
            shared=bool(self.producers),
        )
        if decision is Decision.BUSY:
            raise ProducerBusy(f"topic {self.name} has an exclusive producer, or one that waits to be it")
        if decision is Decision.FENCED:
            self._forget_access_if_idle()
            raise self._stale(producer) or ProducerFenced(f"topic {self.name} has a producer already")
        if decision is Decision.FENCES:
            self._fence(access)
        elif decision is Decision.WAITS:
            await self._wait(producer, waits)
        await self._take(producer)

    async def _probe_namesake(self, producer: Producer) -> None:
        """Before anybody is refused because of a namesake: one that is dead goes."""
        namesake = self.producers.get(producer.name)
        if namesake is None:
            return
        if namesake.peer.connected and producer.access_mode != EXCLUSIVE_WITH_FENCING:
            await namesake.peer.is_alive()
            namesake = self.producers.get(producer.name)
        if namesake is not None and not namesake.peer.connected:
            self.remove_producer(namesake)

    def _join(self, producer: Producer) -> None:
        if producer.name in self.producers:
            raise ProducerBusy(
                f"producer with name {producer.name!r} is already connected to topic {self.name}"
            )
        check_one_more_producer(self.policies, self.name, self.producers.values(), producer)
        self.producers[producer.name] = producer

    def _fence(self, access: AccessModes[Producer]) -> None:
        """Everybody but the new holder goes; what is still on its way from them is not taken."""
        for waiting in access.fence_waiting():
            _promote(waiting, ProducerFenced(f"another producer has taken topic {self.name}"))
        for producer in list(self.producers.values()):
            producer.fenced = True
            self.disconnect_producer(producer)

    async def _wait(self, producer: Producer, waits: Callable[[], None]) -> None:
        producer.promotion = asyncio.get_running_loop().create_future()
        waits()
        try:
            await producer.promotion
        except BaseException:
            self.remove_producer(producer)
            raise

    async def _take(self, producer: Producer) -> None:
        """The producer holds the topic; make it so for everybody."""
        try:
            while unconfirmed := [event for event in self._leaving or () if not event.is_set()]:
                await unconfirmed[0].wait()
            self._leaving = None
            if producer.promotion is not None:
                await self.check_quota()  # much may have changed while it waited
            self._check_holds(producer)
            stale = self._stale(producer)
            if stale is not None:
                raise stale
            if not producer.topic_epoch or producer.topic_epoch > self.topic_epoch:
                epoch = await self.raise_topic_epoch(producer.topic_epoch)
                self._check_holds(producer)
                producer.topic_epoch = epoch
        except BaseException:
            self.remove_producer(producer)
            raise
        self.producers[producer.name] = producer

    def _check_holds(self, producer: Producer) -> None:
        self._check_publishing()
        check_encrypts(self.policies, self.name, producer)
        if self.access is None or self.access.holder is not producer:
            raise ProducerFenced(f"another producer has taken topic {self.name}")

    def _stale(self, producer: Producer) -> ProducerFenced | None:
        if not is_stale(producer.topic_epoch, self.topic_epoch):
            return None
        return ProducerFenced(
            f"the epoch of topic {self.name} is {self.topic_epoch - 1} and that of the producer is "
            f"{producer.topic_epoch - 1}: another one had the topic in between"
        )

    # -- going

    def remove_producer(self, producer: Producer) -> None:
        """Disconnect a producer, or one that waits; what it has pending is still confirmed. Idempotent."""
        producer.closed = True
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            if producer.pending_runs:
                still = [event for event in self._leaving or () if not event.is_set()]
                self._leaving = [*still, producer.idle()]
        _promote(producer, ServiceNotReady("the producer was closed while it waited"))
        if self.access is not None:
            promoted = self.access.leave(producer, shared=bool(self.producers))
            if promoted is not None:
                _promote(promoted, None)
            self._forget_access_if_idle()

    def disconnect_producer(self, producer: Producer) -> None:
        """Tell a producer's client that the broker closed it; the connection stays if it can be told."""
        producer.detach()
        self.remove_producer(producer)
        tell_closed(producer.peer, commands.close_producer(producer.producer_id))

    def refuse(self, producer: Producer, messages: Sequence[RefusedMessage]) -> None:
        """Take nothing more of a producer until it is opened anew: these messages of it may not be taken.

        Its client is told behind the answers to all that came before them. What it has sent behind them
        meanwhile it sends again, to the producer that it opens then.
        """
        if producer.closed:
            return
        first, last = messages[0], messages[-1]
        self._note_refused(producer, first.code, len(messages), first.reason)
        ways = ways_of(producer.client_version)
        if self._publish_limits is not None:
            self._publish_limits.refused.note_messages(
                self.name.full,
                producer.name,
                first.sequence_id,
                last.sequence_id,
                first.reason,
                fails_next=not ways.fails_one,
            )
        self._send_away(producer, ways.errors(producer.producer_id, messages), ways.closed_after_s)

    def refuse_for_storage(self, producer: Producer, sends: SendRun, error: StorageError) -> None:
        """As `refuse`, of a run that storage did not take."""
        self.note_storage_refusal(producer, len(sends.entries), error)
        if not producer.closed:
            self._send_away(producer, storage_errors(producer, sends, error))

    def note_storage_refusal(self, producer: Producer, entries: int, error: StorageError) -> None:
        """So many entries of a producer are certainly not stored."""
        self._note_refused(producer, code_of(error), entries, str(error))
        if self._publish_limits is not None and not producer.closed:
            self._publish_limits.refused.note_storage(self.name.full, producer.name, str(error))

    def _note_refused(
        self, producer: Producer, code: ServerError.ValueType, entries: int, reason: str
    ) -> None:
        REFUSED_MESSAGES.labels(ServerError.Name(code)).inc(entries)
        if self._publish_limits is not None:
            if self._refusals is None:
                self._refusals = Refusals(self.name.full, self._publish_limits.clock)
            self._refusals.note(producer.name, entries, reason)

    def send_away(self, producer: Producer) -> None:
        """Close a producer whose pending messages are refused; each is answered before it hears so."""
        if producer.last_words is not None:
            producer.last_words = (
                b""  # a message before the one of which they say that it was refused is, too
            )
        elif not producer.closed:
            self._send_away(producer, b"")

    def _send_away(self, producer: Producer, last_words: bytes, closed_after_s: float = 0.0) -> None:
        producer.detach()
        self.remove_producer(producer)
        producer.part(last_words, closed_after_s)

    def disconnect_producers(self) -> None:
        """The topic closes: all of them go, those that wait as well."""
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove_producer(waiting)
        for producer in list(self.producers.values()):
            self.disconnect_producer(producer)

    def depart_producers(self) -> list[Departed]:
        """As `disconnect_producers`, and whoever may publish now is told by the caller, later."""
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove_producer(waiting)
        departed = []
        for producer in list(self.producers.values()):
            producer.detach()
            self.remove_producer(producer)
            departed.append(Departed(producer.peer, producer.producer_id, commands.close_producer))
        return departed

    async def wait_persisted(self) -> None:
        """Return once all that was taken so far is confirmed, or the topic is lost."""
        pending = [producer.idle() for producer in self.producers.values() if producer.pending_runs]
        for confirmed in [*(self._leaving or ()), *pending]:
            await confirmed.wait()

    def lose_producers(self) -> None:
        """The topic is lost: nobody waits any more for what is on its way."""
        for producer in self.producers.values():
            producer.give_up()
        for confirmed in self._leaving or ():
            confirmed.set()
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove_producer(waiting)

    def _forget_access_if_idle(self) -> None:
        if self.access is not None and self.access.idle:
            self.access = None


def _promote(producer: Producer, error: Exception | None) -> None:
    """Tell one that waits what became of it; the first word counts."""
    promotion = producer.promotion
    if promotion is None or promotion.done():
        return
    if error is None:
        promotion.set_result(None)
    else:
        promotion.set_exception(error)
