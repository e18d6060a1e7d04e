"""Applies changed policies to loaded topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import compress, islice
from typing import Final

from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import MetadataError, NamespaceNotFound
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

READ_AT_ONCE: Final = 64
"""Topics whose policies are read at the same time: one by one, a change for many topics would take long."""

RETRY_S: Final = 1.0
"""Seconds before policies that could not be read are read again."""


class PolicyRefresher:
    """Tracks the topics with stale policies and applies the current ones."""

    def __init__(self, policies: PolicyStore, spawn: Spawn) -> None:
        self._policies = policies
        self._spawn = spawn
        self._stale: set[Topic] = set()
        self._fresh = asyncio.Event()

    def refresh(self, topics: Iterable[Topic]) -> None:
        """Marks the policies of these topics as stale."""
        running = bool(self._stale)
        self._stale.update(topics)
        if self._stale and not running:
            self._fresh.clear()
            self._spawn(self._refresh_stale(), "apply policies")

    async def applied(self, seconds_max: float) -> None:
        """Waits until every topic has the changed policies, or until `seconds_max` have passed."""
        if self._stale:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._fresh.wait(), seconds_max)

    async def _refresh_stale(self) -> None:
        """Refreshes all stale topics; a topic whose policies change meanwhile is read again."""
        while self._stale:
            generation = self._policies.generation
            topics = list(islice(self._stale, READ_AT_ONCE))
            done = await asyncio.gather(*map(self._refreshed, topics))
            if generation == self._policies.generation:
                self._stale.difference_update(compress(topics, done))
            if not any(done):
                await asyncio.sleep(RETRY_S)
        self._fresh.set()

    async def _refreshed(self, topic: Topic) -> bool:
        """Refreshes one topic; returns False when its policies cannot be read now."""
        try:
            topic.apply_policies(await self._policies.of_topic(topic.name))
        except NamespaceNotFound:
            pass  # the namespace is being deleted, with its topics
        except MetadataError as error:
            log.warning("policies cannot be read, retrying", topic=topic.name.full, error=str(error))
            return False
        except Exception:
            # A failure with one topic must not keep the others from their policies.
            log.exception("policies cannot be applied", topic=topic.name.full)
        return True
