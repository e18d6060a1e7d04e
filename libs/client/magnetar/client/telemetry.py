"""OpenTelemetry spans of messages: `pip install 'magnetar-client[telemetry]'`.

    producer = await client.create_producer("orders", interceptors=[ProducerSpans()])

    async for message in consumer:
        with processing(message):
            ...

The context of a producer's span travels in the message's properties, as W3C Trace Context, so that spans of
consumers belong to the same trace. Names and attributes follow OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from magnetar.client.errors import ClientError
from magnetar.client.interceptors import ProducerInterceptor
from magnetar.client.messages import Message, MessageId, Outgoing
from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

_SCOPE: Final = "magnetar.client"
_SYSTEM: Final = "pulsar"
_CARRIED: Final = "traceparent"
"""The property that W3C Trace Context defines."""


def _attributes(topic: str, operation: str, byte_length: int) -> dict[str, Any]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.type": operation,
        "messaging.message.body.size": byte_length,
    }


class ProducerSpans(ProducerInterceptor):
    """A span for each message, from its send to its receipt, in the trace of the caller."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        """`tracer` None: the one of the global provider."""
        self._tracer = tracer or trace.get_tracer(_SCOPE)
        self._spans: dict[str | None, Span] = {}
        """By the context that the message carries, which is that of one span."""

    def before_send(self, topic: str, message: Outgoing) -> Outgoing:
        attributes = _attributes(topic, "send", len(message.payload))
        span = self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carried: dict[str, str] = {}
        propagate.inject(carried, trace.set_span_in_context(span))
        self._spans[carried.get(_CARRIED)] = span
        return replace(message, properties={**message.properties, **carried})

    def on_sent(
        self, topic: str, message: Outgoing, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        span = self._spans.pop(message.properties.get(_CARRIED), None)
        if span is None:
            return
        if message_id is not None:
            span.set_attribute("messaging.message.id", str(message_id))
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()


@contextmanager
def processing(message: Message, tracer: Tracer | None = None) -> Iterator[Span]:
    """Yields the span in which a message is processed, as a child of the one that sent it. An exception of
    the block is recorded and raised.
    """
    properties: Mapping[str, str] = message.properties
    attributes = _attributes(message.topic, "process", len(message.data))
    attributes["messaging.message.id"] = str(message.id)
    used = tracer or trace.get_tracer(_SCOPE)
    with used.start_as_current_span(
        f"process {message.topic}",
        context=propagate.extract(properties),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield span
