"""Spans of messages: one trace from the sender to the consumer, errors recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from magnetar.client.errors import QueueFull
from magnetar.client.messages import MessageId, Outgoing
from magnetar.client.telemetry import ProducerSpans, processing
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

TOPIC = "persistent://public/default/orders"


@dataclass
class Received:
    """The part of a message that spans look at."""

    properties: dict[str, str]
    topic: str = TOPIC
    data: bytes = b"1"
    id: MessageId = field(default_factory=lambda: MessageId(1, 2))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests")


def test_consumers_continue_the_trace_of_the_producer(exporter: InMemorySpanExporter, tracer: Tracer) -> None:
    spans = ProducerSpans(tracer)
    with tracer.start_as_current_span("request"):
        sent = spans.before_send(TOPIC, Outgoing(b"1", properties={"own": "kept"}))
    assert sent.properties["own"] == "kept"
    spans.on_sent(TOPIC, sent, MessageId(1, 2), None)
    with processing(Received(dict(sent.properties)), tracer):  # type: ignore[arg-type]
        pass
    request, send, process = exporter.get_finished_spans()
    assert send.parent is not None
    assert process.parent is not None
    assert send.parent.span_id == request.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert {each.context.trace_id for each in (request, send, process)} == {request.context.trace_id}
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert send.attributes["messaging.message.id"] == "1:2:-1"


def test_errors_are_recorded_on_both_sides(exporter: InMemorySpanExporter, tracer: Tracer) -> None:
    spans = ProducerSpans(tracer)
    sent = spans.before_send(TOPIC, Outgoing(b"1"))
    spans.on_sent(TOPIC, sent, None, QueueFull("full"))
    with pytest.raises(ValueError, match="bad"), processing(Received({}), tracer):  # type: ignore[arg-type]
        raise ValueError("bad")
    assert [each.status.status_code for each in exporter.get_finished_spans()] == [StatusCode.ERROR] * 2


def test_two_interceptors_that_replace_a_message_do_not_lose_its_span(
    exporter: InMemorySpanExporter, tracer: Tracer
) -> None:
    spans = ProducerSpans(tracer)
    sent = spans.before_send(TOPIC, Outgoing(b"1"))
    other = Outgoing(b"2", properties=dict(sent.properties))
    spans.on_sent(TOPIC, other, MessageId(1, 2), None)
    assert len(exporter.get_finished_spans()) == 1
