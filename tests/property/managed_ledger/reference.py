"""A topic as plain lists and sets: what the managed ledger is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.managed_ledger import Cursor


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that was published; without a position until it is confirmed."""

    data: bytes
    messages: int
    position: Position = EARLIEST
    publish_time_ms: int = 0
    first_index: int = 0


@dataclass(slots=True)
class Acks:
    """What a subscription acknowledged: whole entries, messages of batches as bits, redeliveries."""

    entries: set[Position] = field(default_factory=set)
    bits: dict[Position, int] = field(default_factory=dict)
    counts: dict[Position, int] = field(default_factory=dict)

    def copy(self) -> Acks:
        return Acks(set(self.entries), dict(self.bits), dict(self.counts))

    def acknowledge(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self.entries.add(position)
            self.bits.pop(position, None)
            self.counts.pop(position, None)


@dataclass(slots=True, eq=False)
class Subscription:
    """Acknowledgements `asked` for, and those known to be `durable`; a seek begins with a new object."""

    durable_cursor: bool
    asked: Acks
    durable: Acks

    def refuses(self, cursor: Cursor, positions: Iterable[Position]) -> str | None:
        """Why a cursor found after a crash cannot be this; None when it holds what it must and may."""
        for position in positions:
            acked = cursor.is_acked(*position)
            if position in self.durable.entries and not acked:
                return f"{position} was acknowledged durably, and is not"
            if acked and position not in self.asked.entries:
                return f"{position} was never acknowledged, and is"
            if acked:
                continue
            bits = cursor.batch_acked(*position)
            # What completed a batch after the flush says nothing of the bits that were flushed before.
            may = -1 if position in self.asked.entries else self.asked.bits.get(position, 0)
            if self.durable.bits.get(position, 0) & ~bits or bits & ~may:
                return f"{position} has the wrong messages acknowledged: {bits:b}"
            if cursor.delivery_count(*position) < self.durable.counts.get(position, 0):
                return f"{position} was delivered again more often"
        return None


def as_found(cursor: Cursor, positions: Iterable[Position]) -> Subscription:
    """A recovered cursor, which is durable as it is."""
    acks = Acks()
    for position in positions:
        if cursor.is_acked(*position):
            acks.entries.add(position)
            continue
        if bits := cursor.batch_acked(*position):
            acks.bits[position] = bits
        if count := cursor.delivery_count(*position):
            acks.counts[position] = count
    return Subscription(True, acks, acks.copy())


@dataclass(slots=True)
class Topic:
    """Existing entries in order, and subscriptions by name."""

    entries: list[Entry] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    """Trimmed entries, acknowledged by everybody. A crash may bring them back: they are off the list in
    memory before they are in metadata."""
    on_their_way: list[Entry] = field(default_factory=list)
    """Published and not confirmed, in order."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    last_position: Position = EARLIEST
    next_index: int = 0
    """Of the message after the last confirmed one."""

    def confirm(self, data: bytes, position: Position, publish_time_ms: int, first_index: int) -> Entry:
        """The next entry on its way was confirmed, or was found by recovery."""
        assert self.on_their_way, "only what was published is confirmed"
        entry = self.on_their_way.pop(0)
        assert data == entry.data, "entries are confirmed in the order of their publishing"
        assert first_index == self.next_index, "message indexes have no gap"
        last = self.last_position
        if position.ledger_id == last.ledger_id:
            assert position.entry_id == last.entry_id + 1, "entry ids have no gap"
        else:
            assert position.ledger_id > last.ledger_id, "ledger ids only grow"
            assert position.entry_id == 0
        self.last_position = position
        self.next_index += entry.messages
        confirmed = Entry(data, entry.messages, position, publish_time_ms, first_index)
        self.entries.append(confirmed)
        return confirmed

    @property
    def positions(self) -> list[Position]:
        return [entry.position for entry in self.entries]

    def up_to(self, position: Position) -> list[Position]:
        return [each for each in self.positions if each <= position]

    def between(self, after: Position, through: Position) -> int:
        return sum(after < each <= through for each in self.positions)

    def next_position(self, after: Position) -> Position | None:
        return next((each for each in self.positions if each > after), None)

    def before_publish_time(self, publish_time_ms: int) -> Position:
        before = None
        for entry in self.entries:
            if entry.publish_time_ms >= publish_time_ms:
                return before or Position(entry.position.ledger_id, -1)
            before = entry.position
        return self.last_position

    def needs(self, position: Position) -> bool:
        """Whether a durable subscription has not acknowledged an entry."""
        return any(
            position not in subscription.asked.entries
            for subscription in self.subscriptions.values()
            if subscription.durable_cursor
        )

    def acknowledged_up_to(self, position: Position) -> set[Position]:
        """What a subscription that begins at a position has acknowledged."""
        return {entry.position for entry in self.gone}.union(self.up_to(position))

    def trim(self, first: Position | None) -> list[Position]:
        """Entries before `first` are gone; returns them. None: all are."""
        gone = [entry for entry in self.entries if first is None or entry.position < first]
        del self.entries[: len(gone)]
        self.gone += gone
        return [entry.position for entry in gone]

    def untrim(self, first: Position) -> None:
        """Entries from `first` on are (still) there."""
        back = [entry for entry in self.gone if entry.position >= first]
        if back:
            del self.gone[-len(back) :]
            self.entries[:0] = back

    def ledger_ids(self) -> list[int]:
        return sorted({position.ledger_id for position in self.positions})
