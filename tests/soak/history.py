"""Everything that was confirmed and delivered, and what may be said against it.

One `Subscription` sees each message of one topic for one subscription. Nothing in it is judged by how long
something took: where two connections race, a rule is applied only to what the server is known to have written
afterwards (`written_since`, the moment of a ping that it has answered on the same connection).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
ORDERED: tuple[Kind, ...] = ("Exclusive", "Failover")
KINDS: tuple[Kind, ...] = ("Exclusive", "Failover", "Shared", "Key_Shared")

Position = tuple[int, int]


class Violation(AssertionError):
    """A promise that was broken."""


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer of a subscription as the checker sees it."""

    name: str
    pending: dict[Position, str] = field(default_factory=dict)
    """Delivered and neither acknowledged nor given back, with the key."""
    permits: int = 0
    last: Position = (-1, -1)
    rewinds: int = 1
    """How often what comes may begin anew at an earlier position."""
    here: bool = True


@dataclass(slots=True)
class GivenBack:
    """A message that a consumer wants redelivered."""

    known_at: float = float("inf")
    """The server knows since then."""


@dataclass(slots=True)
class _Order:
    """Confirmed messages of one key that were not delivered yet, and the last one that was."""

    last: Position = (-1, -1)
    waiting: list[Position] = field(default_factory=list)


