from __future__ import annotations

from magnetar.common.obs.metrics import begin_at_zero
from prometheus_client import CollectorRegistry, Counter, generate_latest


def test_outcomes_that_are_known_are_shown_before_the_first_of_them() -> None:
    registry = CollectorRegistry()
    counter = Counter("tries", "Tries.", ["outcome"], registry=registry)
    assert b"outcome=" not in generate_latest(registry)

    begin_at_zero(counter, "done", "failed")
    counter.labels("failed").inc()

    assert registry.get_sample_value("tries_total", {"outcome": "done"}) == 0
    assert registry.get_sample_value("tries_total", {"outcome": "failed"}) == 1
