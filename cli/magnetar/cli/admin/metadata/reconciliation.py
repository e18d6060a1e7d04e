"""Comparison of restored metadata with bookies, for `magnetar admin metadata`."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import click
from magnetar.bookie.restoration.inventory import take_inventory
from magnetar.bookie.restoration.reconciler import Findings, Reconciler, bookies_to_ask
from magnetar.bookie.restoration.reconciler import release as release_restoration
from magnetar.bookie.restoration.subscriptions import forget_subscriptions as forget
from magnetar.bookie.restoration.unreferenced_ledgers import entries_of
from magnetar.cli.admin.bookie_options import BookieOptions
from magnetar.cli.admin.metadata.backup import restoration_facts, say_what_next
from magnetar.cli.admin.metadata_access import with_metadata
from magnetar.cli.admin.output import Row, show_facts, show_rows
from magnetar.cli.progress import progress_bar
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import read_restoration
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Restoration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import configure
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.security.services.credentials import CredentialFiles, loaded
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_SHOWN_MAX: Final = 1_000
"""Maximum number of ledgers of a kind that are listed; the others are counted."""


def status(target: Target, *, look: bool, bookies: BookieOptions) -> None:
    """Show the progress of a restore; with `look`, compare it with the ledgers on bookies."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        record = await read_restoration(metadata, keys)
        if record is None:
            show_facts(target, f"Metadata of {target.cluster}", {"state": "never restored"})
            return 0
        if not look:
            show_facts(target, f"Metadata of {target.cluster}", restoration_facts(record))
            say_what_next(record)
            return 0
        found = await _compare(metadata, keys, bookies, mend=False)
        _show(target, record, found, mended=False)
        return 0

    with_metadata(target, run)


def reconcile(target: Target, *, leave: Sequence[int], bookies: BookieOptions) -> None:
    """Compare and repair; the exit code is 1 when an unrepaired ledger is not in `leave`."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        found = await _compare(metadata, keys, bookies, mend=True, leave=leave)
        record = await read_restoration(metadata, keys)
        assert record is not None, "the reconciler observed the restore"
        _show(target, record, found, mended=True)
        left = found.problems.keys() - set(leave)
        if left:
            click.echo(
                "Some ledgers could not be repaired: see the reasons above, fix them, and run this again. "
                "Leave a ledger that cannot be repaired with --leave LEDGER: its topic may end early "
                "there.",
                err=True,
            )
        else:
            say_what_next(record)
        return 1 if left else 0

    with_metadata(target, run)


def release(target: Target, *, discard: bool, bookies: BookieOptions) -> None:
    """Release ledgers that metadata lacks, unless the number is unexpected."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        if (await metadata.children(keys.cookies_prefix)).items and not discard:
            found = await _compare(metadata, keys, bookies, mend=False)
            if found.unnamed:
                entries = sum(each.entries for each in found.unnamed)
                raise click.ClickException(
                    f"{len(found.unnamed)} ledgers with {entries} entries were made since the copy, and "
                    "their topic is unknown: `magnetar admin metadata status --look` lists them, "
                    "`read-unnamed` prints their messages; --discard deletes them"
                )
            if found.missing:
                raise click.ClickException(
                    f"{len(found.missing)} ledgers in metadata are on no bookie: `magnetar admin "
                    "metadata status --look` lists them. What was offloaded since the copy has its only "
                    "copy in the object store, and would be swept (`scanOffloadedLedgers` lists it); "
                    "--discard allows that"
                )
            if found.brought_home:
                raise click.ClickException(
                    f"{len(found.brought_home)} ledgers have entries on bookies that metadata does "
                    "not name: run "
                    "`magnetar admin metadata reconcile` first"
                )
        record = await release_restoration(metadata, keys, SystemClock())
        show_facts(target, f"Metadata of {target.cluster}", restoration_facts(record))
        return 0

    with_metadata(target, run)


