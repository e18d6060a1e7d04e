"""`magnetar find`: looks for messages of a topic, in brokers' ledgers and in offloaded objects."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.broker_options import ADMIN_URL, REQUEST_TIMEOUT
from magnetar.cli.admin.http_client import ask, topic_path
from magnetar.cli.admin.target import Target, broker_target
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.client.waiting import reports_waiting
from magnetar.cli.option_values import SECONDS, SIZE, TOPIC
from magnetar.cli.progress import progress_bar
from magnetar.cli.quantity_text import count_text, duration_text, size_text
from magnetar.cli.search.message_lines import message_facts, message_line
from magnetar.cli.search.option_types import (
    CHARS,
    HEX,
    MESSAGE_ID,
    MOMENT,
    GivenId,
    id_text,
    message_options,
)
from magnetar.cli.search.search_bounds import INTERRUPTED, LIMIT, ReadFromBrokers, SearchBounds
from magnetar.cli.search.search_plan import ColdStretch, TopicPlan, left_out, plan_search, topics_of
from magnetar.cli.search.topic_search import TopicSearch, missing_packages
from magnetar.common.errors import ConfigError, StorageError, UnsupportedFormat
from magnetar.ledger.cold.search.condition import Condition, MessagePosition, SearchedMessage

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.ledger.cold.search.ledger_search import Looked

NOT_EVERYTHING: Final = 4
"""Exit code of a search that was ended by --max-bytes or --timeout, or left objects out."""

_INTERRUPTED: Final = 130
_LEFT_OUT_SHOWN: Final = 20


@click.command()
@click.argument("topic", type=TOPIC)
@message_options
@click.option(
    "--since",
    "since_ms",
    type=MOMENT,
    default=None,
    help="Earliest publish time: 2026-11-21T19:30:00Z, milliseconds since 1970, or an age such as 3h.",
)
@click.option(
    "--until", "until_ms", type=MOMENT, default=None, help="First publish time after the searched ones."
)
@click.option(
    "--event-time", "by_event_time", is_flag=True, help="--since and --until are event times of applications."
)
@click.option(
    "--id",
    "at",
    type=MESSAGE_ID,
    default=None,
    metavar="ID",
    help="This message: LEDGER:ENTRY, or LEDGER:ENTRY:PARTITION:BATCH.",
)
@click.option(
    "--from",
    "start",
    type=MESSAGE_ID,
    default=None,
    metavar="ID",
    help="First message to search, such as the id with which an earlier search ended.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Number of matches after which the search ends; 0: no bound.",
)
@click.option(
    "--max-bytes",
    type=SIZE,
    default="10G",
    show_default=True,
    metavar="SIZE",
    help="Bytes of objects and messages after which the search ends, such as 500M; 0: no bound.",
)
@click.option(
    "--timeout",
    "search_timeout_s",
    type=SECONDS,
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Time after which the search ends, such as 90s; 0: no bound.",
)
@click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out objects that cannot be read, and name them, instead of ending.",
)
@click.option(
    "--through-brokers",
    is_flag=True,
    help="Read offloaded ledgers through brokers as well: slower, but needs no access to the object store.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON line per match, and the report as the last one."
)
@HEX
@CHARS
@ADMIN_URL
@REQUEST_TIMEOUT
@client_options
def find(
    topic: str,
    key: str | None,
    properties: tuple[tuple[str, str | None], ...],
    text: str,
    since_ms: int | None,
    until_ms: int | None,
    by_event_time: bool,
    at: GivenId | None,
    start: GivenId | None,
    limit: int,
    max_bytes: int,
    search_timeout_s: int,
    skip_unreadable: bool,
    through_brokers: bool,
    as_json: bool,
    as_hex: bool,
    chars: int,
    admin_url: str,
    timeout_s: float,
    **client: Any,
) -> None:
    """Find messages of a topic by key, property, text, time or id, also in offloaded ledgers.

    Offloaded ledgers are read from their objects: only the row groups and columns that may matter.
    Credentials of the object store come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_ENDPOINT_URL and the like. What was read is reported at the end.

    \b
    magnetar find orders --key customer-17 --since 2d
    magnetar find orders --property color=red --text '"total": 99' --json
    magnetar find orders --id 12:3456

    Exit codes: 0 all was searched, or --limit reached; 1 the search failed; 2 usage error; 3 no broker
    answers; 4 not everything was searched: --max-bytes, --timeout or --skip-unreadable.
    """
    condition = Condition(
        key=key,
        properties=properties,
        text=text.encode(),
        since_ms=since_ms,
        until_ms=until_ms,
        by_event_time=by_event_time,
    )
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--since is not before --until: no message has such a time")
    target = broker_target(admin_url, client["access"], timeout_s)
    infos = topics_of(topic, ask(target, "GET", f"{topic_path(topic)}/internal-info").value)
    plans = plan_search(infos, condition, at=at, start=start, through_brokers=through_brokers)

    def show(message: SearchedMessage) -> None:
        if as_json:
            print(json.dumps(message_facts(message, as_hex=as_hex)), flush=True)
        else:
            print(message_line(message, chars), flush=True)

    async def work(connected: Client, stopped: asyncio.Event) -> int:
        skipped: list[str] = []
        bounds = SearchBounds(
            limit=limit,
            max_bytes=max_bytes,
            timeout_s=search_timeout_s,
            now=time.monotonic,
            bytes_read=lambda: search.brokers.bytes_read + (looked.bytes_read if looked else 0),
            is_interrupted=stopped.is_set,
        )
        with progress_bar(f"search of {topic}", sum(plan.entries for plan in plans) or None) as advance:
            search = TopicSearch(
                connected,
                looked,
                bounds,
                show,
                on_unreadable=(lambda error: skipped.append(str(error))) if skip_unreadable else None,
                advance=advance,
            )
            with reports_waiting(
                lambda: f"searching {topic}; {bounds.found} found", progress=lambda: search.entries_done
            ):
                for plan in plans:
                    await search.run(plan, partial(_position, target, plan.topic))
                    if search.stopped:
                        break
        report = _report(plans, looked, search, bounds, skipped)
        if as_json:
            print(json.dumps({"report": report}), flush=True)
        else:
            _show_report(report, bounds, search.stopped)
            if at is not None and left_out(infos.values(), at.position.ledger_id):
                click.echo(f"{topic} has no ledger {at.position.ledger_id} (any more)", err=True)
        if search.stopped == INTERRUPTED:
            return _INTERRUPTED
        return NOT_EVERYTHING if skipped or search.stopped not in ("", LIMIT) else 0

    try:
        looked = _looked(plans)
        run_client(client, work)
    except ModuleNotFoundError as error:
        if (missing := missing_packages(error)) is not None:
            raise missing from error
        raise
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except (StorageError, UnsupportedFormat) as error:
        raise click.ClickException(
            f"{error}; leave such objects out with --skip-unreadable, or read through brokers with "
            "--through-brokers"
        ) from error


async def _position(target: Target, topic: str, path: str) -> MessagePosition:
    answer = await asyncio.to_thread(ask, target, "GET", f"{topic_path(topic)}/{path}")
    return MessagePosition(answer.value["ledgerId"], answer.value["entryId"])


def _looked(plans: list[TopicPlan]) -> Looked | None:
    """Returns counts of what is read of objects; None if no ledger is, which then needs no package."""
    if not any(isinstance(stretch, ColdStretch) for plan in plans for stretch in plan.stretches):
        return None
    from magnetar.ledger.cold.search.ledger_search import Looked

    return Looked()


def _report(
    plans: list[TopicPlan],
    looked: Looked | None,
    search: TopicSearch,
    bounds: SearchBounds,
    skipped: list[str],
) -> dict[str, Any]:
    brokers: ReadFromBrokers = search.brokers
    report: dict[str, Any] = {
        "found": bounds.found,
        "complete": not search.stopped and not skipped,
        "stoppedBy": search.stopped or None,
        "continueFrom": id_text(search.following, search.partition) if search.stopped else None,
        "seconds": round(bounds.seconds, 3),
        "objects": {
            "ledgers": 0 if looked is None else looked.ledgers,
            "ofLedgers": sum(plan.cold_ledgers for plan in plans),
            "rowGroups": 0 if looked is None else looked.row_groups_read,
            "ofRowGroups": 0 if looked is None else looked.row_groups,
            "bloomFilters": 0 if looked is None else looked.bloom_filters,
            "rows": 0 if looked is None else looked.rows,
            "unreadable": len(skipped),
            "bytes": 0 if looked is None else looked.bytes_read,
            "ofBytes": sum(plan.object_bytes for plan in plans),
        },
        "brokers": {"messages": brokers.messages, "bytes": brokers.bytes_read},
        "unsearchable": brokers.unsearchable + (0 if looked is None else looked.unsearchable),
        "skipped": skipped,
    }
    return report


def _show_report(report: dict[str, Any], bounds: SearchBounds, stopped: str) -> None:
    """Prints the report to stderr: matches alone are on stdout."""
    lines = [f"{report['found']} found in {duration_text(report['seconds'])}"]
    objects, brokers = report["objects"], report["brokers"]
    if objects["ofLedgers"]:
        lines.append(
            f"objects: read {objects['ledgers']} of {count_text(objects['ofLedgers'], 'ledger')}, "
            f"{objects['rowGroups']} of their {count_text(objects['ofRowGroups'], 'row group')} with "
            f"{count_text(objects['rows'], 'row')}, {size_text(objects['bytes'])} of "
            f"{size_text(objects['ofBytes'])}"
        )
    if brokers["messages"] or not objects["ofLedgers"]:
        lines.append(
            f"brokers: read {count_text(brokers['messages'], 'message')}, {size_text(brokers['bytes'])}"
        )
    if report["unsearchable"]:
        lines.append(
            f"{count_text(report['unsearchable'], 'message')} with unknown content (encrypted, damaged) "
            "were not searched for text"
        )
    if objects["unreadable"]:
        lines.append(f"{count_text(objects['unreadable'], 'object')} could not be read")
    lines += [f"skipped: {each}" for each in report["skipped"][:_LEFT_OUT_SHOWN]]
    if len(report["skipped"]) > _LEFT_OUT_SHOWN:
        lines.append(f"skipped: {len(report['skipped']) - _LEFT_OUT_SHOWN} more; --json names them")
    if stopped:
        lines.append(f"{bounds.sentence(stopped)}; continue with --from {report['continueFrom']}")
    click.echo("\n".join(lines), err=True)
