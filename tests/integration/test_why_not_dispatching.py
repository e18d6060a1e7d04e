"""Whoever asks hears why a subscription gets nothing."""

from __future__ import annotations

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line
from tests.integration.rest import Rest


def why(endpoint: Endpoint, topic: str, statistics: str = "stats") -> str | None:
    """What the statistics of the subscription `sub` say."""
    path = f"/{topic.replace('://', '/')}/{statistics}?whyNotDispatching=true"
    found = Rest(endpoint).get(path)
    answer: str | None = found["subscriptions"]["sub"].get("whyNotDispatching")
    return answer


def test_statistics_say_why_a_subscription_is_not_dispatching(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        assert "nothing to deliver" in (why(endpoint, topic) or "")
        c.publish(b"first")
        assert "permits" in (why(endpoint, topic) or "")
        c.flow(1)
        c.expect("message")
    with line(endpoint) as c:
        c.open_producer(topic)
        assert "no consumer is connected" in (why(endpoint, topic) or "")
        plain = Rest(endpoint).get(f"/{topic.replace('://', '/')}/stats")
        assert "whyNotDispatching" not in plain["subscriptions"]["sub"]


def test_statistics_of_partitions_together_have_no_reason_of_one(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    rest = Rest(endpoint)
    assert rest.call("PUT", f"/{topic.replace('://', '/')}/partitions", 2).status == 204
    with line(endpoint) as c:
        c.subscribe(f"{topic}-partition-0")
        c.subscribe(f"{topic}-partition-1", consumer_id=2)
        assert why(endpoint, topic, "partitioned-stats") is None
        assert why(endpoint, f"{topic}-partition-1") is not None