class Subscription:
    """The history of one subscription of one topic. Each method may raise Violation."""

    def __init__(self, topic: str, name: str, kind: Kind) -> None:
        self.topic = topic
        self.name = name
        self.kind = kind
        self.consumers: list[Consumer] = []
        self.delivered: set[Position] = set()
        self.deliveries = 0
        self.acknowledged: dict[Position, float] = {}
        """When the acknowledgement was known to be durable."""
        self._confirmed: dict[Position, str] = {}
        self._in_place: list[Position] = []
        """Confirmed, sorted; of ordered kinds."""
        self._settled = 0
        """So many of them, from the front, were acknowledged by somebody."""
        self._acknowledged_to: Position = (-1, -1)
        self._sent: set[Position] = set()
        """Somebody sent an acknowledgement of it, whatever came of that."""
        self._orders: dict[str, _Order] = defaultdict(_Order)
        self._returned: dict[str, dict[Position, GivenBack]] = defaultdict(dict)
        """By key: given back, and not delivered again."""

    def __repr__(self) -> str:
        return f"{self.kind} {self.name} of {self.topic}"

    # -- publishing

    def confirmed(self, position: Position, key: str) -> None:
        """A publish has its receipt."""
        if position in self._confirmed:
            raise Violation(f"{self}: two messages were confirmed at {position}")
        self._confirmed[position] = key
        if self.kind in ORDERED:
            insort(self._in_place, position)
            self._settled = min(self._settled, bisect_left(self._in_place, position))
        elif self.kind == "Key_Shared" and position not in self.delivered:
            heapq.heappush(self._orders[key].waiting, position)

    # -- consumers

    def joined(self, consumer: Consumer) -> None:
        """Success of a Subscribe."""
        if self.kind == "Exclusive" and self.consumers:
            raise Violation(f"{self}: {consumer.name} joined while {self.consumers[0].name} holds it")
        self.consumers.append(consumer)

    def left(self, consumer: Consumer) -> None:
        """The consumer goes: before it says so, or its connection is cut."""
        consumer.here = False
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        consumer.pending.clear()

    def acknowledging(self, positions: list[Position], *, cumulative: bool = False) -> None:
        """The consumer is about to acknowledge these; a cumulative one stands for all before it too."""
        self._sent.update(positions)
        if cumulative:
            self._acknowledged_to = max(self._acknowledged_to, *positions)

    def given_back(self, consumer: Consumer, positions: list[Position]) -> list[GivenBack]:
        """The consumer is about to ask for redelivery; the caller notes when the server must know."""
        returned = []
        for position in positions:
            key = consumer.pending.pop(position)
            returned.append(GivenBack())
            self._returned[key][position] = returned[-1]
        return returned

    def durable(self, positions: list[Position], now: float) -> None:
        """The receipt of an acknowledgement came."""
        for position in positions:
            self.acknowledged.setdefault(position, now)

    def delivery(self, consumer: Consumer, position: Position, key: str, written_since: float) -> None:
        """A message came to a consumer that is here."""
        self.deliveries += 1
        consumer.permits -= 1
        if consumer.permits < 0:
            raise Violation(f"{self}: {consumer.name} got {position} without a permit")
        if self.acknowledged.get(position, float("inf")) < written_since:
            raise Violation(f"{self}: {position} was acknowledged and came again, to {consumer.name}")
        if self.kind in ORDERED:
            self._next_in_stream(consumer, position)
        else:
            self._with_one_consumer(consumer, position, key)
            if self.kind == "Key_Shared":
                self._in_order(key, position)
                self._returned_first(key, position, written_since)
        self._returned[key].pop(position, None)
        self.delivered.add(position)
        consumer.pending[position] = key

    def missing(self) -> list[Position]:
        """Confirmed and never delivered."""
        return sorted(self._confirmed.keys() - self.delivered)

    def unacknowledged(self) -> int:
        """Confirmed messages whose acknowledgement is not known to be durable."""
        return len(self._confirmed.keys() - self.acknowledged.keys())

    # -- the rules

    def _next_in_stream(self, consumer: Consumer, position: Position) -> None:
        """What an ordered consumer gets goes upwards and leaves out only what somebody acknowledged.

        It begins anew, at the first that nobody did, only with a reason.
        """
        if position <= consumer.last:
            if consumer.rewinds <= 0:
                raise Violation(f"{self}: {consumer.name} got {position} after {consumer.last}")
            consumer.rewinds -= 1
            consumer.last = (-1, -1)
        places = self._in_place
        while self._settled < len(places) and self._is_acknowledged(places[self._settled]):
            self._settled += 1
        last, consumer.last = consumer.last, position
        first = max(self._settled, bisect_right(places, last))
        for skipped in places[first : bisect_left(places, position)]:
            if not self._is_acknowledged(skipped):
                raise Violation(f"{self}: {consumer.name} got {position} after {last}, not {skipped}")

    def _is_acknowledged(self, position: Position) -> bool:
        return position <= self._acknowledged_to or position in self._sent

    def _in_order(self, key: str, position: Position) -> None:
        """A message that comes for the first time comes after all earlier ones of its key."""
        if position in self.delivered:
            return
        order = self._orders[key]
        if position < order.last:
            raise Violation(f"{self}: {position} of {key!r} came for the first time after {order.last}")
        waiting = order.waiting
        while waiting and (waiting[0] in self.delivered or waiting[0] == position):
            heapq.heappop(waiting)
        if waiting and waiting[0] < position:
            raise Violation(f"{self}: {position} of {key!r} came before {waiting[0]}, which is confirmed")
        order.last = position

    def _with_one_consumer(self, consumer: Consumer, position: Position, key: str) -> None:
        for other in self.consumers:
            if other is consumer:
                continue
            if position in other.pending:
                raise Violation(f"{self}: {position} is with {other.name} and came to {consumer.name} too")
            if self.kind == "Key_Shared" and key in other.pending.values():
                raise Violation(f"{self}: {key!r} is with {other.name} and came to {consumer.name} too")

    def _returned_first(self, key: str, position: Position, written_since: float) -> None:
        """Within a key nothing overtakes what waits to be delivered again."""
        for earlier, returned in self._returned[key].items():
            if earlier < position and returned.known_at < written_since:
                raise Violation(f"{self}: {position} of {key!r} came before {earlier}, which was given back")


class Failovers:
    """Who was told to be the active consumer of a Failover subscription."""

    def __init__(self) -> None:
        self.active: set[Consumer] = set()

    def told(self, consumer: Consumer, active: bool) -> list[Consumer]:
        """Returns the others that believe to be active.

        The server told all of them at once: they have heard of it before a ping that is sent now is answered.
        """
        if not active:
            self.active.discard(consumer)
            return []
        consumer.rewinds += 1
        self.active.add(consumer)
        return [one for one in self.active if one is not consumer and one.here]
