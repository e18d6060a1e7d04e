"""Bookies and under-replicated ledgers in metadata, for `magnetar admin bookies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from magnetar.cli.admin.metadata_access import with_metadata
from magnetar.cli.admin.output import Row, show_facts, show_rows, time_text
from magnetar.common.cluster.bookie_states import bookie_states
from magnetar.common.cluster.under_replication import read_auditor, read_under_replication
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger.quorum.repair_plan import open_fragment, settled_fragments, striping_of

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

COLUMNS = ("id", "state", "rack", "address", "free_bytes", "up_since", "ledgers_to_move")


async def bookie_rows(metadata: MetadataStore, keys: Keys) -> list[Row]:
    """Every bookie with an identity, a registration, or a decommission request, by id."""
    rows = []
    for bookie in await bookie_states(metadata, keys):
        registration, request = bookie.registration, bookie.decommission
        rows.append(
            {
                "id": bookie.bookie_id,
                "state": bookie.state,
                "rack": registration.rack if registration else "",
                "address": registration.address if registration else "",
                "free_bytes": registration.free_bytes if registration else None,
                "up_since": time_text(registration.started_ms) if registration else "",
                "ledgers_to_move": request.ledgers if request is not None and request.audited_ms else None,
            }
        )
    return rows


async def known_bookie_rows(target: Target, metadata: MetadataStore, keys: Keys) -> list[Row]:
    """Return `bookie_rows`. Raises ClickException without any bookie: the cluster's name is wrong."""
    rows = await bookie_rows(metadata, keys)
    if not rows:
        raise click.ClickException(
            f"cluster {target.cluster!r} has no bookies in {target.metadata_url}; name it with --cluster or "
            "MAGNETAR_CLUSTER_NAME (clusterName of its brokers; `magnetar admin clusters list` shows it)"
        )
    return rows


def list_bookies(target: Target) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        rows = await known_bookie_rows(target, metadata, keys)
        show_rows(target, f"Bookies of {target.cluster}", COLUMNS, rows)
        return 0

    with_metadata(target, run)


def show_bookie(target: Target, bookie_id: str) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        known = await known_bookie_rows(target, metadata, keys)
        rows = [row for row in known if row["id"] == bookie_id]
        if not rows:
            raise click.ClickException(
                f"bookie {bookie_id!r} not found; `magnetar admin bookies list` shows all bookies"
            )
        facts = {**rows[0], **await _share(metadata, keys, bookie_id)}
        show_facts(target, f"Bookie {bookie_id}", facts)
        return 0

    with_metadata(target, run)


async def _share(metadata: MetadataStore, keys: Keys, bookie_id: str) -> Row:
    """The share of all ledgers that metadata assigns to a bookie."""
    ledgers = fragments = entries = open_fragments = gaps = 0
    async for page in ledger_pages(metadata, keys):
        for item in page.items:
            ledger = decode(LedgerMetadata, item.value)
            named = False
            for fragment in settled_fragments(ledger):
                if bookie_id in fragment.bookie_ids:
                    named = True
                    fragments += 1
                    position = fragment.bookie_ids.index(bookie_id)
                    shares = striping_of(ledger).shares(position, fragment.first, fragment.last)
                    entries += sum(last - first + 1 for first, last in shares)
            tail = open_fragment(ledger)
            if tail is not None and bookie_id in tail.bookie_ids:
                named = True
                open_fragments += 1
            gaps += sum(gap.bookie_id == bookie_id for gap in ledger.gaps)
            ledgers += named
    return {
        "ledgers": ledgers,
        "closed_fragments": fragments,
        "entries_in_closed_fragments": entries,
        "open_fragments": open_fragments,
        "gaps": gaps,
    }


def under_replicated(target: Target, limit: int) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        marked = (await read_under_replication(metadata, keys)).ledgers
        rows = [
            {
                "ledger": each.ledger_id,
                "missing_bookies": list(each.missing),
                "since": time_text(each.since_ms),
                "copied_by": each.copied_by,
            }
            for each in marked[:limit]
        ]
        show_rows(
            target,
            f"Under-replicated ledgers of {target.cluster}: {len(marked)}",
            ("ledger", "missing_bookies", "since", "copied_by"),
            rows,
        )
        if len(marked) > limit:
            click.echo(f"{len(marked) - limit} more; --limit shows them", err=True)
        return 0

    with_metadata(target, run)


def recover_status(target: Target) -> None:
    async def run(metadata: MetadataStore, keys: Keys) -> int:
        auditor = await read_auditor(metadata, keys)
        under_replication = await read_under_replication(metadata, keys)
        rows = await known_bookie_rows(target, metadata, keys)
        facts = {
            "auditor": auditor.bookie_id if auditor else "none: no bookie with auto-recovery is up",
            "auditor_epoch": auditor.epoch if auditor else None,
            "auditor_since": time_text(auditor.since_ms) if auditor else "",
            "bookies_up": sum(bool(row["address"]) for row in rows),
            "bookies_down": [row["id"] for row in rows if row["state"] == "down"],
            "bookies_decommissioning": [row["id"] for row in rows if row["state"] == "decommissioning"],
            "under_replicated_ledgers": len(under_replication.ledgers),
            "ledgers_in_progress": under_replication.in_progress,
        }
        show_facts(target, f"Auto-recovery of {target.cluster}", facts)
        return 0

    with_metadata(target, run)
