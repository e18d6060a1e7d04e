"""`magnetar perf`: how fast a cluster is, as `pulsar-perf` asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from magnetar.cli.client.consume import TYPES
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.lazy_group import WholeSentences

Command = TypeVar("Command", bound=Callable[..., Any])

_COMMON = (
    click.option("--num-topics", "--num-topic", "-t", "topics", type=click.IntRange(min=1), default=1,
                 show_default=True, help="So many topics: TOPIC-0, TOPIC-1, ...; with 1, TOPIC itself."),
    click.option("--num-messages", "-m", "messages", type=click.IntRange(min=0), default=0, show_default=True,
                 help="End after so many; 0: do not."),
    click.option("--test-duration", "-time", "seconds", type=click.FloatRange(min=0), default=0,
                 show_default=True, help="End after so many seconds; 0: do not. Ctrl-C ends it, too."),
    click.option("--stats-interval-seconds", "-i", "interval", type=click.FloatRange(min=0.1), default=10,
                 show_default=True, help="So often figures are shown."),
    click.option("--json", "as_json", is_flag=True, help="The figures at the end as JSON."),
    *(
        click.option(*names, expose_value=False, type=int, help="Makes no difference: " + reason)
        for names, reason in (
            (("--num-io-threads", "-ioThreads"), "there is one thread, with an event loop."),
            (("--max-connections", "-c"), "there is one connection to each broker."),
        )
    ),
)  # fmt: skip


def _common(command: Command) -> Command:
    for option in reversed(_COMMON):
        command = option(command)
    return command


COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


@click.group(cls=WholeSentences)
def perf() -> None:
    """Measure how fast a cluster is, from here."""


@perf.command()
@click.argument("topic")
@click.option("--rate", "-r", type=click.FloatRange(min=0), default=100.0, show_default=True,
              help="Messages a second over all topics; 0: as fast as it goes.")  # fmt: skip
@click.option("--size", "-s", type=click.IntRange(min=0), default=1_024, show_default=True,
              help="Bytes of a message.")  # fmt: skip
@click.option("--num-producers", "-n", "producers", type=click.IntRange(min=1), default=1, show_default=True,
              help="On each topic.")  # fmt: skip
@click.option("--max-outstanding", "-o", "outstanding", type=click.IntRange(min=1), default=1_000,
              show_default=True, help="Messages on their way, of each partition.")  # fmt: skip
@click.option("--batch-time-window", "-b", "window_ms", type=click.FloatRange(min=0), default=1.0,
              show_default=True, help="A batch waits so many milliseconds for others.")  # fmt: skip
@click.option("--batch-max-messages", "-bm", type=click.IntRange(min=1), default=1_000, show_default=True,
              help="A batch has at most so many.")  # fmt: skip
@click.option("--batch-max-bytes", "-bb", type=click.IntRange(min=1), default=131_072, show_default=True,
              help="A batch has at most so many bytes.")  # fmt: skip
@click.option("--disable-batching", "-db", "-bd", "unbatched", is_flag=True, help="Each message alone.")
@click.option("--compression", "-z", type=click.Choice(COMPRESSIONS, case_sensitive=False), default="NONE",
              show_default=True, help="Of each batch; but for ZLIB it needs a package.")  # fmt: skip
@click.option("--message-key-generation-mode", "-mk", "keys", default=None,
              type=click.Choice(["autoIncrement", "random"], case_sensitive=False),
              help="A key for each message.")  # fmt: skip
@_common
@client_options
def produce(
    topic: str,
    rate: float,
    size: int,
    producers: int,
    outstanding: int,
    window_ms: float,
    batch_max_messages: int,
    batch_max_bytes: int,
    unbatched: bool,
    compression: str,
    keys: str | None,
    topics: int,
    messages: int,
    seconds: float,
    interval: float,
    as_json: bool,
    **client: Any,
) -> None:
    """Publish at a rate, and show how long it takes until messages are durable.

    With a rate, latency counts from when a message was due: waiting for the cluster is part of it.
    """
    from magnetar.cli.client.perf.runs import PerfProduce, names_of
    from magnetar.client.partition_producer import ProducerOptions
    from magnetar.common.wire.pulsar_pb2 import CompressionType

    options = ProducerOptions(
        batching=not unbatched,
        batch_messages_max=batch_max_messages,
        batch_bytes_max=batch_max_bytes,
        batch_window_s=window_ms / 1000,
        pending_messages_max=outstanding,
        compression=CompressionType.Value(compression),
    )
    run = PerfProduce(
        topics=[name for name in names_of(topic, topics) for _ in range(producers)],
        options=options,
        rate=rate,
        size=size,
        keys=keys,
        messages=messages,
        seconds=seconds,
        interval=interval,
    )
    run_client(client, lambda connected, stopped: run.run(connected, stopped, as_json=as_json))


@perf.command()
@click.argument("topic")
@click.option("--rate", "-r", type=click.FloatRange(min=0), default=0.0, help="At most so many a second.")
@click.option("--subscriptions", "-ss", "--subscriber-name", "-s", "name", default="sub", show_default=True,
              help="The subscription's name; with several, names begin with it.")  # fmt: skip
@click.option("--num-subscriptions", "-ns", "subscriptions", type=click.IntRange(min=1), default=1,
              show_default=True, help="On each topic.")  # fmt: skip
@click.option("--num-consumers", "-n", "consumers", type=click.IntRange(min=1), default=1, show_default=True,
              help="On each subscription.")  # fmt: skip
@click.option("--subscription-type", "-st", "kind", default="Exclusive", show_default=True,
              type=click.Choice(TYPES, case_sensitive=False), help="Who else may use it.")  # fmt: skip
@click.option("--subscription-position", "-sp", "position", default="Latest", show_default=True,
              type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
              help="Where a subscription begins that is not there yet.")  # fmt: skip
@click.option("--receiver-queue-size", "-q", "queue_size", type=click.IntRange(min=1), default=1_000,
              show_default=True, help="Fetched ahead, of each partition.")  # fmt: skip
@_common
@client_options
def consume(
    topic: str,
    rate: float,
    name: str,
    subscriptions: int,
    consumers: int,
    kind: Any,
    position: str,
    queue_size: int,
    topics: int,
    messages: int,
    seconds: float,
    interval: float,
    as_json: bool,
    **client: Any,
) -> None:
    """Consume, and show how old messages are when they come: clocks of producers and this host must agree."""
    from magnetar.cli.client.perf.runs import PerfConsume, names_of
    from magnetar.client.partition_consumer import ConsumerOptions

    names = [name] if subscriptions == 1 else [f"{name}-{number}" for number in range(subscriptions)]
    opened = [
        (
            each,
            ConsumerOptions(
                subscription=subscription, type=kind, earliest=position == "Earliest", queue_size=queue_size
            ),
        )
        for each in names_of(topic, topics)
        for subscription in names
        for _ in range(consumers)
    ]
    run = PerfConsume(opened=opened, rate=rate, messages=messages, seconds=seconds, interval=interval)
    run_client(client, lambda connected, stopped: run.run(connected, stopped, as_json=as_json))
