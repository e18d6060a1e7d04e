"""Producers of a topic: connecting, waiting for exclusive access, and disconnecting.

A producer gets exclusive access (`access_modes`) in this order: all others are fenced; everything that they
and earlier producers published is confirmed; the topic epoch is raised; then the holder is notified. So no
message of an earlier producer can be stored after the first message of the new holder, and a holder that has
read the topic to its end has read everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Protocol

from magnetar.broker.client_endings import EndCode
from magnetar.broker.topics.closed_clients import ClosedClient
from magnetar.broker.topics.publish.access_modes import (
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    AccessModes,
    Decision,
    is_stale,
)
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producer_limits import check_encrypts, check_one_more_producer
from magnetar.broker.topics.publish.refused_producers import RefusedProducers
from magnetar.broker.topics.topic_state import TopicState
from magnetar.broker.versions import tell_closed
from magnetar.common.errors import ProducerBusy, ProducerFenced, ServiceNotReady
from magnetar.common.wire import commands


class TopicEpoch(Protocol):
    """Counter of a topic's exclusive producers; the managed ledger stores it for a persistent topic."""

    @property
    def topic_epoch(self) -> int:
        """Epoch of the latest exclusive producer, at least 1; 0 when there never was one."""

    async def raise_topic_epoch(self, at_least: int) -> int:
        """Raises the epoch to the next one, or to `at_least` if that is higher; durable on return."""
        ...


async def _no_quota() -> None:
    return


