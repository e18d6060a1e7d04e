"""Carries out a planned search: objects in a thread, brokers by the client, until a bound is reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import click
from magnetar.cli.search.broker_messages import messages_between
from magnetar.cli.search.search_bounds import ReadFromBrokers, SearchBounds
from magnetar.cli.search.search_plan import TIME_SLACK_MS, ColdStretch, HotStretch, TopicPlan, continuation
from magnetar.ledger.cold.search.chunk_contents import ChunkContents
from magnetar.ledger.cold.search.condition import MessagePosition, SearchedMessage

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.common.errors import MagnetarError
    from magnetar.ledger.cold.search.ledger_search import Looked

LookUp = Callable[[str], Awaitable[MessagePosition]]
"""Returns the position that a broker's admin API names, by the path below a topic."""

MESSAGES_AT_ONCE: Final = 100
"""Messages of a broker after which bounds are checked."""

_END: Final = 2**62


class TopicSearch:
    """The search in one topic or partition after another. After `run`, `stopped` and `following` tell where a
    bound ended it.
    """

    def __init__(
        self,
        client: Client,
        looked: Looked | None,
        bounds: SearchBounds,
        show: Callable[[SearchedMessage], None],
        *,
        on_unreadable: Callable[[MagnetarError], None] | None,
        advance: Callable[[int], None],
    ) -> None:
        """`looked` counts what is read of objects; it may be None if no plan has any. `advance` is called
        with the number of entries that were searched; `on_unreadable` as `LedgerSearch` calls it.
        """
        self._client = client
        self._looked = looked
        self._bounds = bounds
        self._show = show
        self._on_unreadable = on_unreadable
        self._advance = advance
        self._entries_before = 0
        self.entries_done = 0
        """Entries that were searched, about: of an open ledger the messages count."""
        self.brokers = ReadFromBrokers()
        self.stopped = ""
        """The bound that ended the search; empty: all was searched."""
        self.following = MessagePosition(0, 0)
        """If it was ended: the first position that was not searched, of `partition`."""
        self.partition = -1

    async def run(self, plan: TopicPlan, look_up: LookUp) -> None:
        """Searches one topic. Raises ClientError, ClickException, ObjectStoreError, DataCorruption."""
        chunks = ChunkContents()
        self.partition = plan.partition
        for stretch in plan.stretches:
            if isinstance(stretch, ColdStretch):
                found = self._in_objects(plan, stretch, chunks)
            else:
                found = self._in_brokers(plan, stretch, look_up)
            async with aclosing(found):
                async for messages, following in found:
                    self._show_until_bound(messages, following)
                    if self.stopped:
                        return

    def _show_until_bound(self, messages: list[SearchedMessage], following: MessagePosition) -> None:
        for message in messages:
            self._bounds.found += 1
            self._show(message)
            self.stopped = self._bounds.reached()
            if self.stopped:
                self.following = continuation(message.position)
                return
        self.stopped, self.following = self._bounds.reached(), following

    async def _in_objects(
        self, plan: TopicPlan, stretch: ColdStretch, chunks: ChunkContents
    ) -> AsyncGenerator[tuple[list[SearchedMessage], MessagePosition]]:
        from magnetar.ledger.cold.search.ledger_search import LedgerSearch

        assert self._looked is not None
        search = LedgerSearch(
            plan.topic,
            plan.partition,
            stretch.objects,
            plan.condition,
            chunks,
            self._looked,
            on_unreadable=self._on_unreadable,
        )
        steps = search.steps()
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            yield step.messages, step.following
            if step.following.ledger_id == stretch.objects.ledger_id:
                self._count(step.following.entry_id)
        self._end_stretch(stretch.entries)

    async def _in_brokers(
        self, plan: TopicPlan, stretch: HotStretch, look_up: LookUp
    ) -> AsyncGenerator[tuple[list[SearchedMessage], MessagePosition]]:
        condition = plan.condition
        first, last = await self._ends(plan, stretch, look_up)
        if first[:2] > last[:2]:
            return
        found: list[SearchedMessage] = []
        count = 0
        async with aclosing(messages_between(self._client, plan.topic, first, last)) as messages:
            async for message in messages:
                if message is None:
                    yield found, first
                    found = []
                    continue
                count += 1
                first = continuation(message.position)
                self.brokers.messages += 1
                self.brokers.bytes_read += len(message.payload)
                self.brokers.unsearchable += bool(message.unreadable and condition.text)
                if condition.matches(message):
                    found.append(message)
                if found or count % MESSAGES_AT_ONCE == 0:
                    yield found, first
                    found = []
                    self._count(count)
                until = None if condition.by_event_time else condition.until_ms
                if until is not None and message.publish_time_ms > until + TIME_SLACK_MS:
                    break
        yield found, MessagePosition(last.ledger_id, last.entry_id + 1)
        self._end_stretch(stretch.entries)

    def _count(self, entries: int) -> None:
        self.entries_done = self._entries_before + entries
        self._advance(self.entries_done)

    def _end_stretch(self, entries: int) -> None:
        self._entries_before += entries
        self._count(0)

    async def _ends(
        self, plan: TopicPlan, stretch: HotStretch, look_up: LookUp
    ) -> tuple[MessagePosition, MessagePosition]:
        """Returns the first and the last position to read; the last one is lower if there is none."""
        condition = plan.condition
        first = max(MessagePosition(stretch.first_ledger_id, 0), condition.start)
        if condition.since_ms is not None and not condition.by_event_time:
            since_ms = max(condition.since_ms - TIME_SLACK_MS, 0)
            first = max(first, await look_up(f"messageid/{since_ms}"))
        last = MessagePosition(stretch.last_ledger_id or 0, _END)
        if stretch.last_ledger_id is None:
            last = await look_up("lastMessageId")
        if condition.ledger_id is not None and condition.entry_id is not None:
            only = MessagePosition(condition.ledger_id, condition.entry_id)
            first, last = max(first, only), min(last, only._replace(batch_index=_END))
        return first, last


def missing_packages(error: ModuleNotFoundError) -> click.ClickException | None:
    """Returns the error for a package that reads objects and is not installed; None for another one."""
    if (error.name or "").partition(".")[0] not in ("pyarrow", "fsspec", "s3fs"):
        return None
    return click.ClickException(
        f"reading offloaded ledgers needs {error.name}, which is not installed: pip install pyarrow fsspec "
        "s3fs (in a clone: make setup-spark), or read them through brokers with --through-brokers"
    )
