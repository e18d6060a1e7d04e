"""Topics of a namespace that match a pattern, and updates of them to clients.

Watchers of the same pattern share one `MatchingTopics`: each change is matched once and the hash computed
once. A watcher whose client does not read accumulates the difference and sends one update later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from magnetar.broker.peer import Peer
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.checksum import crc32c

UPDATE_INTERVAL_S: Final = 0.1
"""Seconds between two updates of a watcher; changes in between are combined."""


def topics_hash(names: Iterable[str]) -> str:
    """Pulsar's hash of a list of topics: CRC32-C of the sorted names, joined by commas.

    Written as its four bytes in little-endian order, in hexadecimal; sorted by UTF-16 units, as Java does.
    """
    ordered = sorted(names)
    joined = ",".join(ordered)
    if not joined.isascii():
        joined = ",".join(sorted(ordered, key=lambda name: name.encode("utf-16-be")))
    return crc32c(joined.encode()).to_bytes(4, "little").hex()


class MatchingTopics:
    """Full names of the topics that match one pattern now, and the watchers of it."""

    __slots__ = ("_hash", "pattern", "topics", "watchers")

    def __init__(self, pattern: TopicPattern, names: Iterable[TopicName]) -> None:
        self.pattern = pattern
        self.topics = {name.full for name in names if pattern.matches(name)}
        self.watchers: set[TopicListWatcher] = set()
        self._hash: str | None = None

    @property
    def hash(self) -> str:
        """`topics_hash` of the topics."""
        if self._hash is None:
            self._hash = topics_hash(self.topics)
        return self._hash

    def change(self, name: TopicName, there: bool) -> None:
        """Handles a created or deleted topic."""
        if there == (name.full in self.topics) or not self.pattern.matches(name):
            return
        if there:
            self.topics.add(name.full)
        else:
            self.topics.discard(name.full)
        self._hash = None
        for watcher in self.watchers:
            watcher.changed(name.full, there)


class TopicListWatcher:
    """One client's watch of a list of topics."""

    __slots__ = ("_added", "_begun", "_list", "_peer", "_removed", "_timer", "_told_at", "watcher_id")

    def __init__(self, watcher_id: int, peer: Peer, matching: MatchingTopics) -> None:
        self.watcher_id = watcher_id
        self._peer = peer
        self._list = matching
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._timer: asyncio.Handle | None = None
        self._told_at = float("-inf")
        self._begun = False
        matching.watchers.add(self)

    def begin(self) -> tuple[list[str], str]:
        """Returns the current topics, sorted, and their hash; updates cover later changes.

        Before the first call there are no updates.
        """
        self._begun = True
        self._added.clear()
        self._removed.clear()
        return sorted(self._list.topics), self._list.hash

    @property
    def matching(self) -> MatchingTopics:
        return self._list

    def close(self) -> None:
        """Ends updates to the client. Idempotent."""
        self._list.watchers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def changed(self, topic: str, there: bool) -> None:
        """Handles a created or deleted topic of the list."""
        if not self._begun:
            return
        now, before = (self._added, self._removed) if there else (self._removed, self._added)
        if topic in before:
            before.discard(topic)
        else:
            now.add(topic)
        self.wake()

    def wake(self) -> None:
        """Schedules an update: something changed, or the client's socket is writable again."""
        if self._timer is None and (self._added or self._removed) and self._peer.writable:
            loop = asyncio.get_running_loop()
            if loop.time() - self._told_at >= UPDATE_INTERVAL_S:
                self._timer = loop.call_soon(self._tell)
            else:
                self._timer = loop.call_at(self._told_at + UPDATE_INTERVAL_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if not self._peer.writable or not (self._added or self._removed):
            return
        self._told_at = asyncio.get_running_loop().time()
        added, self._added = self._added, set()
        removed, self._removed = self._removed, set()
        self._peer.write(
            commands.watch_topic_update(self.watcher_id, sorted(added), sorted(removed), self._list.hash)
        )
