"""`magnetar produce`: publishes messages, like `pulsar-client produce`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from magnetar.cli.client.line_reader import lines_of
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.client.waiting import reports_waiting
from magnetar.cli.option_values import TOPIC, key_files, pairs
from magnetar.cli.quantity_text import count_text

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.producer.producer import Producer

CLOSE_S_MAX: Final = 5.0
"""Time in seconds that closing the producer may take."""


@click.command()
@click.argument("topic", type=TOPIC)
@click.option(
    "--messages", "-m", "texts", multiple=True, help="Text to send; repeat for several, or see --separator."
)
@click.option(
    "--files",
    "-f",
    multiple=True,
    type=click.File("rb"),
    help="File to send as one message; - is standard input.",
)
@click.option(
    "--lines",
    "by_line",
    is_flag=True,
    help="Send each line of --files as one message, as soon as it is read.",
)
@click.option(
    "--num-produce",
    "-n",
    "times",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of times to send all messages.",
)
@click.option(
    "--rate",
    "-r",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Messages per second; 0: unlimited.",
)
@click.option("--key", "-k", default=None, help="Key of all messages.")
@click.option(
    "--properties", "-p", multiple=True, help="Property as key=value; repeat, or separate with commas."
)
@click.option(
    "--separator",
    "-s",
    default=",",
    show_default=True,
    help="Separator between texts in one --messages option.",
)
@click.option("--disable-batching", "-db", "unbatched", is_flag=True, help="Disable batching.")
@click.option(
    "--disable-replication",
    "-dr",
    "local",
    is_flag=True,
    help="Do not replicate the messages to other clusters.",
)
@click.option(
    "--encryption-public-key",
    "public_keys",
    multiple=True,
    metavar="NAME=FILE",
    help="Encrypt messages with this RSA public key (PEM) under the key name NAME; repeat for several.",
)
@click.option(
    "--send-timeout",
    "send_timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Maximum wait for the receipt of a message, in seconds.",
)
@client_options
def produce(
    topic: str,
    texts: tuple[str, ...],
    files: tuple[BinaryIO, ...],
    by_line: bool,
    times: int,
    rate: float,
    key: str | None,
    properties: tuple[str, ...],
    separator: str,
    unbatched: bool,
    local: bool,
    public_keys: tuple[str, ...],
    send_timeout_s: float,
    **client: Any,
) -> None:
    """Publish messages.

    \b
    magnetar produce my-topic -m 'hello'
    magnetar produce persistent://public/default/my-topic -m 'a,b,c' -k key -p color=red -n 10
    tail -f access.log | magnetar produce my-topic -f - --lines
    """
    if by_line and (texts or not files or times > 1):
        raise click.UsageError("--lines goes with --files, and without --messages and --num-produce")
    split = [part for text in texts for part in (text.split(separator) if separator else [text])]
    payloads = [part.encode(errors="surrogateescape") for part in split] + [
        file.read() for file in files if not by_line
    ]
    if not payloads and not by_line:
        raise click.UsageError("nothing to send: give --messages or --files")
    if key is not None:
        key.encode()  # Checked before the first send: a key must be valid UTF-8.
    given = pairs(tuple(each for text in properties for each in text.split(",")), "--properties")
    keys = key_files(public_keys, "--encryption-public-key")

    async def work(connected: Client, stopped: asyncio.Event) -> int:
        from magnetar.client.producer.options import Batching

        batching = None if unbatched else Batching(by_key=True)
        with reports_waiting(lambda: f"still opening a producer on {topic}"):
            producer = await connected.create_producer(
                topic, batching=batching, public_keys=keys, send_timeout_s=send_timeout_s
            )
        message = Content(key, given, () if local else None)
        if by_line:
            return await _produce(producer, stopped, lines_of(files, stopped), message, None, rate)
        total = len(payloads) * times
        return await _produce(producer, stopped, _repeated(payloads, times), message, total, rate)

    run_client(client, work)


@dataclass(frozen=True, slots=True)
class Content:
    """The fields that all messages of a command have in common."""

    key: str | None
    properties: Mapping[str, str]
    replicate_to: Sequence[str] | None


async def _produce(
    producer: Producer[bytes],
    stopped: asyncio.Event,
    payloads: AsyncGenerator[bytes, None],
    content: Content,
    total: int | None,
    rate: float,
) -> int:
    """Publishes `payloads`; `total`: how many they are, None for an unknown number."""
    from magnetar.cli.progress import progress_bar
    from magnetar.client.errors import SendTimeout

    confirmed = sent = 0
    is_complete = False
    failed: list[Exception] = []

    def on_sent(error: Exception | None, _: object) -> None:
        nonlocal confirmed
        if error is not None:
            failed.append(error)
            stopped.set()  # Ends the wait for the next line, too.
        else:
            confirmed += 1
            advance(confirmed)

    def describe() -> str:
        if total is None and sent == confirmed:
            return "waiting for lines to send; Ctrl-C stops"
        return f"still waiting for receipts of {count_text(sent - confirmed, 'message')}"

    loop = asyncio.get_running_loop()
    try:
        async with aclosing(payloads):
            with (
                reports_waiting(
                    describe,
                    progress=lambda: (sent, confirmed),
                    is_stuck=lambda: not producer.is_connected,
                ) as reason,
                progress_bar("messages sent", total) as advance,
            ):
                began = loop.time()
                async for payload in payloads:
                    if rate and (early := began + sent / rate - loop.time()) > 0:
                        await _pause(stopped, early)
                    if stopped.is_set() or failed:
                        break
                    await producer.room(content.key)
                    producer.send_nowait(
                        payload,
                        on_sent,
                        key=content.key,
                        properties=content.properties,
                        replicate_to=content.replicate_to,
                    )
                    sent += 1
                else:
                    is_complete = not stopped.is_set()
                await producer.flush()
                was_connected = producer.is_connected
    finally:
        click.echo(f"{count_text(confirmed, 'message')} successfully produced", err=True)
        with suppress(TimeoutError):  # A broker that confirms nothing may not answer this either.
            async with asyncio.timeout(CLOSE_S_MAX):
                await producer.close(flush=False)
    if failed:
        if isinstance(failed[0], SendTimeout) and reason.text and not was_connected:
            raise SendTimeout(f"{failed[0]}; the last error was: {reason.text}")
        raise failed[0]
    return 0 if is_complete else 130


async def _repeated(payloads: Sequence[bytes], times: int) -> AsyncGenerator[bytes, None]:
    for _ in range(times):
        for payload in payloads:
            yield payload


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        pass
