"""`magnetar admin orphans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.http_client import ask, show
from magnetar.cli.admin.output import show_rows, time_text

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

PATH: Final = "/admin/magnetar/v1/orphans"
KINDS: Final = ("ledger", "topic-ledger", "topic", "partitioned-topic", "topic-policies", "schema")


@click.group()
def orphans() -> None:
    """List and delete ledgers and keys that metadata no longer references."""


@orphans.command(name="list")
@click.option("--look", is_flag=True, help="Scan now instead of showing the last scan.")
@click.pass_obj
def list_orphans(target: Target, look: bool) -> None:
    """List orphans, their age, and whether they may be deleted."""
    value = ask(target, "GET", PATH, query={"look": look or None}).value
    if target.output == "json":
        show(target, "Orphans", value)
        return
    rows = [_row(each) for each in value["orphans"]]
    show_rows(target, "Orphans", ("kind", "what", "reason", "bytes", "since", "settled"), rows)
    if value.get("halted"):
        click.echo(f"The broker does not delete orphans automatically: {value['halted']}.", err=True)
    if value.get("truncated"):
        click.echo("The list is truncated.", err=True)


def _row(orphan: dict[str, Any]) -> dict[str, Any]:
    return {**orphan, "since": time_text(orphan["since"]), "settled": "yes" if orphan["settled"] else "no"}


@orphans.command()
@click.option("--kind", type=click.Choice(KINDS), help="Only these orphans; default: all.")
@click.option("--yes", is_flag=True, help="Delete them; without it, only show what would be deleted.")
@click.pass_obj
def clear(target: Target, kind: str | None, yes: bool) -> None:
    """Scan now, and delete orphans older than magnetarOrphanAgeMinSeconds.

    Exits with 1 when a deletion failed.
    """
    value = ask(target, "POST", PATH, query={"dryRun": not yes, "kind": kind}).value
    if target.output == "json":
        show(target, "Orphans", value)
    else:
        done = "cleared" if yes else "to clear"
        rows = [{"key": key, "outcome": done} for key in value["cleared"]]
        rows += [{"key": key, "outcome": "failed"} for key in value["failed"]]
        show_rows(target, "Orphans", ("key", "outcome"), rows)
    if not yes and value["cleared"]:
        click.echo("Nothing was deleted; add --yes to delete.", err=True)
    if value["failed"]:
        raise click.ClickException("some orphans could not be deleted; see the broker's log")
