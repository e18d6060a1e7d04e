"""The unacknowledged entries of one consumer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.ledger.ledger_store import Run


class PendingAcks:
    """Maps, by ledger, each entry id to the messages of it that are still unacknowledged.

    Nested plain dicts, because adding a run of entries is one C call and an acknowledgement one `pop`.
    """

    __slots__ = ("_ledgers", "messages")

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, int]] = {}
        self.messages = 0
        """All unacknowledged messages, as limits and statistics count them."""

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def add_run(self, run: Run) -> None:
        """Adds every entry of a run that was just delivered completely."""
        entries = self._ledgers.setdefault(run.ledger_id, {})
        ids = range(run.first_entry_id, run.last_entry_id + 1)
        if run.message_counts is None:
            entries.update(dict.fromkeys(ids, 1))
            self.messages += len(run.entries)
        else:
            entries.update(zip(ids, run.message_counts, strict=True))
            self.messages += sum(run.message_counts)

    def add(self, ledger_id: int, entry_id: int, messages: int) -> None:
        """Adds one delivered entry, of which `messages` are unacknowledged."""
        self._ledgers.setdefault(ledger_id, {})[entry_id] = messages
        self.messages += messages

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        entries = self._ledgers.get(ledger_id)
        return entries is not None and entry_id in entries

    def remove(self, ledger_id: int, entry_id: int) -> int:
        """Removes an entry; returns its unacknowledged messages, 0 when it was not pending here."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return 0
        messages = entries.pop(entry_id, 0)
        if not entries:
            del self._ledgers[ledger_id]
        self.messages -= messages
        return messages

    def remove_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Removes entries; returns how many of them were pending here."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return 0
        before = len(entries)
        pop = entries.pop
        self.messages -= sum([pop(entry_id, 0) for entry_id in entry_ids])
        removed = before - len(entries)
        if not entries:
            del self._ledgers[ledger_id]
        return removed

    def reduce(self, ledger_id: int, entry_id: int, messages: int) -> None:
        """Lowers the unacknowledged messages of a batch entry; never raised, and not below 0."""
        entries = self._ledgers.get(ledger_id)
        if entries is not None and entry_id in entries:
            messages = min(max(messages, 0), entries[entry_id])
            self.messages += messages - entries[entry_id]
            entries[entry_id] = messages

    def positions(self) -> Iterator[tuple[int, int]]:
        """Yields (ledger id, entry id) of all pending entries, oldest first."""
        for ledger_id in sorted(self._ledgers):
            for entry_id in sorted(self._ledgers[ledger_id]):
                yield ledger_id, entry_id

    def clear(self) -> None:
        self._ledgers.clear()
        self.messages = 0
