"""What the cluster promises about a subscription whose topic is served by one broker after another.

The rules of the soak hold while one broker serves; a new one begins anew at what nobody acknowledged. All
that a client has on one broker for one topic shares a connection, so what it hears from a broker is in the
order of that broker; what it hears from two of them is compared only by what is known to have been written
later (`written_since`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.soak.history import ORDERED, Consumer, GivenBack, Kind, Position, Subscription, Violation


class ServedByMany(Subscription):
    """The history of one subscription over all owners of its topic. Methods may raise Violation."""

    def __init__(self, topic: str, name: str, kind: Kind) -> None:
        super().__init__(topic, name, kind)
        self.served_by: object = None
        """The connection to the broker where the newest consumer is."""
        self.owners = 0
        self.last_delivery = float("-inf")
        self._waiting: dict[Position, float] = {}
        """Confirmed and not with a consumer, oldest first, and since when."""

    # -- what is told

    def confirmed_at(self, position: Position, key: str, now: float) -> None:
        """A publish has its receipt."""
        self.confirmed(position, key)
        if position not in self.delivered:
            self._waiting[position] = now

    def joined_at(self, consumer: Consumer, connection: object, now: float) -> None:
        """Success of a Subscribe. On another connection than before, who is elsewhere has nothing more."""
        if connection is not self.served_by:
            self.served_by = connection
            self.owners += 1
            for other in [*self.consumers]:
                self.left(other)
            self._begin_anew(now)
        self.joined(consumer)

    def given_back_at(self, consumer: Consumer, positions: list[Position], now: float) -> list[GivenBack]:
        """As `given_back`, for any kind: ordered consumers give back all they have."""
        if self.kind in ORDERED:
            consumer.rewinds += 1
            self._waiting.update(dict.fromkeys(consumer.pending, now))
            consumer.pending.clear()
            return []
        self._waiting.update(dict.fromkeys(positions, now))
        return self.given_back(consumer, positions)

    def left_at(self, consumer: Consumer, now: float) -> None:
        """The consumer goes, and what it has waits for others."""
        self._waiting.update(dict.fromkeys(consumer.pending, now))
        self.left(consumer)

    def heard(
        self, consumer: Consumer, position: Position, key: str, now: float, *, written_since: float
    ) -> None:
        """A message came, perhaps to a consumer that has moved on and whose former broker still writes.

        What that one had written before it stood still comes before its answer to a later ping.
        """
        if consumer.here:
            self._waiting.pop(position, None)
            self.last_delivery = now
            self.delivery(consumer, position, key, written_since)
        elif (acknowledged := self.acknowledged.get(position, float("inf"))) < written_since:
            raise Violation(
                f"{self}: a former owner delivered {position} to {consumer.name} more than "
                f"{written_since - acknowledged:.1f} s after the next one confirmed its acknowledgement"
            )

    # -- what is asked

    def idle(self, now: float, since: float) -> float:
        """Seconds since `since` for which nothing came though something was waiting."""
        if not self._waiting:
            return 0.0
        oldest = next(iter(self._waiting.values()))
        return max(0.0, now - max(oldest, self.last_delivery, since))

    def lost(self) -> list[Position]:
        """Confirmed, and neither delivered by the present owner nor acknowledged by anybody."""
        return sorted(self._waiting.keys() - self._sent - self.acknowledged.keys())

    # -- owners

    def _begin_anew(self, now: float) -> None:
        self.delivered = {one for one in self.delivered if self._is_acknowledged(one)}
        self._returned.clear()
        self._orders.clear()
        again = {one: key for one, key in self._confirmed.items() if not self._is_acknowledged(one)}
        self._waiting = dict.fromkeys(sorted(again), now)
        if self.kind == "Key_Shared":
            for position in sorted(again):  # a sorted list is a heap
                self._orders[again[position]].waiting.append(position)


class Published:
    """What one producer sent to one topic, over all its connections.

    Where messages are deduplicated (`once`) none is there twice, however often it was sent.
    """

    def __init__(self, topic: str, *, once: bool = False) -> None:
        self.topic = topic
        self.once = once
        self.confirmed: dict[int, Position | None] = {}
        """Where each is; None: it was there before, so nobody said where."""

    def receipt(self, number: int, position: Position | None) -> None:
        """A message is confirmed: it was not before."""
        if number in self.confirmed:
            raise Violation(f"{self.topic}: message {number} was confirmed twice")
        if position is None and not self.once:
            raise Violation(f"{self.topic}: message {number} was taken for a duplicate")
        self.confirmed[number] = position

    @property
    def last(self) -> Position:
        """As far as is known, that of the last one which is confirmed."""
        return max((one for one in self.confirmed.values() if one is not None), default=(-1, -1))

    @property
    def somewhere(self) -> set[int]:
        """Those that are confirmed, and nobody said where they are."""
        return {number for number, position in self.confirmed.items() if position is None}

    def check(self, entries: Iterable[tuple[Position, int]]) -> None:
        """All that is in the topic, from the first to the last, with the numbers of the messages.

        What was sent again because no receipt came may be there twice. Raises Violation.
        """
        there: dict[int, list[Position]] = {}
        last, last_position = -1, (-1, -1)
        for position, number in entries:
            if position <= last_position:
                raise Violation(f"{self.topic}: {position} came after {last_position}")
            last_position = position
            if number not in there:
                if number < last:
                    raise Violation(f"{self.topic}: message {number} is there only after message {last}")
                last = number
            there.setdefault(number, []).append(position)
        if self.once:
            self._check_once(there)
        self._check_confirmed(there)

    def _check_once(self, there: Mapping[int, list[Position]]) -> None:
        twice = [number for number, positions in there.items() if len(positions) > 1]
        if twice:
            raise Violation(
                f"{self.topic}: {len(twice)} messages are there more than once; the first is {twice[0]}, "
                f"at {there[twice[0]]}"
            )

    def _check_confirmed(self, there: Mapping[int, list[Position]]) -> None:
        gone = [
            number
            for number, position in self.confirmed.items()
            if number not in there or position not in (None, *there[number])
        ]
        if gone:
            first = gone[0]
            raise Violation(
                f"{self.topic}: {len(gone)} of {len(self.confirmed)} confirmed messages are lost; the first "
                f"is {first}, confirmed at {self.confirmed[first] or 'some place'}, there at "
                f"{there.get(first, 'none')}"
            )
