"""What was promised of each ledger, whoever wrote it, and whether it holds.

The checker sees every append, every confirmation, every read and, at the moment of its commit, every change
of a ledger's metadata. Of the
protocol in between it knows one rule: what is confirmed is on Qa bookies of those that metadata names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from magnetar.bookie.garbage import is_moved_away
from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import WatchEvent
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, LedgerWriter, Run
from magnetar.sim.metadata import SimMetadataServer

from tests.simulation.ledger_workload import Entry, entries_of

NEXT_STATES = {
    LedgerMetadata.OPEN: {LedgerMetadata.OPEN, LedgerMetadata.IN_RECOVERY, LedgerMetadata.CLOSED},
    LedgerMetadata.IN_RECOVERY: {LedgerMetadata.IN_RECOVERY, LedgerMetadata.CLOSED},
    LedgerMetadata.CLOSED: {LedgerMetadata.CLOSED},
}


@dataclass(slots=True, eq=False)
class Promises:
    """One ledger."""

    ref: LedgerRef
    write_quorum: int
    ack_quorum: int
    appended: list[Entry] = field(default_factory=list)
    confirmed: int = -1
    """What its owner was told, or a recovery decided."""
    told: int = -1
    """What its owner was told."""
    failed: bool = False
    closed: int | None = None
    """Where metadata closed it."""
    writer: LedgerWriter | None = None
    deleted: bool = False

    def __str__(self) -> str:
        return f"ledger {self.ref.id}"

    @property
    def readable(self) -> int:
        """The last entry anybody may be shown now."""
        if self.closed is not None:
            return self.closed
        known = -1 if self.writer is None else self.writer.last_confirmed
        return max(self.confirmed, known)


class Checker:
    """The promises of a whole run. Every method raises AssertionError when one is broken."""

    def __init__(self, server: SimMetadataServer, keys: Keys) -> None:
        self.ledgers: dict[int, Promises] = {}
        self.metadata: dict[int, LedgerMetadata] = {}
        """Of every ledger that exists, as it is now."""
        self.broken: list[str] = []
        """Promises that were broken where nobody could be told by an exception."""
        self.confirmations = 0
        self.reads = 0
        self.lengths_guessed = 0
        self._keys = keys
        self._stored: dict[int, dict[str, set[int]]] = {}
        server.subscribe(self._changed)

    # --- writing ---

    def listener(self, promises: Promises) -> LedgerListener:
        """To be given to the ledger's writer."""

        def confirmed(last: int) -> None:
            self._require(last > promises.told, f"{promises}: the watermark went back to {last}")
            self._require(last < len(promises.appended), f"{promises}: {last} confirmed, never appended")
            self._require(not promises.failed, f"{promises}: {last} confirmed after its failure was told")
            self._require(
                promises.closed is None or last <= promises.closed,
                f"{promises}: {last} confirmed, and it was closed at {promises.closed}",
            )
            self.confirmations += 1
            value = self.metadata.get(promises.ref.id)
            if value is not None:
                self._require_quorum(promises, value, range(promises.told + 1, last + 1))
            promises.told = last
            promises.confirmed = max(last, promises.confirmed)

        def failed(_error: StorageError, last: int) -> None:
            self._require(not promises.failed, f"{promises}: a failure is told once")
            self._require(last == promises.told, f"{promises}: failed at {last}, not {promises.told}")
            promises.failed = True

        return LedgerListener(confirmed, failed)

    def created(self, promises: Promises, writer: LedgerWriter) -> None:
        """A writer was handed out."""
        assert writer.ref.id not in self.ledgers, f"ledger id {writer.ref.id} was given twice"
        promises.ref, promises.writer = writer.ref, writer
        self.ledgers[writer.ref.id] = promises

    def appended(self, promises: Promises, run: Run, first: int) -> None:
        """A writer took a run."""
        assert first == len(promises.appended), (
            f"{promises}: entry {first} after {len(promises.appended) - 1}"
        )
        promises.appended += entries_of(run)

    def stored(self, bookie_id: str, ledger_id: int, first: int, count: int) -> None:
        """A bookie said that it has these entries durably."""
        self._stored.setdefault(ledger_id, {}).setdefault(bookie_id, set()).update(
            range(first, first + count)
        )

    def holders(self, promises: Promises, entry_id: int) -> list[str]:
        """Who should have an entry by metadata, and said to have it."""
        stored = self._stored.get(promises.ref.id, {})
        names = write_set(self.metadata[promises.ref.id], entry_id)
        return [name for name in names if entry_id in stored.get(name, ())]

    def is_written(self, ledger_id: int) -> bool:
        """Whether a ledger is open and its writer has not failed, as far as anybody was told."""
        promises, value = self.ledgers.get(ledger_id), self.metadata.get(ledger_id)
        return (
            promises is not None
            and not promises.failed
            and value is not None
            and value.state == LedgerMetadata.OPEN
        )

    def may_be_collected(self, ledger_id: int, bookie_id: str) -> bool:
        """Whether a ledger is closed and metadata does not name a bookie that may hold some of it."""
        value = self.metadata.get(ledger_id)
        return value is not None and is_moved_away(bookie_id, value)

    def _require_quorum(self, promises: Promises, value: LedgerMetadata, entries: range) -> None:
        """Confirmed is what Qa said to have of those that should have it by metadata."""
        stored = self._stored.get(promises.ref.id, {})
        for entry_id in entries:
            holders = [name for name in write_set(value, entry_id) if entry_id in stored.get(name, ())]
            if len(holders) < promises.ack_quorum:
                self._require(False, f"{promises}: entry {entry_id} is confirmed, and is on {holders} alone")
                return

    # --- closing and reading ---

    def closed(self, promises: Promises, closed: ClosedLedger, *, by_writer: bool = False) -> None:
        """A close or a recovery returned. A recovery may have to guess the length; a writer never has to."""
        last = closed.last_entry_id
        assert promises.closed is not None, f"{promises}: closed, not in metadata"
        assert promises.closed == last, f"{promises}: it ends at {last}, and at {promises.closed} in metadata"
        size = sum(len(entry.data) for entry in promises.appended[: last + 1])
        self.lengths_guessed += closed.byte_length != size
        assert closed.byte_length == size or not by_writer, (
            f"{promises}: {closed.byte_length} bytes, not {size}"
        )

    def read(self, promises: Promises, first: int, last_confirmed: int, runs: Sequence[Run]) -> int:
        """A reader answered; returns the next entry to read."""
        assert last_confirmed <= promises.readable, (
            f"{promises}: a reader may read {last_confirmed}, beyond {promises.readable}"
        )
        assert runs, f"{promises}: nothing read at {first}"
        for run in runs:
            assert run.first_entry_id == first, f"{promises}: {run.first_entry_id} read, not {first}"
            wanted = promises.appended[first : first + len(run.entries)]
            assert entries_of(run) == wanted, f"{promises}: entry {first} is not what was appended"
            first += len(run.entries)
        assert first - 1 <= promises.readable, f"{promises}: entry {first - 1} was read, not confirmed"
        self.reads += 1
        return first

    def raise_broken(self) -> None:
        """Fail if a promise was broken anywhere."""
        assert not self.broken, self.broken[0]

    # --- metadata ---

    def _changed(self, events: list[WatchEvent]) -> None:
        for event in events:
            if event.key.startswith(self._keys.ledgers_prefix):
                ledger_id = self._keys.ledger_id_of(event.key)
                after = None if event.value is None else decode(LedgerMetadata, event.value)
                self._ledger_changed(ledger_id, self.metadata.get(ledger_id), after)
                if after is None:
                    self.metadata.pop(ledger_id, None)
                else:
                    self.metadata[ledger_id] = after

    def _ledger_changed(
        self, ledger_id: int, before: LedgerMetadata | None, after: LedgerMetadata | None
    ) -> None:
        promises = self.ledgers.get(ledger_id)
        name = f"ledger {ledger_id}"
        if after is None:
            self._require(promises is None or promises.deleted, f"{name}: nobody asked to delete it")
            return
        self._check_fragments(name, after)
        if before is None:
            self._require(after.state == LedgerMetadata.OPEN, f"{name}: not created open")
            return
        self._require(after.state in NEXT_STATES[before.state], f"{name}: {before.state} to {after.state}")
        if promises is None:
            return  # its creation is not known to have succeeded: nobody wrote to it
        if before.state == LedgerMetadata.CLOSED:
            self._require(before.last_entry_id == after.last_entry_id, f"{name}: its end changed")
        elif after.state == LedgerMetadata.CLOSED:
            last = after.last_entry_id
            self._require(
                last >= promises.readable,
                f"{name}: closed at {last}, and {promises.readable} was confirmed",
            )
            self._require(last < len(promises.appended), f"{name}: closed at {last}, never appended")
            self._require_quorum(promises, after, range(last + 1))
            promises.closed = last
            promises.confirmed = max(promises.confirmed, last)
        elif before.state == LedgerMetadata.OPEN == after.state:
            self._check_ensemble_change(promises, before, after)

    def _check_fragments(self, name: str, value: LedgerMetadata) -> None:
        starts = [fragment.first_entry_id for fragment in value.fragments]
        self._require(bool(starts) and starts[0] == 0, f"{name}: fragments start at {starts}")
        self._require(starts == sorted(set(starts)), f"{name}: fragments start at {starts}")
        for fragment in value.fragments:
            ensemble = list(fragment.bookie_ids)
            self._require(
                len(ensemble) == len(set(ensemble)) == value.ensemble_size, f"{name}: ensemble {ensemble}"
            )

    def _check_ensemble_change(
        self, promises: Promises, before: LedgerMetadata, after: LedgerMetadata
    ) -> None:
        """A writer changes where unconfirmed entries go, and those that were confirmed meanwhile without the
        bookie that is replaced. What it wrote stays, whoever else changes the ledger."""
        starts = [[fragment.first_entry_id for fragment in value.fragments] for value in (before, after)]
        self._require(
            starts[0] == starts[1][: len(starts[0])],
            f"{promises}: fragments started at {starts[0]}, and start at {starts[1]}",
        )
        confirmed = range(promises.confirmed + 1)
        changed = [each for each in confirmed if ensemble_of(before, each) != ensemble_of(after, each)]
        if changed:
            self._require_quorum(promises, after, range(changed[0], changed[-1] + 1))

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.broken.append(what)


def ensemble_of(value: LedgerMetadata, entry_id: int) -> list[str]:
    """The bookies of the fragment that an entry is in."""
    ensemble: list[str] = []
    for fragment in value.fragments:
        if fragment.first_entry_id <= entry_id:
            ensemble = list(fragment.bookie_ids)
    return ensemble


def write_set(value: LedgerMetadata, entry_id: int) -> list[str]:
    """Who should have an entry: `write_quorum` bookies of its ensemble, beginning at its id modulo E."""
    ensemble = ensemble_of(value, entry_id)
    return [ensemble[(entry_id + i) % len(ensemble)] for i in range(value.write_quorum)]
