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
    """Ledgers and keys that metadata no longer references."""


@orphans.command(name="list")
@click.option("--look", is_flag=True, help="Look now, instead of telling what the last look found.")
@click.pass_obj
def list_orphans(target: Target, look: bool) -> None:
    """The orphans found, since when, and whether they may be cleared."""
    value = ask(target, "GET", PATH, query={"look": look or None}).value
    if target.output == "json":
        show(target, "Orphans", value)
        return
    rows = [_row(each) for each in value["orphans"]]
    show_rows(target, "Orphans", ("kind", "what", "reason", "bytes", "since", "settled"), rows)
    if value.get("halted"):
        click.echo(f"The broker clears nothing on its own: {value['halted']}.", err=True)
    if value.get("truncated"):
        click.echo("There are more: these are the first.", err=True)


def _row(orphan: dict[str, Any]) -> dict[str, Any]:
    return {**orphan, "since": time_text(orphan["since"]), "settled": "yes" if orphan["settled"] else "no"}


@orphans.command()
@click.option("--kind", type=click.Choice(KINDS), help="Only these; all when not given.")
@click.option("--yes", is_flag=True, help="Do it; without it, only say what would be cleared.")
@click.pass_obj
def clear(target: Target, kind: str | None, yes: bool) -> None:
    """Look now, and clear what has been an orphan for long enough (magnetarOrphanAgeMinSeconds).

    Ends with 1 when something could not be cleared.
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
        click.echo("Nothing was cleared; --yes does it.", err=True)
    if value["failed"]:
        raise click.ClickException("not everything could be cleared; the broker's log says why")
