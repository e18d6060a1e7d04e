"""Gives loaded topics their policies as they are now, after those of a topic or of many have changed."""

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
"""Topics whose policies are read at the same time: one by one, those of many would come late."""

RETRY_S: Final = 1.0
"""After policies that could not be read, before the next try."""


class PolicyRefresher:
    """Knows whose policies are stale."""

    def __init__(self, policies: PolicyStore, spawn: Spawn) -> None:
        self._policies = policies
        self._spawn = spawn
        self._stale: set[Topic] = set()
        self._fresh = asyncio.Event()

    def refresh(self, topics: Iterable[Topic]) -> None:
        """The policies of these topics may be others now."""
        running = bool(self._stale)
        self._stale.update(topics)
        if self._stale and not running:
            self._fresh.clear()
            self._spawn(self._refresh_stale(), "apply policies")

    async def applied(self, seconds_max: float) -> None:
        """Return once every topic has the policies that are known to have changed, or time is up."""
        if self._stale:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._fresh.wait(), seconds_max)

    async def _refresh_stale(self) -> None:
        """A topic whose policies change meanwhile is read again."""
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
        """False when its policies cannot be read now."""
        try:
            topic.apply_policies(await self._policies.of_topic(topic.name))
        except NamespaceNotFound:
            pass  # it is being deleted, and its topics with it
        except MetadataError as error:
            log.warning("policies cannot be read, trying again", topic=topic.name.full, error=str(error))
            return False
        except Exception:
            # Nothing that is wrong with one topic's keeps the others from theirs.
            log.exception("policies cannot be applied", topic=topic.name.full)
        return True
