"""`magnetar admin ledgers`: ledgers whose recovery is stuck, and operators' decisions on them.

Recovery closes a ledger at the last entry once enough bookies confirm that no entry follows. While bookies
are in doubt or lost, recovery waits, and the topic is unavailable. An operator can close such a ledger here.
The decision is recorded in the same transaction as the close.
"""

from __future__ import annotations

import getpass
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from magnetar.cli.admin.bookie_options import BookieOptions, bookie_options
from magnetar.cli.admin.metadata_access import with_metadata
from magnetar.cli.admin.output import Row, show_facts, show_rows, time_text
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import ABSENT, MetadataStore, Put
from magnetar.common.metadata.values import LedgerDecision, LedgerMetadata, decode, encode
from magnetar.common.obs.logs import configure, get_logger
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.security.services.credentials import loaded
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.managed_ledger.lost_segments import lost_segments
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.placement import Placement
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.ledger.quorum.reader import ReadContext, ReadOptions
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.stuck_ledgers import Examined, examine

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

log = get_logger(__name__)

STUCK: Final = ("ledger", "confirmed_until", "found_until", "bookies_in_doubt", "could_be_lost")
LOST: Final = ("topic", "ledger", "first", "last", "entries")
DECISIONS: Final = ("ledger", "ended_at", "confirmed_until", "when", "by", "reason", "bookies_said")


@click.group()
def ledgers() -> None:
    """Close ledgers whose recovery is stuck, list such decisions, and list lost ledgers."""


@ledgers.command()
@bookie_options
@click.pass_obj
def stuck(target: Target, bookies: BookieOptions) -> None:
    """List ledgers whose recovery waits for bookies that are in doubt or unavailable.

    Reads the metadata of all ledgers and queries the bookies of ledgers under recovery. Read-only.
    """

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        rows = []
        async with _bookies(metadata, keys, bookies) as cluster:
            async for page in ledger_pages(metadata, keys):
                for item in page.items:
                    value = decode(LedgerMetadata, item.value)
                    if value.state == LedgerMetadata.IN_RECOVERY:
                        found = await examine(value, cluster.clients)
                        if not found.decided:
                            rows.append(_stuck_row(found))
        show_rows(target, f"Ledgers with a stuck recovery: {len(rows)}", STUCK, rows)
        return 0

    with_metadata(target, run)


@ledgers.command()
@click.pass_obj
def lost(target: Target) -> None:
    """List segments of compacted views whose ledgers are gone; exit with 1 if there are any.

    The next compaction of the topic makes a segment anew if the topic still has all messages from there on.
    Until then readers of the view get an error. Read-only.
    """

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        found = await lost_segments(metadata, keys)
        rows: list[Row] = [
            {
                "topic": each.topic,
                "ledger": each.ledger_id,
                "first": "" if each.first is None else str(each.first),
                "last": "" if each.last is None else str(each.last),
                "entries": each.entries,
            }
            for each in found
        ]
        show_rows(target, f"Lost segments of compacted views: {len(rows)}", LOST, rows)
        return 1 if found else 0

    with_metadata(target, run)


@ledgers.command()
@click.argument("ledger_id", type=click.IntRange(min=0), metavar="LEDGER")
@click.option(
    "--at",
    type=click.IntRange(min=-1),
    required=True,
    metavar="ENTRY",
    help="Last entry to keep: between `confirmed_until` and `found_until` of `ledgers stuck`; -1: none.",
)
@click.option("--reason", required=True, metavar="TEXT", help="Reason for the decision; recorded.")
@click.option("--yes", is_flag=True, help="Close the ledger; without it, only show what could be lost.")
@bookie_options
@click.pass_obj
def end(target: Target, ledger_id: int, at: int, reason: str, yes: bool, bookies: BookieOptions) -> None:
    """Close a ledger whose recovery is stuck.

    Entries after ENTRY are removed from the topic, even if an unavailable bookie had confirmed them. The old
    writer must have stopped. The decision is recorded; `ledgers decisions` lists it.
    """

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        found = await metadata.get(keys.ledger(ledger_id))
        if found is None:
            raise click.ClickException(f"ledger {ledger_id} not found")
        value = decode(LedgerMetadata, found.value)
        if value.state != LedgerMetadata.IN_RECOVERY:
            state = LedgerMetadata.State.Name(value.state)
            raise click.ClickException(f"ledger {ledger_id} is {state}, and its recovery is not stuck")
        async with _bookies(metadata, keys, bookies) as cluster:
            seen = await examine(value, cluster.clients)
            if seen.decided:
                raise click.ClickException(
                    f"ledger {ledger_id} needs no decision: recovery closes it at entry {seen.last_found}"
                )
            if not seen.last_confirmed <= at <= seen.last_found:
                raise click.ClickException(
                    f"ledger {ledger_id} cannot be closed at entry {at}: entries up to "
                    f"{seen.last_confirmed} are confirmed,"
                    f" and none after {seen.last_found} can be read"
                )
            lost = _could_be_lost(seen, at)
            if not yes:
                show_facts(
                    target,
                    f"Ledger {ledger_id}",
                    {"end_at": at, "could_be_lost": lost, "done": "no: --yes does it"},
                )
                return 0
            decision = await cluster.end(seen, at, reason)
        show_facts(target, f"Ledger {ledger_id}", {**_decision_row(decision), "could_be_lost": lost})
        return 0

    with_metadata(target, run)


