"""Check of a bookie's own entries against metadata: reads back, verifies, and repairs from peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.bookie.autorecovery.entry_copier import (
    READ_BYTES_MAX,
    CopyFailed,
    EntryCopier,
    TargetFailed,
    sound_until,
)
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    NO_SUCH_ENTRY,
    OK,
    WRONG_KEY,
    Code,
)
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.repair_plan import FragmentRange, striping_of

FAILURES_MAX: Final = 3
"""Consecutive entries without any intact peer copy after which the rest of the ledger is left for later."""


@dataclass(slots=True)
class Finding:
    """Consecutive entries that are missing or damaged on this bookie."""

    kind: str
    """'missing', 'damaged' or 'unknown'."""
    first: int
    last: int
    repaired: int = 0
    reason: str = ""
    """Why some entries could not be repaired."""

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


class OwnCopies:
    """Checks fragments of ledgers on this bookie."""

    def __init__(
        self, bookie_id: str, clients: BookieClients, copier: EntryCopier, throttle: Throttle
    ) -> None:
        self._bookie_id = bookie_id
        self._clients = clients
        self._copier = copier
        self._throttle = throttle

    async def check(
        self,
        ledger: LedgerMetadata,
        fragment: FragmentRange,
        on_read: Callable[[int], None],
        on_finding: Callable[[Finding], None],
    ) -> bool:
        """Reads this bookie's share of a fragment and repairs what fails; returns whether all of it is now
        intact.

        `on_read(bytes)` counts bytes; `on_finding` receives each range of bad entries once it is complete.
        Raises BookieUnreachable if the bookie itself does not answer.
        """
        ref = LedgerRef(ledger.ref.id, ledger.ref.key)
        striping = striping_of(ledger)
        position = fragment.bookie_ids.index(self._bookie_id)
        own = self._clients.client(self._bookie_id)
        finding: Finding | None = None
        failures, extent = 0, 1
        sound = True
        for start, end in striping.shares(position, fragment.first, fragment.last):
            at = start
            while at <= end:
                answer = await own.read(ref, at, end, READ_BYTES_MAX)
                until, size = sound_until(ref, answer.records, at)
                until = min(until, end + 1)
                if until > at:
                    on_read(size)
                    await self._throttle.spend(size)
                    if finding is not None:
                        on_finding(finding)
                        finding = None
                    at, extent = until, 1
                    continue
                # Read one record first, since often only one is bad; then more at a time.
                last = min(end, at + extent - 1)
                if finding is None:
                    finding = Finding(_kind(answer.code, bool(answer.records)), at, last)
                try:
                    finding.repaired += await self._copier.copy_share(
                        ref, striping, fragment.bookie_ids, position, at, last, self._bookie_id
                    )
                    failures, extent = 0, 2 * extent
                except TargetFailed as error:
                    finding.reason = str(error)
                    on_finding(finding)
                    return False
                except CopyFailed as error:
                    finding.reason = str(error)
                    if extent > 1:
                        extent = 1
                        continue
                    sound = False
                    failures += 1
                    last = at
                    if failures >= FAILURES_MAX:
                        finding.last = at
                        on_finding(finding)
                        return False
                finding.last = last
                at = last + 1
        if finding is not None:
            on_finding(finding)
        return sound


def _kind(code: Code.ValueType, has_records: bool) -> str:
    if code == ENTRY_UNKNOWN:
        return "unknown"
    if code in (NO_SUCH_ENTRY, WRONG_KEY) or (code == OK and not has_records):
        return "missing"
    return "damaged"
