"""`magnetar lag`: how far the subscriptions of a namespace are behind, the worst first.

Two samples of one bounded request each, some seconds apart, tell whether a backlog shrinks and how long that
takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.admin.broker_options import broker_options
from magnetar.cli.top.live_table import age, byte_count, count, printable

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

ROWS_MAX: Final = 200
"""Maximum subscriptions of a report; the broker's limit for rows with reasons."""

_HEADINGS: Final = (
    "subscription",
    "topic",
    "backlog",
    "bytes",
    "oldest",
    "in/s",
    "ack/s",
    "drains in",
    "reason",
)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one subscription is behind."""

    topic: str
    subscription: str
    backlog: int
    """Unacknowledged entries; a batch is one entry."""
    backlog_bytes: int
    oldest_s: float | None
    """Age of the oldest unacknowledged message; None without one."""
    rate_in: float
    """Messages per second that its topic gets."""
    ack_rate: float
    """Messages per second that it acknowledges."""
    drain_s: float | None
    """Seconds until the backlog is gone at the speed of the two samples; 0 without one, None for never."""
    codes: Sequence[str]
    """Codes of the reasons that stop it, as of `magnetar explain subscription`."""


def lags_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Lag]:
    """Returns the lags of two answers of the broker, the worst first: those that never drain, then the
    slowest.
    """
    earlier = {(row["topic"], row["subscription"]): row for row in before["rows"]}
    elapsed = (now["atMs"] - before["atMs"]) / 1000
    found = [
        _lag(row, earlier.get((row["topic"], row["subscription"])), elapsed, now["atMs"])
        for row in now["rows"]
    ]
    return sorted(found, key=_badness)


def _lag(row: Mapping[str, Any], before: Mapping[str, Any] | None, elapsed: float, now_ms: int) -> Lag:
    rate_in, ack_rate, backlog = row["msgRateIn"], row["messageAckRate"], row["msgBacklog"]
    drain_s: float | None = None if backlog else 0.0
    if before is not None and elapsed > 0:
        if row["msgInCounter"] >= before["msgInCounter"]:
            rate_in = (row["msgInCounter"] - before["msgInCounter"]) / elapsed
        if row["ackCounter"] >= before["ackCounter"]:
            ack_rate = (row["ackCounter"] - before["ackCounter"]) / elapsed
        # In entries, not by the rates: those count messages, of which an entry may have many.
        if backlog and (drained := before["msgBacklog"] - backlog) > 0:
            drain_s = backlog * elapsed / drained
    oldest_ms = row.get("oldestPublishTime", 0)
    return Lag(
        topic=row["topic"],
        subscription=row["subscription"],
        backlog=backlog,
        backlog_bytes=row["backlogSize"],
        oldest_s=max(0.0, (now_ms - oldest_ms) / 1000) if oldest_ms else None,
        rate_in=rate_in,
        ack_rate=ack_rate,
        drain_s=drain_s,
        codes=[code for code in row.get("codes", []) if code != "nothing_to_deliver"],
    )


def _badness(lag: Lag) -> tuple[Any, ...]:
    never = lag.drain_s is None
    return (
        not never,
        -(lag.drain_s or 0.0),
        -lag.backlog,
        -(lag.oldest_s or 0.0),
        lag.topic,
        lag.subscription,
    )


@click.command()
@click.argument("namespace", metavar="tenant/namespace", default="public/default")
@click.option(
    "--over",
    "over_s",
    type=click.FloatRange(min=0.5, max=300),
    default=3.0,
    show_default=True,
    help="Seconds between the two samples that rates are computed from.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, ROWS_MAX),
    default=50,
    show_default=True,
    help="Subscriptions with the largest backlogs.",
)
@click.option("--watch", is_flag=True, help="Print a new report again and again, until Ctrl-C.")
@broker_options
@access_options
def lag(
    namespace: str,
    over_s: float,
    limit: int,
    watch: bool,
    admin_url: str,
    output: str,
    as_json: bool,
    timeout_s: float,
    access: Access,
) -> None:
    """Report how far the subscriptions of a namespace are behind, the worst first.

    Only loaded topics are asked. `magnetar explain subscription` says more about a reason.
    """
    from magnetar.cli.admin.target import broker_target

    target = broker_target(admin_url, access, timeout_s, "json" if as_json else output)
    before = read(target, namespace, limit)
    while True:
        time.sleep(over_s)
        now = read(target, namespace, limit)
        if watch and target.output != "json":
            click.clear()
        show_lags(target, namespace, now, lags_of(before, now))
        if not watch:
            return
        before = now


def read(target: Target, namespace: str, limit: int) -> Any:
    """Returns the subscriptions with the largest backlogs. Raises ClickException."""
    from magnetar.cli.admin.explain import own_path
    from magnetar.cli.admin.http_client import ask, namespace_path

    query = {"of": "subscriptions", "sort": "msgBacklog", "limit": limit, "reasons": True}
    return ask(target, "GET", f"{own_path(namespace_path(namespace))}/top", query=query).value


def show_lags(target: Target, namespace: str, answer: Mapping[str, Any], lags: Sequence[Lag]) -> None:
    """Print a report."""
    from magnetar.cli.admin.output import on_terminal, show_rows

    for broker, why in answer["unreachable"].items():
        click.echo(f"broker {broker} is missing: {why}", err=True)
    if target.output == "json":
        found = {
            "namespace": namespace,
            "total": answer["total"],
            "subscriptions": [asdict(each) for each in lags],
            "unreachable": answer["unreachable"],
        }
        print(json.dumps(found), flush=True)
        return
    rows = [row_of(each) if on_terminal(target) else asdict(each) for each in lags]
    columns = _HEADINGS if on_terminal(target) else tuple(Lag.__dataclass_fields__)
    show_rows(
        target, f"{len(lags)} of {answer['total']} subscriptions of {namespace}, worst first", columns, rows
    )
    if answer["total"] > len(lags):
        click.echo(
            f"{answer['total'] - len(lags)} with smaller backlogs are left out; --limit shows more", err=True
        )


def row_of(lag: Lag) -> dict[str, str]:
    """Returns a lag as the cells of a table."""
    drains = "never" if lag.drain_s is None else age(lag.drain_s) if lag.backlog else "-"
    cells = (
        printable(lag.subscription),
        printable(lag.topic.removeprefix("persistent://")),
        count(lag.backlog),
        byte_count(lag.backlog_bytes),
        "-" if lag.oldest_s is None else age(lag.oldest_s),
        f"{lag.rate_in:.1f}",
        f"{lag.ack_rate:.1f}",
        drains,
        ", ".join(map(printable, lag.codes)),
    )
    return dict(zip(_HEADINGS, cells, strict=True))