@ledgers.command()
@click.pass_obj
def decisions(target: Target) -> None:
    """List operators' decisions: ledger, last entry, time, user and reason."""

    async def run(metadata: MetadataStore, keys: Keys) -> int:
        items = (await metadata.children(keys.ledger_decisions_prefix)).items
        rows = [_decision_row(decode(LedgerDecision, item.value)) for item in items]
        show_rows(target, f"Decisions of {target.cluster}", DECISIONS, rows)
        return 0

    with_metadata(target, run)


@dataclass(frozen=True, slots=True)
class _Cluster:
    metadata: MetadataStore
    keys: Keys
    registry: BookieRegistry
    clients: GrpcBookieClients

    async def end(self, seen: Examined, at: int, reason: str) -> LedgerDecision:
        """Close the ledger at an entry, and record the decision with its user."""
        clock, rng = SystemClock(), random.SystemRandom()
        config = QuorumConfig()
        decision = decision_of(seen, at, reason, clock.wall_ms())
        recovery = LedgerRecovery(
            LedgerCatalog(self.metadata, self.keys, clock, rng),
            self.metadata,
            self.keys,
            ReadContext(self.clients, ReplicaOrder(clock), ReadOptions()),
            Placement(self.registry, Quarantine(clock, config), rng, config).replacement,
            clock,
        )
        record = Put(self.keys.ledger_decision(seen.ref.id), encode(decision), ABSENT)
        try:
            _, closed = await recovery.recover(
                seen.ref, lambda closed: [record] if closed.last_entry_id == at else [], decided_end=at
            )
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if closed.last_entry_id != at:
            raise click.ClickException(
                f"ledger {seen.ref.id} was closed at entry {closed.last_entry_id} by another process "
                "in the meantime"
            )
        log.warning(
            "a ledger was closed by an operator's decision",
            ledger=seen.ref.id,
            last=at,
            by=decision.decided_by,
        )
        return decision


def decision_of(seen: Examined, at: int, reason: str, now_ms: int) -> LedgerDecision:
    """Return the record of a decision by this process's user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    decision = LedgerDecision(
        last_entry_id=at,
        last_confirmed=seen.last_confirmed,
        decided_by=f"{user}@{socket.gethostname()}",
        reason=reason,
        decided_ms=now_ms,
        said=seen.said,
    )
    decision.ref.id, decision.ref.key = seen.ref.id, seen.ref.key
    return decision


@asynccontextmanager
async def _bookies(metadata: MetadataStore, keys: Keys, options: BookieOptions) -> AsyncIterator[_Cluster]:
    configure(level="warning")  # Standard error: programs parse standard output.
    async with AsyncExitStack() as opened:
        registry = BookieRegistry(metadata, keys)
        opened.push_async_callback(registry.close)
        await registry.start()
        clients = GrpcBookieClients(registry.address, tls=loaded(options.tls))
        opened.push_async_callback(clients.close)
        yield _Cluster(metadata, keys, registry, clients)


def _stuck_row(found: Examined) -> Row:
    return {
        "ledger": found.ref.id,
        "confirmed_until": found.last_confirmed,
        "found_until": found.last_found,
        "bookies_in_doubt": [f"{bookie}: {found.said[bookie]}" for bookie in found.in_doubt],
        "could_be_lost": _could_be_lost(found, found.last_found),
    }


def _could_be_lost(found: Examined, at: int) -> str:
    """Return a text about what closing at an entry could lose."""
    costs = []
    if at < found.last_found:
        costs.append(f"entries {at + 1} to {found.last_found}, which exist and may have been confirmed")
    after = max(at, found.last_found) + 1
    costs.append(f"entries from {after} on that only {', '.join(found.in_doubt)} stored")
    return "; ".join(costs)


def _decision_row(decision: LedgerDecision) -> Row:
    return {
        "ledger": decision.ref.id,
        "ended_at": decision.last_entry_id,
        "confirmed_until": decision.last_confirmed,
        "when": time_text(decision.decided_ms),
        "by": decision.decided_by,
        "reason": decision.reason,
        "bookies_said": [f"{bookie}: {what}" for bookie, what in sorted(decision.said.items())],
    }
