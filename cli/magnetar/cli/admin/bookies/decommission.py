"""`magnetar admin bookies decommission`: records the request in metadata and follows its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click
from magnetar.bookie.autorecovery.prefix_view import PrefixView
from magnetar.cli.admin.bookies.listing import bookie_rows
from magnetar.cli.admin.metadata_access import with_metadata
from magnetar.cli.admin.output import on_terminal
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import Decommission, UnderReplicated, decode, encode
from magnetar.common.runtime.clock import SystemClock

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

Report = Callable[[int, int], None]
"""(ledgers moved, total ledgers); the total is 0 until the ledgers are counted."""


def decommission(target: Target, bookie_id: str, *, wait: bool) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        await _ask(metadata, keys, bookie_id)
        if not wait:
            click.echo(f"{bookie_id} is being decommissioned; `magnetar admin bookies show {bookie_id}`")
            return 0
        with ExitStack() as drawn:
            await _follow(metadata, keys, bookie_id, _report(target, bookie_id, drawn))
        if await metadata.get(keys.cookie(bookie_id)) is not None:
            raise click.ClickException(f"the decommission was canceled: {bookie_id} stays")
        click.echo(f"{bookie_id} is decommissioned: stop its process and delete its data")
        return 0

    with_metadata(target, run)


def recommission(target: Target, bookie_id: str) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        found = await metadata.get(keys.decommission(bookie_id))
        if found is None:
            raise click.ClickException(f"{bookie_id} is not being decommissioned")
        await metadata.delete(found.key, found.version)
        click.echo(f"{bookie_id} stays")
        return 0

    with_metadata(target, run)


async def _ask(metadata: MetadataStore, keys: Keys, bookie_id: str) -> None:
    """Record the decommission request, unless it exists already."""
    rows = await bookie_rows(metadata, keys)
    row = next((each for each in rows if each["id"] == bookie_id), None)
    if row is None:
        raise click.ClickException(
            f"bookie {bookie_id!r} not found; `magnetar admin bookies list` shows all bookies"
        )
    if row["state"] == "decommissioned":
        raise click.ClickException(f"{bookie_id} is decommissioned already: stop its process")
    if await metadata.get(keys.decommission(bookie_id)) is not None:
        return
    if not any(each["state"] == "up" and each["id"] != bookie_id for each in rows):
        raise click.ClickException(f"no other bookie is up and writable to take what {bookie_id} holds")
    wish = Decommission(bookie_id=bookie_id, created_ms=SystemClock().wall_ms())
    await metadata.put(keys.decommission(bookie_id), encode(wish), ABSENT)


async def _follow(metadata: MetadataStore, keys: Keys, bookie_id: str, report: Report) -> None:
    """Report progress until the request is removed from metadata."""
    news = asyncio.Event()
    left: set[int] = set()

    def on_mark(ledger_id: int, missing: tuple[str, ...] | None) -> None:
        if missing is not None and bookie_id in missing:
            left.add(ledger_id)
        else:
            left.discard(ledger_id)
        news.set()

    def on_wish(name: str, ledgers: int | None) -> None:
        news.set()

    marks: PrefixView[int, tuple[str, ...]] = PrefixView(
        metadata,
        keys.under_replicated_prefix,
        keys.under_replicated_of,
        lambda data, version: tuple(decode(UnderReplicated, data).missing_bookie_ids),
        on_mark,
    )
    wishes: PrefixView[str, int] = PrefixView(
        metadata,
        keys.decommissions_prefix,
        keys.decommission_of,
        lambda data, version: decode(Decommission, data).ledgers,
        on_wish,
    )
    following = [asyncio.ensure_future(view.run()) for view in (marks, wishes)]
    total = 0
    try:
        await asyncio.gather(marks.listed.wait(), wishes.listed.wait())
        while (counted := wishes.get(bookie_id)) is not None:
            total = max(total, counted, len(left))
            report(total - len(left), total)
            await news.wait()
            news.clear()
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


def _report(target: Target, bookie_id: str, drawn: ExitStack) -> Report:
    """A progress bar on a terminal; otherwise a line for each change."""
    if not on_terminal(target):
        last = [(-1, -1)]

        def tell(moved: int, total: int) -> None:
            if total and (moved, total) != last[0]:
                last[0] = moved, total
                click.echo(f"{bookie_id}: {moved} of {total} ledgers moved")

        return tell

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = drawn.enter_context(
        Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    )
    bar = progress.add_task(f"ledgers moved off {bookie_id}", total=None)

    def draw(moved: int, total: int) -> None:
        progress.update(bar, completed=moved, total=total or None)

    return draw
