"""`magnetar topics tail`: prints messages of topics as they arrive, without a subscription that stays."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.client.waiting import reports_waiting
from magnetar.cli.message_values import decoded_value
from magnetar.cli.option_values import SECONDS, TOPIC
from magnetar.cli.quantity_text import count_text
from magnetar.cli.search.broker_messages import searched
from magnetar.cli.search.message_lines import message_facts, message_line
from magnetar.cli.search.option_types import CHARS, HEX, MOMENT, message_options
from magnetar.ledger.cold.search.condition import Condition

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.consumer.consumer import Consumer
    from magnetar.client.messages import Message

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

QUEUE_MESSAGES: Final = 100
"""Messages that a broker sends ahead for each topic."""


class Start(click.ParamType[Any]):
    """Where a tail begins: latest, earliest, or a publish time."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in (EARLIEST, LATEST):
            return str(value)
        return MOMENT.convert(value, param, ctx)


@click.command()
@click.argument("names", metavar="TOPIC...", type=TOPIC, nargs=-1, required=True)
@click.option(
    "--regex",
    is_flag=True,
    help="TOPIC is a regular expression: tenant/namespace/expression. New topics join.",
)
@click.option(
    "--from",
    "start",
    type=Start(),
    default=LATEST,
    show_default=True,
    metavar="START",
    help="Start: latest, earliest, or a publish time (2026-11-21T19:30:00Z, or an age such as 10m).",
)
@message_options
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of messages shown; 0: until Ctrl-C.",
)
@click.option(
    "--for",
    "seconds",
    type=SECONDS,
    default=0,
    metavar="TIME",
    help="Time after which it ends, such as 90s or 10m.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per message.")
@HEX
@CHARS
@client_options
def tail(
    names: tuple[str, ...],
    regex: bool,
    start: str | int,
    key: str | None,
    properties: tuple[tuple[str, str | None], ...],
    text: str,
    count: int,
    seconds: int,
    as_json: bool,
    as_hex: bool,
    chars: int,
    **client: Any,
) -> None:
    """Print messages of topics as they arrive, one line each: time, id, key, properties, content.

    Nothing is acknowledged, and no subscription stays. Content is decoded by the topic's schema; --text looks
    for bytes of the content as it was sent, and for what the schema makes of it.

    \b
    magnetar topics tail orders
    magnetar topics tail orders payments --from 10m --property color=red
    magnetar topics tail 'public/default/orders-.*' --regex --json --count 10

    Exit codes: 0 ended by --count, --for or Ctrl-C; 1 the broker refused; 2 usage error; 3 no broker answers.
    """
    if regex and len(names) > 1:
        raise click.UsageError("--regex takes one expression; join several with '|'")
    # The text is asked of the decoded value, too; so it is no part of the condition.
    condition = Condition(key=key, properties=properties)
    shows_topic = regex or len(names) > 1

    def shown(message: Message) -> bool:
        found = searched(message)
        if not condition.matches(found):
            return False
        value, decoded = decoded_value(message) if not found.unreadable else (None, None)
        if text and text.encode() not in found.payload and text not in (value or ""):
            return False
        if as_json:
            facts = message_facts(found, as_hex=as_hex)
            print(json.dumps(facts if value is None else {**facts, "value": decoded}), flush=True)
        else:
            topic = found.topic.removeprefix("persistent://") if shows_topic else ""
            print(message_line(found, chars, value=value, topic=topic), flush=True)
        return True

    async def work(connected: Client, stopped: asyncio.Event) -> int:
        topics: Any = re.compile(names[0]) if regex else list(names)
        with reports_waiting(lambda: f"still opening {', '.join(names)}"):
            consumer = await _open(connected, topics, start)
        if not consumer.topics:
            click.echo(f"no topic matches {names[0]!r} yet; waiting for one", err=True)
        try:
            taken = await _tail(consumer, stopped, count, seconds, shown)
        finally:
            await consumer.close()
        click.echo(f"{count_text(taken, 'message')} shown", err=True)
        return 0

    run_client(client, work)


async def _open(client: Client, topics: Any, start: str | int) -> Consumer[Any]:
    from magnetar.client.messages import MessageId
    from magnetar.client.schemas.auto import AutoConsume

    consumer: Consumer[Any] = await client.subscribe(
        topics,
        f"tail-{secrets.token_hex(5)}",
        durable=False,
        start=MessageId.LATEST if start == LATEST else MessageId.EARLIEST,
        initial_position="latest" if start == LATEST else "earliest",
        schema=AutoConsume(),
        queue_size=QUEUE_MESSAGES,
        crypto_failure="consume",
    )
    if isinstance(start, int):
        await consumer.seek(start)
    return consumer


async def _tail(consumer: Consumer[Any], stopped: asyncio.Event, count: int, seconds: int, shown: Any) -> int:
    """Returns the number of messages that were shown."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.ensure_future(stopped.wait())
    deadline = loop.time() + seconds if seconds else None
    read = taken = 0
    try:
        with reports_waiting(
            lambda: f"waiting for messages; {read} read, {taken} shown; Ctrl-C stops",
            progress=lambda: read,
            is_stuck=lambda: not consumer.is_connected,
        ):
            while not stopped.is_set() and (taken < count or not count):
                message = consumer.receive_nowait()
                if message is None:
                    left_s = None if deadline is None else max(0.0, deadline - loop.time())
                    receiving = asyncio.ensure_future(consumer.receive())
                    await asyncio.wait(
                        (receiving, stopping), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not receiving.done():
                        receiving.cancel()
                        break
                    message = receiving.result()
                elif deadline is not None and loop.time() >= deadline:
                    break
                read += 1
                taken += shown(message)
                # What was shown is no backlog; brokers show it so, as they do for readers.
                message.consumer.acknowledge_cumulative(message.id, message.entry)
                if not read % QUEUE_MESSAGES:
                    await asyncio.sleep(0)  # Ctrl-C is heard also while messages never stop.
    finally:
        stopping.cancel()
    return taken
