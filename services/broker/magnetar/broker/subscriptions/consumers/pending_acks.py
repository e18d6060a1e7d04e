"""What one consumer of a Shared subscription was given and has not acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.ledger.ledger_store import Run


class PendingAcks:
    """Unacknowledged entries of one consumer: by ledger, entry id -> messages still unacknowledged in it.

    Nested plain dicts, because adding a run of entries is one C call and an acknowledgement one `pop`.
    """

    __slots__ = ("_ledgers", "messages")

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, int]] = {}
        self.messages = 0
        """Unacknowledged messages; what the unacked limits and the statistics count."""

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def add_run(self, run: Run) -> None:
        """Every entry of the run was just delivered whole."""
        entries = self._ledgers.setdefault(run.ledger_id, {})
        ids = range(run.first_entry_id, run.last_entry_id + 1)
        if run.message_counts is None:
            entries.update(dict.fromkeys(ids, 1))
            self.messages += len(run.entries)
        else:
            entries.update(zip(ids, run.message_counts, strict=True))
            self.messages += sum(run.message_counts)

    def add(self, ledger_id: int, entry_id: int, messages: int) -> None:
        """One entry was delivered, of which `messages` are unacknowledged."""
        self._ledgers.setdefault(ledger_id, {})[entry_id] = messages
        self.messages += messages

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        entries = self._ledgers.get(ledger_id)
        return entries is not None and entry_id in entries

    def remove(self, ledger_id: int, entry_id: int) -> int:
        """The entry is no longer pending here; returns its unacknowledged messages, 0 when it was not."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return 0
        messages = entries.pop(entry_id, 0)
        if not entries:
            del self._ledgers[ledger_id]
        self.messages -= messages
        return messages

    def remove_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """These entries are no longer pending here; returns how many of them were."""
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
        """Only `messages` of a batch entry are still unacknowledged; never more than before, or below 0."""
        entries = self._ledgers.get(ledger_id)
        if entries is not None and entry_id in entries:
            messages = min(max(messages, 0), entries[entry_id])
            self.messages += messages - entries[entry_id]
            entries[entry_id] = messages

    def positions(self) -> Iterator[tuple[int, int]]:
        """(ledger id, entry id) of all pending entries, oldest first."""
        for ledger_id in sorted(self._ledgers):
            for entry_id in sorted(self._ledgers[ledger_id]):
                yield ledger_id, entry_id

    def clear(self) -> None:
        self._ledgers.clear()
        self.messages = 0
