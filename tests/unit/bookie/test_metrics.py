"""The bookie's metrics page, as Prometheus reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.bookie.metrics import BookieStats, Figures, MetricsPage
from prometheus_client.parser import text_string_to_metric_families


def test_the_metrics_page_is_what_prometheus_reads() -> None:
    stats, now = BookieStats(), 100.0
    stats.add_requests.observe(now, 0.002, count=99)
    stats.add_requests.observe(now, 0.5)
    stats.read_requests.observe(now, 0.001, success=False)
    stats.journal_syncs.observe(now, 0.003)
    stats.written_bytes = 12
    page = MetricsPage(stats, Figures(lambda: 3, lambda: True), lambda: now).render().decode()
    samples = {
        (sample.name, sample.labels.get("quantile"), sample.labels.get("success")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    name = "bookkeeper_server_ADD_ENTRY_REQUEST"
    assert samples[f"{name}_count", None, "true"] == 100
    assert samples[f"{name}_sum", None, "true"] == pytest.approx(698)
    assert 2 <= samples[name, "0.5", "true"] <= 2.4
    assert 500 <= samples[name, "0.999", "true"] <= 600
    assert samples["bookkeeper_server_READ_ENTRY_REQUEST_count", None, "false"] == 1
    assert samples["bookie_journal_JOURNAL_SYNC_sum", None, "true"] == pytest.approx(3)
    assert "\nbookie_WRITE_BYTES 12\n" in page  # the parser gives counters another name
    assert samples["bookie_ledgers_count", None, None] == 3
    assert any(key.startswith("process_") for key, *_ in samples)
    assert "\nbookie_write_cache_size 0\n" in page, "before the log is recovered"
    assert 'magnetar_bookie_append_latency_seconds_bucket{le="0.002"} 99\n' in page
    assert 'magnetar_bookie_append_latency_seconds_bucket{le="+Inf"} 100\n' in page


def test_the_log_shows_what_waits_in_it_and_what_it_gave_back() -> None:
    space = SimpleNamespace(deleted_ledger_bytes=300, compacted_bytes=40)
    log: Any = SimpleNamespace(
        pending_bytes=4096,
        group_commit=SimpleNamespace(waiting=3, in_flight=1),
        indexes=SimpleNamespace(byte_length=77),
        space=space,
    )
    figures = Figures(lambda: 3, lambda: True, lambda: log)
    page = "".join(MetricsPage(BookieStats(), figures, lambda: 100.0).bookkeeper_part())
    for line in (
        "bookie_write_cache_size 4096",
        "bookie_journal_JOURNAL_QUEUE_SIZE 3",
        "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE 1",
        "bookie_RECLAIMED_DELETION_SPACE_BYTES 300",
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES 40",
        "magnetar_log_index_cache_bytes 77",
    ):
        assert f"\n{line}\n" in page
