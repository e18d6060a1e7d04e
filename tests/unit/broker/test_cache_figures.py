"""The tail cache on the metrics page."""

from __future__ import annotations

from magnetar.broker.cache_figures import CacheFigures
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.entry_cache import EntryCache


def shown(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"pulsar_ml_cache_{name}", {"cluster": "cached"})


def test_what_is_in_the_cache_is_shown_now_and_what_happened_as_rates_of_a_period() -> None:
    cache = EntryCache(2_000)
    figures, topic = CacheFigures(cache, "cached"), cache.topic()
    for number in range(8):
        topic.put(Run([bytes(50)] * 2, ledger_id=1, first_entry_id=2 * number))
    topic.count_cached(Run([bytes(10)] * 6))
    topic.count_stored([Run([bytes(20)] * 3)])
    assert shown("used_size") == cache.bytes > 0
    assert shown("inserted_entries_total") == 16
    assert shown("entries") == 2 * len(topic)
    assert shown("evicted_entries_total") == 16 - 2 * len(topic) > 0
    figures.sample(2.0)
    assert (shown("hits_rate"), shown("hits_throughput")) == (3.0, 30.0)
    assert (shown("misses_rate"), shown("misses_throughput")) == (1.5, 30.0)
    assert shown("evictions") == 8 - len(topic)
    figures.sample(2.0)
    assert (shown("hits_rate"), shown("misses_rate"), shown("evictions")) == (0.0, 0.0, 0.0)
