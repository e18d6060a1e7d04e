"""The unacknowledged entries of one consumer of a Key_Shared subscription, with their slots.

Messages and slot share one number (messages << 16 | slot), so that adding many entries is one C call and an
acknowledgement one `pop`, as on Shared; slots are read only when owners change or while some drain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.consumers.pending_acks import PendingAcks
from magnetar.ledger.ledger_store import Run

_SLOT_BITS = 16
_SLOT = (1 << _SLOT_BITS) - 1
_ONE_MESSAGE = 1 << _SLOT_BITS


class SlotPendingAcks(PendingAcks):
    """PendingAcks with the slot of each entry."""

    __slots__ = ("on_settled",)

    def __init__(self) -> None:
        super().__init__()
        self.on_settled: Callable[[list[int]], None] | None = None
        """Called with the slots of entries that are no longer pending; None while no slot drains."""

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        slots: Sequence[int],
        message_counts: Sequence[int] | None,
    ) -> None:
        """Adds entries that were just delivered completely; each is one message when `message_counts` is
        None.
        """
        entries = self._ledgers.setdefault(ledger_id, {})
        if message_counts is None:
            entries.update(zip(entry_ids, [_ONE_MESSAGE | slot for slot in slots], strict=True))
            self.messages += len(entry_ids)
        else:
            packed = [
                messages << _SLOT_BITS | slot for messages, slot in zip(message_counts, slots, strict=True)
            ]
            entries.update(zip(entry_ids, packed, strict=True))
            self.messages += sum(message_counts)

    def add_in_slot(self, ledger_id: int, entry_id: int, messages: int, slot: int) -> None:
        """Adds one delivered entry, of which `messages` are unacknowledged."""
        self._ledgers.setdefault(ledger_id, {})[entry_id] = messages << _SLOT_BITS | slot
        self.messages += messages

    def add(self, ledger_id: int, entry_id: int, messages: int) -> None:
        raise AssertionError("entries of a Key_Shared consumer must be added with their slot")

    def add_run(self, run: Run) -> None:
        raise AssertionError("entries of a Key_Shared consumer must be added with their slot")

    def remove(self, ledger_id: int, entry_id: int) -> int:
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return 0
        packed = entries.pop(entry_id, 0)
        if not entries:
            del self._ledgers[ledger_id]
        messages = packed >> _SLOT_BITS
        self.messages -= messages
        if packed and self.on_settled is not None:
            self.on_settled([packed & _SLOT])
        return messages

    def remove_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return 0
        before = len(entries)
        pop = entries.pop
        if self.on_settled is None:
            self.messages -= sum([pop(entry_id, 0) >> _SLOT_BITS for entry_id in entry_ids])
            settled = None
        else:
            packed = [pop(entry_id, 0) for entry_id in entry_ids]
            self.messages -= sum([each >> _SLOT_BITS for each in packed])
            settled = [each & _SLOT for each in packed if each]
        removed = before - len(entries)
        if not entries:
            del self._ledgers[ledger_id]
        if settled and self.on_settled is not None:
            self.on_settled(settled)
        return removed

    def reduce(self, ledger_id: int, entry_id: int, messages: int) -> None:
        entries = self._ledgers.get(ledger_id)
        if entries is not None and entry_id in entries:
            packed = entries[entry_id]
            messages = min(max(messages, 0), packed >> _SLOT_BITS)
            self.messages += messages - (packed >> _SLOT_BITS)
            entries[entry_id] = messages << _SLOT_BITS | packed & _SLOT

    def in_slots(self) -> Counter[int]:
        """Counts the pending entries of each slot."""
        counts: Counter[int] = Counter()
        for entries in self._ledgers.values():
            counts.update([packed & _SLOT for packed in entries.values()])
        return counts

    def first_in_slots(self, slots: Container[int]) -> dict[int, tuple[int, int]]:
        """Returns the oldest pending (ledger id, entry id) of each of these slots; visits all entries."""
        firsts: dict[int, tuple[int, int]] = {}
        for ledger_id, entries in self._ledgers.items():
            for entry_id, packed in entries.items():
                slot = packed & _SLOT
                if slot in slots and firsts.get(slot, (ledger_id, entry_id)) >= (ledger_id, entry_id):
                    firsts[slot] = ledger_id, entry_id
        return firsts


def slot_pending(consumer: Consumer) -> SlotPendingAcks:
    """Returns the pending entries of a consumer of a Key_Shared subscription."""
    pending = consumer.pending
    assert isinstance(pending, SlotPendingAcks), "set when the consumer was added"
    return pending
