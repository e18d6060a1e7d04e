"""`magnetar consume`: prints the messages of a topic, like `pulsar-client consume`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.client.waiting import reports_waiting
from magnetar.cli.message_output import facts_of, head_text, show_content, show_text
from magnetar.cli.message_values import decoded_value
from magnetar.cli.option_values import TOPIC, key_files
from magnetar.cli.quantity_text import count_text

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.consumer.consumer import Consumer
    from magnetar.client.messages import Message

TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--subscription-name", "-s", "subscription", required=True, help="Subscription name.")
@click.option(
    "--subscription-type",
    "-t",
    "kind",
    type=click.Choice(TYPES, case_sensitive=False),
    default="Exclusive",
    show_default=True,
    help="Subscription type.",
)
@click.option(
    "--subscription-position",
    "-p",
    "position",
    type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
    default="Latest",
    show_default=True,
    help="Start position of a new subscription.",
)
@click.option(
    "--subscription-mode",
    "-m",
    "mode",
    type=click.Choice(["Durable", "NonDurable"], case_sensitive=False),
    default="Durable",
    show_default=True,
    help="Subscription mode; NonDurable is deleted when the command ends.",
)
@click.option(
    "--num-messages",
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of messages to consume; 0: until Ctrl-C.",
)
@click.option("--regex", is_flag=True, help="TOPIC is a regular expression: tenant/namespace/expression.")
@click.option(
    "--rate",
    "-r",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Maximum messages per second; 0: no limit.",
)
@click.option("--hex", "as_hex", is_flag=True, help="Print content in hexadecimal.")
@click.option("--hide-content", is_flag=True, help="Hide content.")
@click.option(
    "--print-metadata", "-mp", "more", is_flag=True, help="Print message id, times and producer as well."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per message.")
@click.option(
    "--queue-size",
    "-q",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Receiver queue size.",
)
@click.option(
    "--encryption-private-key",
    "private_keys",
    multiple=True,
    metavar="NAME=FILE",
    help="Private key (PEM, RSA or EC) for messages encrypted with the key NAME; repeat for several.",
)
@click.option(
    "--crypto-failure-action",
    "crypto_failure",
    type=click.Choice(["fail", "discard", "consume"], case_sensitive=False),
    default="fail",
    show_default=True,
    help="Action for messages that cannot be decrypted: fail shows the reason and does not acknowledge, "
    "discard acknowledges without showing, consume shows the ciphertext.",
)
@click.option(
    "--schema-type",
    "-st",
    type=click.Choice(["bytes", "auto_consume"], case_sensitive=False),
    default="bytes",
    show_default=True,
    help="auto_consume decodes content by the topic's schema; bytes prints it as it is stored.",
)
@client_options
def consume(
    topic: str,
    subscription: str,
    kind: Any,
    position: str,
    mode: str,
    count: int,
    regex: bool,
    rate: float,
    as_hex: bool,
    hide_content: bool,
    more: bool,
    as_json: bool,
    queue_size: int,
    private_keys: tuple[str, ...],
    crypto_failure: Any,
    schema_type: str,
    **client: Any,
) -> None:
    """Print messages and acknowledge them.

    \b
    magnetar consume my-topic -s my-subscription -p Earliest -n 0
    magnetar consume 'public/default/orders-.*' --regex -s audit -t Shared --json
    magnetar consume my-topic -s my-subscription -st auto_consume
    """
    keys = key_files(private_keys, "--encryption-private-key")

    decodes = schema_type == "auto_consume"

    def show(message: Message) -> None:
        value, decoded = decoded_value(message) if decodes and not message.unreadable else (None, None)
        if as_json:
            facts = facts_of(message, as_hex=as_hex, hide_content=hide_content)
            if value is not None and not hide_content:
                facts["value"] = decoded
            print(json.dumps(facts), flush=True)
        else:
            _print(message, value, as_hex=as_hex, hide_content=hide_content, more=more)

    async def work(connected: Client, stopped: asyncio.Event) -> int:
        from magnetar.client.messages import MessageId
        from magnetar.client.schemas.auto import AutoConsume

        schema: Any = AutoConsume() if decodes else None
        with reports_waiting(lambda: f"still opening a consumer on {topic}"):
            consumer = await connected.subscribe(
                re.compile(topic) if regex else topic,
                subscription,
                type=kind.lower(),
                initial_position="earliest" if position == "Earliest" else "latest",
                durable=mode == "Durable",
                start=MessageId.EARLIEST if position == "Earliest" else None,
                queue_size=min(queue_size, count) if count else queue_size,
                read_key=(lambda name, _: keys.get(name)) if keys else None,
                crypto_failure=crypto_failure,
                schema=schema,
                batch_index_ack=True,
            )
        if not consumer.topics:
            click.echo(f"no topic matches {topic!r} yet; waiting for one", err=True)
        return await _consume(consumer, stopped, count, rate, show)

    run_client(client, work)


async def _consume(
    consumer: Consumer[bytes], stopped: asyncio.Event, count: int, rate: float, show: Any
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.ensure_future(stopped.wait())
    taken = unreadable = 0
    began = loop.time()
    try:
        with reports_waiting(
            lambda: f"waiting for messages on subscription {consumer.subscription}; Ctrl-C stops",
            progress=lambda: taken,
            is_stuck=lambda: not consumer.is_connected,
        ):
            while not stopped.is_set() and (taken < count or not count):
                receiving = asyncio.ensure_future(consumer.receive())
                await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    break
                message = receiving.result()
                show(message)
                taken += 1
                if message.unreadable:
                    unreadable += 1  # Not acknowledged: another consumer may be able to read it.
                else:
                    consumer.acknowledge_nowait(message)
                if rate and (early := began + taken / rate - loop.time()) > 0:
                    await asyncio.wait((stopping,), timeout=early)
    finally:
        stopping.cancel()
        await consumer.close()
        told = f"{count_text(taken - unreadable, 'message')} successfully consumed"
        if unreadable:
            told += f", {unreadable} could not be read and are not acknowledged"
        click.echo(told, err=True)
    if unreadable:
        return 1
    return 0 if taken >= count else 130


def _print(message: Message, value: str | None, *, as_hex: bool, hide_content: bool, more: bool) -> None:
    """Print a message in pulsar-client's format, its content as raw bytes, or as `value` if there is one."""
    parts = head_text(message.key, message.properties)
    if message.encrypted is not None:
        parts.append(f"encrypted:[{', '.join(message.encrypted.keys)}]")
    if more:
        parts = [
            f"topic:[{message.topic}]",
            f"messageId:[{message.id}]",
            f"publishTime:[{message.publish_time_ms}]",
            f"eventTime:[{message.event_time_ms}]",
            f"producerName:[{message.producer_name}]",
            f"sequenceId:[{message.sequence_id}]",
            f"redeliveryCount:[{message.redelivery_count}]",
            *parts,
        ]
    click.secho("----- got message -----", dim=True)
    if message.unreadable:
        show_text(", ".join([*parts, f"unreadable:[{message.unreadable}]"]))
    elif hide_content:
        show_text(", ".join(parts))
    else:
        show_text(", ".join([*parts, "content:"]), end="")
        content = message.data if value is None else value.encode()
        show_content(message.data.hex().encode() if as_hex else content)
    sys.stdout.flush()
