"""Ends transactions in topics of all brokers of the cluster, and asks coordinators about transactions.

Ends for one broker are collected for a turn of the loop and travel in one call. Metadata names the owner of
each topic; the called broker checks that for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from magnetar.broker.control.transaction_messages import read_result, read_statuses, write_end, write_ids
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.transactions.coordinator_topic import coordinator_partition
from magnetar.broker.transactions.participants import EndOutcome, EndResult, Participants, TransactionEnd
from magnetar.broker.transactions.status import Statuses, TransactionStatuses
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_pb2 import EndTransactionsRequest, TransactionEndResult
from magnetar.common.control.methods import END_TRANSACTIONS, TRANSACTION_STATUS
from magnetar.common.errors import InvalidName, MagnetarError, NamespaceNotFound
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.runtime.task_owner import TaskOwner

ENDS_PER_CALL_MAX: Final = 500
"""Maximum ends in one call."""

ANSWER_WITHIN_MS: Final = 200
"""Milliseconds after which a call is answered, with the ends that are not over as under way, so that one slow
topic does not hold back the others.
"""

_GONE: Final = EndResult(EndOutcome.GONE)
_STOPPING: Final = EndResult(EndOutcome.RETRY, reason="this broker is shutting down")


class _Waiting:
    """One end that waits for its result."""

    __slots__ = ("end", "result", "until")

    def __init__(self, end: TransactionEnd, until: float) -> None:
        self.end = end
        self.until = until
        self.result: asyncio.Future[EndResult] = asyncio.get_running_loop().create_future()

    def settle(self, result: EndResult) -> None:
        if not self.result.done():
            self.result.set_result(result)


class _Peer:
    """The ends for one run of one broker."""

    __slots__ = ("broker", "in_flight", "scheduled", "waiting")

    def __init__(self, broker: BrokerRegistration) -> None:
        self.broker = broker
        self.waiting: deque[_Waiting] = deque()
        self.in_flight = 0
        self.scheduled = False


class TransactionPeers:
    """Implements `Participants` and `Statuses` over a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        client: ControlClient,
        here: Participants,
        statuses_here: Statuses,
        *,
        requests_max: int,
        timeout_s: float,
    ) -> None:
        """`here` and `statuses_here` serve the topics and coordinators of this broker. `requests_max` bounds
        the ends in flight to one broker; `timeout_s` is how long an end may take, in seconds.
        """
        self._cluster = cluster
        self._client = client
        self._here = here
        self._statuses_here = statuses_here
        self._tasks = TaskOwner("transaction peers")
        self._closed = False
        self._requests_max = requests_max
        self._timeout_s = timeout_s
        self._peers: dict[tuple[str, int], _Peer] = {}
        """Brokers with ends that wait or are in flight."""

    async def close(self) -> None:
        """Gives up on ends that wait: they are to be retried. Idempotent."""
        self._closed = True
        await self._tasks.close()
        for peer in list(self._peers.values()):
            self._flush(peer)

    async def end(self, ends: Sequence[TransactionEnd]) -> list[EndResult]:
        """See `Participants`."""
        if len(ends) == 1:
            return [await self._end(ends[0])]
        return list(await asyncio.gather(*map(self._end, ends)))

    async def status(self, coordinator_id: int, transactions: Sequence[TxnId]) -> TransactionStatuses:
        """See `Statuses`. An unowned coordinator is assigned first."""
        owner = await self._cluster.ownership.finder.find(coordinator_partition(coordinator_id))
        if self._is_this(owner):
            return await self._statuses_here.status(coordinator_id, transactions)
        answer = await self._client.call(owner, TRANSACTION_STATUS, write_ids(transactions))
        return read_statuses(transactions, answer)

    async def _end(self, end: TransactionEnd) -> EndResult:
        timeout_s = self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                owner = await self._owner(TopicName.parse(end.topic))
                if self._is_this(owner):
                    return (await self._here.end((end,)))[0]
                return await self._send(owner, end, timeout_s)
        except TimeoutError:
            return EndResult(EndOutcome.RETRY, reason=f"no result within {timeout_s:g} s")
        except (NamespaceNotFound, InvalidName):
            return _GONE
        except MagnetarError as error:
            return EndResult(EndOutcome.RETRY, reason=f"{type(error).__name__}: {error}")

    async def _owner(self, topic: TopicName) -> BrokerRegistration:
        finder = self._cluster.ownership.finder
        bundle = finder.rings.bundle_of(topic)
        found = None if bundle is None else finder.owner(topic.namespace, bundle)
        return found or await finder.find(topic)

    def _is_this(self, broker: BrokerRegistration) -> bool:
        return self._cluster.presence.is_run(broker.broker_id, broker.run)

    async def _send(self, broker: BrokerRegistration, end: TransactionEnd, timeout_s: float) -> EndResult:
        key = (broker.broker_id, broker.run)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = _Peer(broker)
        waiting = _Waiting(end, asyncio.get_running_loop().time() + timeout_s)
        peer.waiting.append(waiting)
        self._schedule(peer)
        return await waiting.result

    def _schedule(self, peer: _Peer) -> None:
        if not peer.scheduled:
            peer.scheduled = True
            asyncio.get_running_loop().call_soon(self._flush, peer)

    def _flush(self, peer: _Peer) -> None:
        """Sends what waits, as far as the limit of ends in flight allows."""
        peer.scheduled = False
        if self._closed:
            while peer.waiting:
                peer.waiting.popleft().settle(_STOPPING)
        while peer.waiting and peer.in_flight < self._requests_max:
            room = min(ENDS_PER_CALL_MAX, self._requests_max - peer.in_flight)
            sent: list[_Waiting] = []
            while peer.waiting and len(sent) < room:
                waiting = peer.waiting.popleft()
                if not waiting.result.done():  # else its caller no longer waits
                    sent.append(waiting)
            if sent:
                peer.in_flight += len(sent)
                self._tasks.spawn(self._call(peer, sent), f"end transactions on {peer.broker.broker_id}")
        if not peer.waiting and not peer.in_flight:
            self._peers.pop((peer.broker.broker_id, peer.broker.run), None)

    async def _call(self, peer: _Peer, sent: list[_Waiting]) -> None:
        timeout_s = self._timeout_s
        request = EndTransactionsRequest(
            ends=[write_end(each.end) for each in sent],
            answer_within_ms=min(ANSWER_WITHIN_MS, int(timeout_s * 500)),
        )
        again: list[_Waiting] = []
        try:
            answer = await self._client.call(peer.broker, END_TRANSACTIONS, request, deadline_s=timeout_s)
            for waiting, result in zip(sent, answer.results, strict=True):
                if result.outcome == TransactionEndResult.UNDER_WAY:
                    again.append(waiting)
                else:
                    waiting.settle(read_result(result))
        except MagnetarError as error:
            failed = EndResult(EndOutcome.RETRY, reason=f"{type(error).__name__}: {error}")
            for waiting in sent:
                waiting.settle(failed)
        finally:
            for waiting in sent:
                if waiting not in again:
                    waiting.settle(_STOPPING)
            peer.in_flight -= len(sent)
            now = asyncio.get_running_loop().time()
            peer.waiting.extendleft(each for each in reversed(again) if each.until > now)
            self._flush(peer)
