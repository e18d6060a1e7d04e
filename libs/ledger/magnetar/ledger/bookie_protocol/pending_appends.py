"""Unanswered appends of a stream, matched with results.

A result names ledger, first entry and count. A bookie may answer adjacent appends of a ledger with one
result; a result that matches no pending append, or only a part of one, is a protocol error.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_client import AppendDone, EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import UNREACHABLE, AppendResult

log = get_logger(__name__)


class UnexpectedResult(Exception):
    """Raised when a bookie answers a request that was not sent."""


class PendingAppends:
    """Unanswered appends of one stream, in order of sending. The caller provides times."""

    __slots__ = ("_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        """Total bytes of the waiting appends."""
        # (ledger id, key, first entry) -> appends that begin there: nearly always one.
        self._waiting: dict[tuple[int, int, int], list[tuple[int, int, AppendDone, float]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, append: EncodedAppend, done: AppendDone, now: float) -> None:
        """Adds an append that was sent."""
        ref, length = append.ref, len(append.wire)
        item = (append.entry_count, length, done, now)
        waiting = self._waiting.setdefault((ref.id, ref.key, append.first_entry_id), [])
        waiting.append(item)
        self.bytes += length

    def oldest(self) -> float | None:
        """Returns the time at which the oldest unanswered append was sent; None without any."""
        return next(iter(self._waiting.values()))[0][3] if self._waiting else None

    def settle(self, results: Iterable[AppendResult]) -> None:
        """Reports results to the appends' callbacks. Raises UnexpectedResult; then the rest of `results` was
        not processed.
        """
        waiting_at = self._waiting
        for result in results:
            ledger, first, left = result.ledger, result.first_entry_id, result.entry_count
            code, reason = result.code, result.reason
            ledger_id, key = ledger.id, ledger.key
            while left > 0:
                place = (ledger_id, key, first)
                waiting = waiting_at.get(place)
                if waiting is None:
                    raise UnexpectedResult(f"about entry {ledger_id}:{first}, which nothing waits for")
                if len(waiting) == 1:
                    item = waiting[0]
                    if item[0] > left:
                        raise UnexpectedResult(f"about a part of what begins at entry {ledger_id}:{first}")
                    del waiting_at[place]
                else:
                    item = _take(waiting, left, ledger_id, first)
                count, length, done, _ = item
                self.bytes -= length
                first += count
                left -= count
                try:
                    done(code, reason)
                except Exception:
                    log.exception(
                        "a confirmation could not be handled", ledger=ledger_id, entry=first - count
                    )

    def fail_all(self, reason: str) -> None:
        """Fails all waiting appends, whose outcome will never be known."""
        waiting, self._waiting, self.bytes = self._waiting, {}, 0
        for (ledger_id, _, first), items in waiting.items():
            for _, _, done, _ in items:
                try:
                    done(UNREACHABLE, reason)
                except Exception:
                    log.exception("a lost append could not be handled", ledger=ledger_id, entry=first)


def _take(
    waiting: list[tuple[int, int, AppendDone, float]], left: int, ledger_id: int, first: int
) -> tuple[int, int, AppendDone, float]:
    """Removes and returns the oldest append from this entry with that count, else the oldest that fits."""
    fitting = [item for item in waiting if item[0] == left] or [item for item in waiting if item[0] < left]
    if not fitting:
        raise UnexpectedResult(f"about a part of what begins at entry {ledger_id}:{first}")
    waiting.remove(fitting[0])
    return fitting[0]
