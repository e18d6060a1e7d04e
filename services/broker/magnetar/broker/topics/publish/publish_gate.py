"""Publish gates: limits that policies set on messages; a topic without limits has no gate.

A gate refuses messages that are too large, not encrypted, or delayed for too long. Publish rates refuse
nothing: received messages are stored, and reading from their connection pauses until the rate allows more, so
that sockets and clients hold back the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.policies.effective_policies import EffectivePolicies, Rate
from magnetar.broker.policies.token_bucket import Throttle
from magnetar.broker.topics.config import TopicSettings
from magnetar.broker.topics.publish.client_refusals import RefusedMessage
from magnetar.broker.topics.publish.pending_publish import REFUSED_MESSAGES, send_errors
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.refused_producers import RefusedProducers
from magnetar.common.errors import (
    BrokerError,
    DataCorruption,
    EncryptionRequired,
    NotAllowed,
    TopicTerminated,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.pulsar_pb2 import ServerError


@dataclass(frozen=True, slots=True)
class FirstRefused:
    """The first refused message of a run."""

    index: int
    """Index of the first refused message; earlier messages are published."""
    messages: list[RefusedMessage]
    """The first refused message, and directly following ones that are refused, too."""


class PublishGate:
    """Limits on messages to a topic; `rate` is the topic's own publish rate, None without one."""

    __slots__ = (
        "_broker_rate",
        "_bytes_max",
        "_clock",
        "_delay_ms_max",
        "_encrypted_only",
        "rate",
        "times_limited",
    )

    def __init__(
        self,
        *,
        bytes_max: int = 0,
        delay_ms_max: int = 0,
        encrypted_only: bool = False,
        rate: Throttle | None = None,
        broker_rate: Throttle | None = None,
        clock: Clock,
    ) -> None:
        """A limit of 0 is no limit."""
        self._bytes_max = bytes_max
        self._delay_ms_max = delay_ms_max
        self._encrypted_only = encrypted_only
        self.rate = rate
        self._broker_rate = broker_rate
        self._clock = clock
        self.times_limited = 0
        """Number of times that reading a connection paused because of a rate."""

    def admit(self, producer: Producer, sends: SendRun) -> SendRun | FirstRefused:
        """Returns the run when all of it is allowed; otherwise its first refused message."""
        if self._bytes_max or self._delay_ms_max or self._encrypted_only:
            refused = self._first_refused(sends)
            if refused is not None:
                return refused
        self._count(producer, sends)
        return sends

    def _count(self, producer: Producer, sends: SendRun) -> None:
        messages = sum(sends.message_counts) if sends.message_counts else len(sends.entries)
        now = self._clock.monotonic()
        ready_at = now
        for rate in (self.rate, self._broker_rate):
            if rate is not None:
                rate.take(messages, sends.byte_length, now)
                ready_at = max(ready_at, rate.ready_at)
        if ready_at > now:
            self.times_limited += 1
            producer.peer.pause_reading_for(ready_at - now)

    def _first_refused(self, sends: SendRun) -> FirstRefused | None:
        for index in range(len(sends.entries)):
            if self._error(sends, index) is None:
                continue
            messages = []
            for number in range(index, len(sends.entries)):
                error = self._error(sends, number)
                if error is None:
                    break
                messages.append(RefusedMessage(sends.highest_sequence_id(number), code_of(error), str(error)))
            return FirstRefused(index, messages)
        return None

    def _error(self, sends: SendRun, index: int) -> BrokerError | None:
        entry = sends.entries[index]
        if 0 < self._bytes_max < len(entry) and not sends.is_chunk:
            return NotAllowed(
                f"a message of {len(entry)} bytes exceeds the topic's maximum of {self._bytes_max}"
            )
        if not self._encrypted_only and not self._delay_ms_max:
            return None
        try:
            metadata = parse_metadata(entry)
        except DataCorruption as error:
            return NotAllowed(f"invalid message: {error}")
        if self._encrypted_only and not metadata.encryption_keys:
            return EncryptionRequired("Messages must be encrypted: let the producer encrypt")
        if 0 < self._delay_ms_max < metadata.deliver_at_time - self._clock.wall_ms():
            return NotAllowed(f"messages may be delayed by at most {self._delay_ms_max} ms here")
        return None


class TerminatedGate:
    """Gate of a terminated topic, which refuses every message."""

    __slots__ = ("_topic",)

    def __init__(self, topic: TopicName) -> None:
        self._topic = topic

    def admit(self, producer: Producer, sends: SendRun) -> None:
        """Answers every message with an error."""
        error = TopicTerminated(f"topic {self._topic} is terminated: it accepts no more messages")
        REFUSED_MESSAGES.labels(ServerError.Name(code_of(error))).inc(len(sends.entries))
        producer.peer.write(send_errors(producer, sends, error))


class PublishLimits:
    """Creates the gates of a broker's topics; owns the broker's publish rate and refused producers."""

    __slots__ = ("_bytes_max", "_rate", "_rates", "clock", "refused")

    def __init__(self, config: TopicSettings, clock: Clock) -> None:
        self.refused = RefusedProducers(clock)
        self._bytes_max = config.publish.message_bytes_max
        self.clock = clock
        self._rates = config.policies.rates
        self._rate: Throttle | None = None
        self.rates_changed()

    def rates_changed(self) -> None:
        """Reads the broker's publish rate again; topics get it with their next gate."""
        rates = self._rates
        rate = Rate(max(0, rates.broker_publish_messages), max(0, rates.broker_publish_bytes))
        now = self.clock.monotonic()
        if not rate:
            self._rate = None
        elif self._rate is None:
            self._rate = Throttle(rate, now)
        elif self._rate.rate != rate:
            self._rate = self._rate.at_rate(rate, now)

    def gate(self, policies: EffectivePolicies, former: PublishGate | None = None) -> PublishGate | None:
        """Creates the gate for a topic's policies; None when they limit nothing.

        `former` is the topic's current gate, whose debt of the rate is carried over.
        """
        bytes_max = policies.max_message_bytes
        if bytes_max >= self._bytes_max:
            bytes_max = 0  # such frames are rejected earlier
        delay_ms_max = policies.delayed_delivery_max_delay_ms if policies.delayed_delivery_active else 0
        if not (
            bytes_max
            or delay_ms_max
            or policies.messages_encrypted
            or policies.publish_rate
            or self._rate is not None
        ):
            return None
        gate = PublishGate(
            bytes_max=bytes_max,
            delay_ms_max=delay_ms_max,
            encrypted_only=policies.messages_encrypted,
            rate=self._topic_rate(policies.publish_rate, None if former is None else former.rate),
            broker_rate=self._rate,
            clock=self.clock,
        )
        gate.times_limited = 0 if former is None else former.times_limited
        return gate

    def _topic_rate(self, rate: Rate, former: Throttle | None) -> Throttle | None:
        if not rate:
            return None
        now = self.clock.monotonic()
        return Throttle(rate, now) if former is None else former.at_rate(rate, now)
