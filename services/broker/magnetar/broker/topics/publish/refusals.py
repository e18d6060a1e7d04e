"""Refused messages of a topic, and closing of their producers.

A producer is closed with its first refused message, after the answers to everything before it. Its client
reopens the producer and resends unanswered messages, so no later message overtakes a refused one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.client_endings import EndCode
from magnetar.broker.topics.publish.client_refusals import RefusedMessage, ways_of
from magnetar.broker.topics.publish.pending_publish import (
    REFUSED_MESSAGES,
    RefusalLog,
    part_of,
    storage_errors,
)
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.publish.publish_gate import FirstRefused, PublishLimits
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import StorageError
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.pulsar_pb2 import ServerError


class Refusals:
    """Refuses messages of one topic's producers; counts and logs them."""

    __slots__ = ("_limits", "_log", "_producers", "_state")

    def __init__(self, state: TopicState, producers: Producers, limits: PublishLimits | None) -> None:
        """`limits`: None where refused producers are neither logged nor delayed."""
        self._state = state
        self._producers = producers
        self._limits = limits
        self._log: RefusalLog | None = None

    def refuse(self, producer: Producer, messages: Sequence[RefusedMessage]) -> None:
        """Refuses these messages of a producer and closes it.

        Its client is notified after the answers to all earlier messages. It resends later messages to the
        producer that it reopens then.
        """
        if producer.closed:
            return
        first, last = messages[0], messages[-1]
        self._note(producer, first.code, len(messages), first.reason)
        ways = ways_of(producer.client_version)
        if self._limits is not None:
            self._limits.refused.note_messages(
                self._state.name.full,
                producer.name,
                first.sequence_id,
                last.sequence_id,
                first.reason,
                fails_next=not ways.fails_one,
            )
        self._close(producer, ways.errors(producer.producer_id, messages), ways.closed_after_s)

    def refuse_from(
        self,
        publish: Callable[[Producer, SendRun], None],
        producer: Producer,
        sends: SendRun,
        first: FirstRefused | None,
    ) -> None:
        """Publishes the messages before the first refused one, and refuses that one.

        `first`: None when all messages of the run were refused and answered.
        """
        if first is None:
            return
        before = part_of(sends, range(first.index))
        if before is not None:
            publish(producer, before)
        self.refuse(producer, first.messages)

    def refuse_for_storage(self, producer: Producer, sends: SendRun, error: StorageError) -> None:
        """Refuses a run that storage has refused, and closes its producer."""
        self.note_storage(producer, len(sends.entries), error)
        if not producer.closed:
            self._close(producer, storage_errors(producer, sends, error))

    def note_storage(self, producer: Producer, entries: int, error: StorageError) -> None:
        """Counts entries of a producer that are certainly not stored."""
        self._note(producer, code_of(error), entries, str(error))
        if self._limits is not None and not producer.closed:
            self._limits.refused.note_storage(self._state.name.full, producer.name, str(error))

    def close(self, producer: Producer) -> None:
        """Closes a producer whose pending messages are refused, after the answers to all of them."""
        if producer.last_words is not None:
            producer.last_words = b""  # they refuse one message, but an earlier one is refused as well
        elif not producer.closed:
            self._close(producer, b"")

    def _close(self, producer: Producer, last_words: bytes, closed_after_s: float = 0.0) -> None:
        producer.detach(EndCode.MESSAGE_REFUSED)
        self._producers.remove(producer)
        producer.part(last_words, closed_after_s)

    def _note(self, producer: Producer, code: ServerError.ValueType, entries: int, reason: str) -> None:
        REFUSED_MESSAGES.labels(ServerError.Name(code)).inc(entries)
        if self._limits is not None:
            if self._log is None:
                self._log = RefusalLog(self._state.name.full, self._limits.clock)
            self._log.note(producer.name, entries, reason)
