"""The backlog of a persistent topic, in bytes and by age.

The slowest durable subscription counts. Bytes are estimated as in Apache Pulsar: exact for whole ledgers,
averaged within one. The age is based on the broker's publish time. Storage is read only when the oldest entry
has changed since the last call, so repeated calls for an idle topic cost one comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.common.errors import StorageError
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

UNKNOWN_AGE_S: Final = -1


class Backlog:
    """Measures the backlogs of one topic's subscriptions."""

    __slots__ = ("_ledger", "_oldest", "_subscriptions")

    def __init__(self, ledger: ManagedLedger, subscriptions: Mapping[str, Subscription]) -> None:
        """`ledger` and `subscriptions` are those of the topic; borrowed."""
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._oldest: tuple[Position, int] | None = None
        # Position and publish time (ms) of the oldest backlog entry at the last read.

    def slowest(self) -> Subscription | None:
        """The durable subscription that is furthest behind; None without any."""
        durable = [each for each in self._subscriptions.values() if each.cursor.durable]
        return min(durable, key=_mark_of, default=None)

    def slowest_mark(self) -> Position | None:
        """The mark-delete position of the slowest durable subscription; None without any."""
        found = self.slowest()
        return None if found is None else found.cursor.mark_delete

    @property
    def byte_length(self) -> int:
        """Approximate backlog of the slowest durable subscription in bytes; 0 without any."""
        mark = self.slowest_mark()
        return 0 if mark is None else self._ledger.spans.bytes_after(mark)

    # Publish times

    def known_last_publish_ms(self) -> int:
        """Publish time of the topic's last message, if it is in memory; otherwise, and without one, 0."""
        filled = (span for span in reversed(self._ledger.spans.spans) if span.entries)
        last = next(filled, None)
        return 0 if last is None else last.max_publish_time_ms

    async def last_publish_ms(self) -> int:
        """Publish time of the topic's last message, read from storage if needed; 0 when that fails."""
        known = self.known_last_publish_ms()
        if known or not self._ledger.entries:
            return known
        try:
            runs = (await self._ledger.read(self._ledger.last_position, 1, 1, uncommitted=True)).runs
        except StorageError:
            return 0
        return runs[-1].publish_time_ms if runs else 0

    def known_oldest_age_s(self, now_ms: int) -> int:
        """Age of the oldest message in a backlog, if it is in memory; otherwise, and without one, -1."""
        mark, oldest = self.slowest_mark(), self._oldest
        if mark is None or oldest is None or self._ledger.next_stored(mark) != oldest[0]:
            return UNKNOWN_AGE_S
        return max(0, (now_ms - oldest[1]) // 1000)

    async def oldest_age_s(self, now_ms: int) -> int:
        """Age of the oldest message in a backlog; -1 without one. Raises StorageError."""
        mark = self.slowest_mark()
        published_ms = None if mark is None else await self.publish_time_after(mark)
        return UNKNOWN_AGE_S if published_ms is None else max(0, (now_ms - published_ms) // 1000)

    def note_oldest(self) -> None:
        """Caches the publish time of the oldest backlog entry, if that needs no read."""
        mark = self.slowest_mark()
        following = None if mark is None else self._ledger.next_stored(mark)
        if following is None or (self._oldest is not None and self._oldest[0] == following):
            return
        run = self._ledger.read_cached(following, 1, 1)
        if run is not None:
            self._oldest = (following, run.publish_time_ms)

    async def publish_time_after(self, position: Position) -> int | None:
        """The publish time of the first entry after a position, in ms; None when there is none.

        Entries of open transactions count. Raises StorageError when it cannot be read.
        """
        following = self._ledger.next_stored(position)
        if following is None:
            return None
        known = self._oldest
        if known is not None and known[0] == following:
            return known[1]
        published_ms = await self._publish_time(following)
        if published_ms is not None:
            self._oldest = (following, published_ms)
        return published_ms

    async def publish_time_at(self, position: Position) -> int | None:
        """Returns what `publish_time_after` does, for any subscription: the cached entry stays that of the
        slowest one. Raises StorageError.
        """
        following, known = self._ledger.next_stored(position), self._oldest
        if following is None:
            return None
        if known is not None and known[0] == following:
            return known[1]
        return await self._publish_time(following)

    async def _publish_time(self, position: Position) -> int | None:
        """Returns the publish time of the entry at a position, in ms; None when there is none. Raises
        StorageError.
        """
        run = self._ledger.read_cached(position, 1, 1)
        if run is None:
            runs = (await self._ledger.read(position, 1, 1, uncommitted=True)).runs
            if not runs:
                return None
            run = runs[0]
        return run.publish_time_ms

    async def earliest_by_subscription(self) -> dict[str, int]:
        """Returns the publish time of the oldest message in each backlog, in ms, by subscription. Raises
        StorageError.

        The slowest subscription is read last, so its entry is the cached one.
        """
        found = {}
        for subscription in sorted(self._subscriptions.values(), key=_mark_of, reverse=True):
            published_ms = await self.publish_time_after(subscription.cursor.mark_delete)
            if published_ms is not None:
                found[subscription.name] = published_ms
        return found

    # Skipping

    def position_of_last_bytes(self, size: int) -> Position:
        """Returns the position that has about `size` bytes after it."""
        return self._ledger.spans.position_before_last(size)

    async def position_before(self, published_ms: int) -> Position:
        """Returns the last position before the messages published at `published_ms` or later. Raises
        StorageError.
        """
        return await self._ledger.find_before_publish_time(published_ms)

    def skip_to(self, target: Position) -> int:
        """Moves durable subscriptions that are behind `target` to it; returns the entries skipped.

        Stops before the entries of open transactions.
        """
        target = min(target, self._ledger.read_limit())
        skipped = 0
        for subscription in list(self._subscriptions.values()):
            if subscription.cursor.durable and subscription.cursor.mark_delete < target:
                skipped += subscription.skip_to(target)
        return skipped


def _mark_of(subscription: Subscription) -> Position:
    return subscription.cursor.mark_delete