class Producers(Mapping[str, Producer]):
    """The publishing producers of one topic by name, and the producers that wait for exclusive access."""

    __slots__ = (
        "_by_name",
        "_check_quota",
        "_epoch",
        "_leaving",
        "_on_removed",
        "_refused",
        "_state",
        "access",
    )

    def __init__(
        self,
        state: TopicState,
        epoch: TopicEpoch,
        *,
        refused: RefusedProducers | None = None,
        check_quota: Callable[[], Awaitable[None]] = _no_quota,
        on_removed: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`check_quota` raises ProducerBlocked or ProducerQuotaExceeded while a backlog quota is exceeded.
        `refused`: the broker's recently refused producers, which are delayed; None: no delay. `on_removed` is
        called with each name that is free again.
        """
        self._state = state
        self._epoch = epoch
        self._refused = refused
        self._check_quota = check_quota
        self._on_removed = on_removed
        self._by_name: dict[str, Producer] = {}
        self.access: AccessModes[Producer] | None = None
        """None while no producer has exclusive access, or waits for it."""
        self._leaving: list[asyncio.Event] | None = None
        # Each event is set once everything that a removed producer published is confirmed.

    def __getitem__(self, name: str) -> Producer:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[Producer]:
        return self._by_name.values()

    def items(self) -> ItemsView[str, Producer]:
        return self._by_name.items()

    @property
    def topic_epoch(self) -> int:
        """The epoch of the latest exclusive producer, at least 1; 0 when there never was one."""
        return self._epoch.topic_epoch

    @property
    def waiting(self) -> int:
        """Number of producers that wait for exclusive access."""
        return 0 if self.access is None else len(self.access.waiting)

    @property
    def present(self) -> bool:
        """True while a producer is connected, has exclusive access, or waits for it."""
        return bool(self._by_name or self.access)

    def apply_policies(self) -> None:
        """Disconnects the producers that the current policies do not allow."""
        if self._state.policies.encryption_required:
            for producer in list(self._by_name.values()):
                if not producer.encrypts:
                    self.disconnect(producer, EndCode.ENCRYPTION_REQUIRED)

    def check_connected(self, producer: Producer) -> None:
        """Raises ProducerFenced or ServiceNotReady when the producer was closed meanwhile."""
        self._state.check_open()
        if producer.fenced:
            raise ProducerFenced(f"another producer has taken topic {self._state.name}")
        if producer.closed:
            raise ServiceNotReady(f"the producer was closed while it was added to topic {self._state.name}")

    async def add(self, producer: Producer, waits: Callable[[], None] = lambda: None) -> None:
        """Connects a producer according to its access mode; returns when it may publish.

        Replaces a producer of the same name whose connection is dead. `waits` is called when the producer has
        to wait for exclusive access; all limits are checked again when it gets access. A recently refused
        producer is delayed, for DELAY_S_MAX at most. Raises ProducerBusy, ProducerFenced, ProducerBlocked,
        ProducerQuotaExceeded, ProducerRefused, EncryptionRequired, TopicTerminated, ServiceNotReady,
        StorageError when the epoch cannot be written.
        """
        if self._refused is not None:
            held_s = self._refused.hold_s(self._state.name.full, producer.name)
            if held_s:
                await asyncio.sleep(held_s)
                self.check_connected(producer)
        await self._check_quota()
        self._state.check_accepts_producers()
        check_encrypts(self._state.policies, self._state.name, producer)
        await self._probe_namesake(producer)
        self._state.check_accepts_producers()
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
            topic_epoch=self._epoch.topic_epoch,
            shared=bool(self._by_name),
        )
        if decision is Decision.BUSY:
            raise ProducerBusy(
                f"topic {self._state.name} has an exclusive producer, or one that waits for exclusive access"
            )
        if decision is Decision.FENCED:
            self._forget_access_if_idle()
            raise self._stale(producer) or ProducerFenced(f"topic {self._state.name} already has a producer")
        if decision is Decision.FENCES:
            self._fence(access)
        elif decision is Decision.WAITS:
            await self._wait(producer, waits)
        await self._take(producer)

    async def _probe_namesake(self, producer: Producer) -> None:
        """Removes a producer of the same name if its connection is dead."""
        namesake = self._by_name.get(producer.name)
        if namesake is None:
            return
        if namesake.peer.connected and producer.access_mode != EXCLUSIVE_WITH_FENCING:
            await namesake.peer.is_alive()
            namesake = self._by_name.get(producer.name)
        if namesake is not None and not namesake.peer.connected:
            self.remove(namesake)

    def _join(self, producer: Producer) -> None:
        if producer.name in self._by_name:
            raise ProducerBusy(
                f"producer with name {producer.name!r} is already connected to topic {self._state.name}"
            )
        check_one_more_producer(self._state.policies, self._state.name, self._by_name.values(), producer)
        self._by_name[producer.name] = producer

    def _fence(self, access: AccessModes[Producer]) -> None:
        """Removes all producers but the new holder; their messages that arrive later are ignored."""
        for waiting in access.fence_waiting():
            _promote(waiting, ProducerFenced(f"another producer has taken topic {self._state.name}"))
        for producer in list(self._by_name.values()):
            producer.fenced = True
            self.disconnect(producer, EndCode.FENCED)

    async def _wait(self, producer: Producer, waits: Callable[[], None]) -> None:
        producer.promotion = asyncio.get_running_loop().create_future()
        waits()
        try:
            await producer.promotion
        except BaseException:
            self.remove(producer)
            raise

    async def _take(self, producer: Producer) -> None:
        """Gives the producer exclusive access: raises the epoch once everything published is confirmed."""
        try:
            while unconfirmed := [event for event in self._leaving or () if not event.is_set()]:
                await unconfirmed[0].wait()
            self._leaving = None
            if producer.promotion is not None:
                await self._check_quota()  # the state may have changed during the wait
            self._check_holds(producer)
            stale = self._stale(producer)
            if stale is not None:
                raise stale
            if not producer.topic_epoch or producer.topic_epoch > self._epoch.topic_epoch:
                epoch = await self._epoch.raise_topic_epoch(producer.topic_epoch)
                self._check_holds(producer)
                producer.topic_epoch = epoch
        except BaseException:
            self.remove(producer)
            raise
        self._by_name[producer.name] = producer

    def _check_holds(self, producer: Producer) -> None:
        self._state.check_accepts_producers()
        check_encrypts(self._state.policies, self._state.name, producer)
        if self.access is None or self.access.holder is not producer:
            raise ProducerFenced(f"another producer has taken topic {self._state.name}")

    def _stale(self, producer: Producer) -> ProducerFenced | None:
        if not is_stale(producer.topic_epoch, self._epoch.topic_epoch):
            return None
        return ProducerFenced(
            f"the epoch of topic {self._state.name} is {self._epoch.topic_epoch - 1} and that of the "
            f"producer is {producer.topic_epoch - 1}: another one had the topic in between"
        )

    def remove(self, producer: Producer) -> None:
        """Removes a producer, waiting or not; its pending runs are still confirmed. Idempotent."""
        producer.closed = True
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
            if producer.pending_runs:
                still = [event for event in self._leaving or () if not event.is_set()]
                self._leaving = [*still, producer.idle()]
        _promote(producer, ServiceNotReady("the producer was closed while it waited"))
        if self.access is not None:
            promoted = self.access.leave(producer, shared=bool(self._by_name))
            if promoted is not None:
                _promote(promoted, None)
            self._forget_access_if_idle()
        if producer.name not in self._by_name:
            self._on_removed(producer.name)

    def disconnect(self, producer: Producer, code: EndCode) -> None:
        """Removes a producer and notifies its client; the connection of a client too old for that is
        closed.
        """
        producer.detach(code)
        self.remove(producer)
        tell_closed(producer.peer, commands.close_producer(producer.producer_id))

    def disconnect_all(self, code: EndCode) -> None:
        """Disconnects all producers, including those that wait for exclusive access."""
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove(waiting)
        for producer in list(self._by_name.values()):
            self.disconnect(producer, code)

    def close_all(self) -> list[ClosedClient]:
        """Removes all producers without notifying those that may publish; the caller notifies them later."""
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove(waiting)
        closed = []
        for producer in list(self._by_name.values()):
            producer.detach(EndCode.MOVED)
            self.remove(producer)
            closed.append(ClosedClient(producer.peer, producer.producer_id, commands.close_producer))
        return closed

    async def wait_persisted(self) -> None:
        """Waits until everything published so far is confirmed, or the topic is lost."""
        pending = [producer.idle() for producer in self._by_name.values() if producer.pending_runs]
        for confirmed in [*(self._leaving or ()), *pending]:
            await confirmed.wait()

    def lose(self) -> None:
        """Gives up on all unconfirmed runs: the topic is lost."""
        for producer in self._by_name.values():
            producer.give_up()
        for confirmed in self._leaving or ():
            confirmed.set()
        for waiting in list(self.access.waiting) if self.access is not None else ():
            self.remove(waiting)

    def _forget_access_if_idle(self) -> None:
        if self.access is not None and self.access.idle:
            self.access = None


def _promote(producer: Producer, error: Exception | None) -> None:
    """Ends a producer's wait for exclusive access, unless it has ended already."""
    promotion = producer.promotion
    if promotion is None or promotion.done():
        return
    if error is None:
        promotion.set_result(None)
    else:
        promotion.set_exception(error)