def forget_subscriptions(target: Target, topic: str, *, bookies: BookieOptions) -> None:
    """Let a topic load although its cursors are lost."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        name = TopicName.parse(topic)
        async with _reached(metadata, keys, bookies.tls) as (registry, clients):
            asked = await bookies_to_ask(metadata, keys, registry, bookies.without)
            inventory = await take_inventory(clients, asked)
        ledger_id = await forget(metadata, keys, inventory, name)
        show_facts(target, name.full, {"subscriptions": "forgotten", "cursor_ledger": ledger_id})
        click.echo(
            "The topic loads without subscriptions and keeps its messages until `magnetar admin metadata "
            "release`. Consumers create new subscriptions, usually at the end: `magnetar admin "
            "topics reset-cursor` "
            "moves them to the right position.",
            err=True,
        )
        return 0

    with_metadata(target, run)


def read_unnamed(target: Target, ledger_id: int, *, bookies: BookieOptions) -> None:
    """Print the messages of a ledger that is only on bookies."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        from magnetar.cli.message_output import facts_of
        from magnetar.client.connection.frames import Delivery, parse_entry
        from magnetar.client.consumer.decoding import stored_entry_decoder

        decoder, bad = stored_entry_decoder(""), 0
        async with _reached(metadata, keys, bookies.tls) as (registry, clients):
            able = sorted(set(registry.bookies) - set(bookies.without))
            inventory = await take_inventory(clients, able)
            refs = [ref for ref in inventory if ref.id == ledger_id]
            if not refs:
                raise click.ClickException(f"no bookie holds entries of ledger {ledger_id}")
            for ref in refs:
                async for entry_id, entry in entries_of(clients, ref, inventory.of(ref)):
                    if entry is None:
                        bad += 1
                        print(
                            json.dumps(
                                {"entryId": entry_id, "unreadable": "no bookie stores it, or it is damaged"}
                            )
                        )
                        continue
                    for message in decoder.messages(
                        Delivery(0, ref.id, entry_id, 0, (), -1, parse_entry(entry))
                    )[0]:
                        if message.unreadable and not message.producer_name:
                            bad += 1
                            # Cursors are stored in ledgers as well.
                            print(json.dumps({"entryId": entry_id, "unreadable": message.unreadable}))
                        else:
                            print(json.dumps(facts_of(message, as_hex=False, hide_content=False)))
        return 1 if bad else 0

    with_metadata(target, run)


def _show(target: Target, record: Restoration, found: Findings, *, mended: bool) -> None:
    facts: Row = {
        **restoration_facts(record),
        "bookies": found.bookies,
        "ledgers": found.ledgers,
        ("brought_home" if mended else "to_bring_home"): len(found.brought_home),
        "problems": len(found.problems),
        "missing": len(found.missing),
        "unnamed": len(found.unnamed),
        "unnamed_entries": sum(each.entries for each in found.unnamed),
        "garbage": found.garbage,
    }
    rows: list[Row] = [
        {"ledger": ledger_id, "kind": "problem", "entries": None, "where": "", "what": reason}
        for ledger_id, reason in found.problems.items()
    ]
    rows += [
        {
            "ledger": each.ledger_id,
            "kind": "missing",
            "entries": each.entries,
            "where": "",
            "what": f"cursors of {each.topic}, which does not load" if each.cursors else each.topic,
        }
        for each in found.missing
    ]
    rows += [
        {
            "ledger": each.ref.id,
            "kind": "unnamed",
            "entries": each.entries,
            "where": ", ".join(each.bookies),
            "what": f"{each.byte_length} bytes" + (f", created for {each.topic}" if each.topic else ""),
        }
        for each in found.unnamed
    ]
    if target.output == "json":
        print(json.dumps({**facts, "found": rows}, indent=2))
        return
    show_facts(target, f"Metadata of {target.cluster}", facts)
    if rows:
        show_rows(target, "Ledgers", ("ledger", "kind", "entries", "where", "what"), rows[:_SHOWN_MAX])
    if len(rows) > _SHOWN_MAX:
        click.echo(f"{len(rows) - _SHOWN_MAX} more; --json has all of them", err=True)


async def _compare(
    metadata: MetadataStore,
    keys: Keys,
    bookies: BookieOptions,
    *,
    mend: bool,
    leave: Sequence[int] = (),
) -> Findings:
    async with _reached(metadata, keys, bookies.tls) as (registry, clients):
        with progress_bar("ledgers compared", None) as advance:
            reconciler = Reconciler(
                metadata, keys, registry, clients, SystemClock(), random.SystemRandom(), progress=advance
            )
            return await reconciler.compare(without=bookies.without, mend=mend, leave=leave)


@asynccontextmanager
async def _reached(
    metadata: MetadataStore, keys: Keys, tls: CredentialFiles | None
) -> AsyncIterator[tuple[BookieRegistry, GrpcBookieClients]]:
    configure(level="warning")  # Standard error: programs parse standard output.
    async with AsyncExitStack() as opened:
        registry = BookieRegistry(metadata, keys)
        opened.push_async_callback(registry.close)
        await registry.start()
        clients = GrpcBookieClients(registry.address, registry.directory, tls=loaded(tls))
        opened.push_async_callback(clients.close)
        yield registry, clients
