"""`magnetar top`: the busiest topics, subscriptions, brokers and bookies, live or once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.admin.broker_options import broker_options
from magnetar.cli.top.live_table import LIMIT_MAX, TABS, VIEWS, Question, filtered, question_of

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

ANSWER_S_MAX: Final = 5.0
"""Time limit of a request of the live table, in seconds: the screen shows that a broker is gone."""


@click.command()
@click.argument("view", type=click.Choice(TABS), default="topics")
@click.option(
    "--namespace", "-n", default="", metavar="TENANT/NAMESPACE", help="Only topics of this namespace."
)
@click.option(
    "--filter", "-f", "contains", default="", metavar="TEXT", help="Only names that contain this text."
)
@click.option(
    "--sort", default="", metavar="COLUMN", help="Column to sort by, by its heading or its name in JSON."
)
@click.option("--reverse", is_flag=True, help="Sort the other way round.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=100,
    show_default=True,
    help="Rows of a page; the broker sends no more.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.5, max=60),
    default=2.0,
    show_default=True,
    help="Seconds between two requests; slow answers make it longer.",
)
@click.option("--once", is_flag=True, help="Print the table once; the default where no terminal shows it.")
@broker_options
@access_options
def top(
    view: str,
    namespace: str,
    contains: str,
    sort: str,
    reverse: bool,
    limit: int,
    interval_s: float,
    once: bool,
    admin_url: str,
    output: str,
    as_json: bool,
    timeout_s: float,
    access: Access,
) -> None:
    """Show the busiest topics, subscriptions, brokers, bookies or namespaces, live.

    Keys: 1-5 views, s and r sort, / filter, Enter opens a row, e explains it, n and p turn pages, q quits.
    Into a pipe, and with --once, it prints the table once, with rates of the last minute.
    """
    from magnetar.cli.admin.target import broker_target

    if namespace and view not in ("topics", "subscriptions"):
        raise click.UsageError(f"--namespace goes with topics and subscriptions, not with {view}")
    question = filtered(question_of(view, namespace=namespace, limit=limit), contains)
    if sort:
        question = replace(question, sort=_column(view, sort), ascending=False)
        if question.sort == VIEWS[view].columns[0].key:
            question = replace(question, ascending=True)
    if reverse:
        question = replace(question, ascending=not question.ascending)
    target = broker_target(admin_url, access, timeout_s, "json" if as_json else output)
    if once or target.output != "auto" or not (sys.stdout.isatty() and sys.stdin.isatty()):
        show_once(target, question)
        return
    show_live(replace(target, timeout_s=min(timeout_s, ANSWER_S_MAX)), question, interval_s)


def _column(view: str, text: str) -> str:
    for column in VIEWS[view].columns:
        if text.lower() in (column.key.lower(), column.title.lower()):
            return column.key
    headings = ", ".join(each.title for each in VIEWS[view].columns)
    raise click.BadParameter(f"unknown column {text!r} of {view}: use one of {headings}", param_hint="--sort")


def show_once(target: Target, question: Question) -> None:
    """Print one sample. Raises ClickException."""
    from magnetar.cli.admin.output import on_terminal, show_rows
    from magnetar.cli.top.admin_source import read_sample
    from magnetar.cli.top.live_table import cell, title, with_rates

    sample = read_sample(target, question)
    rows = with_rates(question, sample, None)
    for broker, why in sample.unreachable.items():
        click.echo(f"broker {broker} is missing: {why}", err=True)
    if target.output == "json":
        print(
            json.dumps(
                {"total": sample.total, "rows": rows, "unreachable": dict(sample.unreachable)}, indent=2
            )
        )
        return
    columns = VIEWS[question.view].columns
    if on_terminal(target):
        heading = title(question, sample.total, len(rows))
        shown = [{each.title: cell(each, row) for each in columns} for row in rows]
        show_rows(target, heading, [each.title for each in columns], shown)
    else:
        show_rows(
            target,
            question.view,
            [each.key for each in columns],
            [{each.key: row.get(each.key, "") for each in columns} for row in rows],
        )


def show_live(target: Target, question: Question, interval_s: float) -> None:
    """Show the table until `q`. Raises ModuleNotFoundError without Textual."""
    from magnetar.cli.top.admin_source import read_explanation, read_sample
    from magnetar.cli.top.screen import TopApp

    TopApp(
        lambda asked: read_sample(target, asked),
        lambda asked, row: read_explanation(target, asked, row),
        question,
        interval_s=interval_s,
        source=target.admin_url,
    ).run()
