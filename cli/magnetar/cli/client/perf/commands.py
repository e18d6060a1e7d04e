"""`magnetar perf`: measures a cluster's throughput and latency, like `pulsar-perf`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from magnetar.cli.client.consume import TYPES
from magnetar.cli.client.options import client_options, run_client
from magnetar.cli.lazy_group import WholeSentences
from magnetar.cli.option_values import TOPIC

Command = TypeVar("Command", bound=Callable[..., Any])

_COMMON = (
    click.option("--num-topics", "--num-topic", "-t", "topics", type=click.IntRange(min=1), default=1,
                 show_default=True, help="Number of topics: TOPIC-0, TOPIC-1, ...; with 1, TOPIC itself."),
    click.option("--num-messages", "-m", "messages", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Number of messages; 0: no limit."),
    click.option("--test-duration", "-time", "seconds", type=click.FloatRange(min=0), default=0,
                 show_default=True, help="Duration in seconds; 0: until Ctrl-C."),
    click.option("--stats-interval-seconds", "-i", "interval", type=click.FloatRange(min=0.1), default=10,
                 show_default=True, help="Interval between progress reports."),
    click.option("--json", "as_json", is_flag=True, help="Print the final statistics as JSON."),
    *(
        click.option(*names, expose_value=False, type=int, help="No effect: " + reason)
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
    """Measure throughput and latency of a cluster from this host."""


@perf.command()
@click.argument("topic", type=TOPIC)
@click.option("--rate", "-r", type=click.FloatRange(min=0), default=100.0, show_default=True,
              help="Messages per second over all topics; 0: unlimited.")  # fmt: skip
@click.option("--size", "-s", type=click.IntRange(min=0), default=1_024, show_default=True,
              help="Message size in bytes.")  # fmt: skip
@click.option("--num-producers", "-n", "producers", type=click.IntRange(min=1), default=1, show_default=True,
              help="Number per topic.")  # fmt: skip
@click.option("--max-outstanding", "-o", "outstanding", type=click.IntRange(min=1), default=1_000,
              show_default=True, help="Maximum outstanding messages per partition.")  # fmt: skip
@click.option("--batch-time-window", "-b", "window_ms", type=click.FloatRange(min=0), default=1.0,
              show_default=True, help="Maximum wait of a batch, in milliseconds.")  # fmt: skip
@click.option("--batch-max-messages", "-bm", type=click.IntRange(min=1), default=1_000, show_default=True,
              help="Maximum messages per batch.")  # fmt: skip
@click.option("--batch-max-bytes", "-bb", type=click.IntRange(min=1), default=131_072, show_default=True,
              help="Maximum batch size in bytes.")  # fmt: skip
@click.option("--disable-batching", "-db", "-bd", "unbatched", is_flag=True, help="Disable batching.")
@click.option("--compression", "-z", type=click.Choice(COMPRESSIONS, case_sensitive=False), default="NONE",
              show_default=True, help="Compression of batches; all except ZLIB need a package.")  # fmt: skip
@click.option("--message-key-generation-mode", "-mk", "keys", default=None,
              type=click.Choice(["autoIncrement", "random"], case_sensitive=False),
              help="Generator of message keys.")  # fmt: skip
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
    compression: Any,
    keys: str | None,
    topics: int,
    messages: int,
    seconds: float,
    interval: float,
    as_json: bool,
    **client: Any,
) -> None:
    """Publish at a rate, and measure the time until messages are durable.

    With a rate, latency is measured from the scheduled send time, so it includes time spent waiting for the
    cluster.
    """
    from magnetar.cli.client.perf.runs import PerfProduce, names_of
    from magnetar.client.producer.options import Batching

    batching = Batching(
        max_messages=batch_max_messages, max_bytes=batch_max_bytes, max_delay_s=window_ms / 1000
    )
    run = PerfProduce(
        topics=[name for name in names_of(topic, topics) for _ in range(producers)],
        batching=None if unbatched else batching,
        compression=compression.lower(),
        outstanding=outstanding,
        rate=rate,
        size=size,
        keys=keys,
        messages=messages,
        seconds=seconds,
        interval=interval,
    )
    run_client(client, lambda connected, stopped: run.run(connected, stopped, as_json=as_json))


@perf.command()
@click.argument("topic", type=TOPIC)
@click.option("--rate", "-r", type=click.FloatRange(min=0), default=0.0, help="Maximum messages per second.")
@click.option("--subscriptions", "-ss", "--subscriber-name", "-s", "name", default="sub", show_default=True,
              help="Subscription name; with several subscriptions, their name prefix.")  # fmt: skip
@click.option("--num-subscriptions", "-ns", "subscriptions", type=click.IntRange(min=1), default=1,
              show_default=True, help="On each topic.")  # fmt: skip
@click.option("--num-consumers", "-n", "consumers", type=click.IntRange(min=1), default=1, show_default=True,
              help="On each subscription.")  # fmt: skip
@click.option("--subscription-type", "-st", "kind", default="Exclusive", show_default=True,
              type=click.Choice(TYPES, case_sensitive=False), help="Subscription type.")  # fmt: skip
@click.option("--subscription-position", "-sp", "position", default="Latest", show_default=True,
              type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
              help="Start position of a new subscription.")  # fmt: skip
@click.option("--receiver-queue-size", "-q", "queue_size", type=click.IntRange(min=1), default=1_000,
              show_default=True, help="Receiver queue size per partition.")  # fmt: skip
@_common
@client_options
def consume(
    topic: str,
    rate: float,
    name: str,
    subscriptions: int,
    consumers: int,
    kind: Any,
    position: Any,
    queue_size: int,
    topics: int,
    messages: int,
    seconds: float,
    interval: float,
    as_json: bool,
    **client: Any,
) -> None:
    """Consume, and measure the age of messages on arrival. The clocks of producers and this host must
    agree.
    """
    from magnetar.cli.client.perf.runs import PerfConsume, names_of

    names = [name] if subscriptions == 1 else [f"{name}-{number}" for number in range(subscriptions)]
    opened = [
        (each, subscription)
        for each in names_of(topic, topics)
        for subscription in names
        for _ in range(consumers)
    ]
    run = PerfConsume(
        opened=opened,
        type=kind.lower(),
        position=position.lower(),
        queue_size=queue_size,
        rate=rate,
        messages=messages,
        seconds=seconds,
        interval=interval,
    )
    run_client(client, lambda connected, stopped: run.run(connected, stopped, as_json=as_json))
