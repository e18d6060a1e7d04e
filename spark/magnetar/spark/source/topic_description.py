"""Topics, their ledgers and schemas, as brokers describe them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.source_options import BadOption, Bound, SourceOptions

DESCRIBED_AT_ONCE: Final = 8

SCHEMAS_ASKED: Final = 20
"""Topics of a pattern that are asked for a schema."""


class Describer:
    """Asks brokers; one for each driver. Use it from `open` to `close`, from one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._channel: OffloadChannel | None = None

    @property
    def channel(self) -> OffloadChannel:
        """Made at the first use: what is pickled has no connection."""
        if self._channel is None:
            self._channel = open_channel(self._options.service)
        return self._channel

    def close(self) -> None:
        """Idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def topics(self) -> list[str]:
        """Full names of what the options name, sorted; partitions in the place of partitioned topics.

        Raises TopicNotFound, and what else the service may.
        """
        options = self._options
        found = self.channel.topics(options.topics, options.pattern)
        persistent = [name for name in found if TopicName.parse(name).persistent]
        if not persistent and not options.pattern:
            raise TopicNotFound(
                f"topic {', '.join(options.topics)} not found; create it, or correct the name"
            )
        return sorted(set(persistent), key=_in_order)

    def describe(self, topic: str) -> TopicLedgers:
        """A topic's ledgers as they are now. Raises TopicNotFound, ServiceNotReady ..."""
        service = self._options.service
        found = self.channel.describe(topic)
        return TopicLedgers(
            topic=topic,
            partition=TopicName.parse(topic).partition_index,
            creation_id=found.creation_id,
            service=service,
            owner=replace(service, address=found.address) if found.address else service,
            ledgers=tuple(ledger for ledger in found.ledgers if ledger.last_entry_id >= 0),
            schema_type=found.schema_type,
            schema=found.schema,
        )

    def describe_all(self, topics: Sequence[str]) -> list[TopicLedgers]:
        """Describe the topics in order. Raises as `describe`."""
        if len(topics) <= 1:
            return [self.describe(topic) for topic in topics]
        channel = self.channel  # made here, once
        assert channel is not None
        with ThreadPoolExecutor(DESCRIBED_AT_ONCE, "describe") as pool:
            return list(pool.map(self.describe, topics))

    def topic_with_schema(self) -> TopicLedgers | None:
        """The first topic that has a schema; None where none of the first few has."""
        for name in self.topics()[:SCHEMAS_ASKED]:
            described = self.describe(name)
            if described.schema_type:
                return described
        return None


def _in_order(name: str) -> tuple[str, int]:
    """Partitions by their number."""
    topic = TopicName.parse(name)
    return topic.base.full, topic.partition_index


def option_of(options: SourceOptions, topic: str, which: str) -> Bound | None:
    """`starting` or `ending`, said of the topic, the partitioned topic, or all. Raises BadOption."""
    by_topic = options.starting_by_topic if which == "starting" else options.ending_by_topic
    for_all = options.starting if which == "starting" else options.ending
    name = TopicName.parse(topic)
    if topic in by_topic:
        return by_topic[topic]
    base = by_topic.get(name.base.full, for_all)
    if isinstance(base, MessageAt) and name.partition_index >= 0 and topic not in options.topics:
        raise BadOption(
            f'"{which}" is one message id, and {name.base.full} has partitions, each with ids of its own; '
            f'give JSON: {{"{topic}": "{base}", ...}}'
        )
    return base


def bounds_of(options: SourceOptions, described: TopicLedgers) -> tuple[MessageAt, MessageAt]:
    """Return the bounds between which a topic is read now. Raises BadOption."""
    starting = option_of(options, described.topic, "starting")
    ending = option_of(options, described.topic, "ending")
    end = described.end
    start = BEGINNING
    if starting == "latest":
        start = end
    elif isinstance(starting, MessageAt):
        start = starting
    if isinstance(ending, MessageAt):
        end = min(end, ending)
    return start, end
