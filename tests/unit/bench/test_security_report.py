"""Tables of the benchmark of security: ratios, and what TLS leaves of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.results import Results
from bench.security import report
from bench.security.measures import CPU_MS, IDLE_KIB, RATE
from bench.security.run import DECISIONS, HANDSHAKES, MEMORY
from bench.security.services import column
from bench.table import into_page


def results(rates: tuple[float, ...] = (400.0, 200.0, 100.0, 80.0)) -> Results:
    """Rates of Magnetar plain and with TLS, and of Apache Pulsar."""
    machine = {"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "kernel": "6.1", "python": "3.11.0"}
    found = Results("python -m bench.security", False, "2026-01-01T00:00:00Z", machine, {MAGNETAR: "abc"})
    names = [column(name, tls) for name in (MAGNETAR, APACHE_PULSAR) for tls in (False, True)]
    for name, rate in zip(names, rates, strict=False):
        found.add("produce-1k", name, {"entries/s": rate, report.CPU: 1_000 / rate})
    return found


def test_throughput_tells_both_ratios_and_what_is_kept() -> None:
    rate, cpu = report.throughput(results())
    assert rate[1:] == ["400", "200", "100", "80.0", "4.00", "2.50", "0.62", "**missed**"]
    assert cpu[-2:] == ["0.62", "**missed**"]
    assert [row[-1] for row in report.throughput(results((400.0, 320.0, 100.0, 100.0)))] == ["met", "met"]


def test_magnetar_alone_is_told_without_a_verdict() -> None:
    rate, _ = report.throughput(results((400.0, 200.0)))
    assert rate[1:] == ["400", "200", "", "", "", "", "", ""]
    assert report.kept(results((400.0, 200.0)), "produce-1k", "entries/s", higher=True) is None


def test_several_rounds_are_a_median_and_a_range() -> None:
    found = results()
    for rate in (100.0, 900.0):
        found.add("produce-1k", MAGNETAR, {"entries/s": rate})
    assert report.throughput(found)[0][1] == "400 (100 to 900)"


def test_every_part_has_its_table_and_missing_ones_have_none() -> None:
    found = results()
    found.add(f"{HANDSHAKES} P-256", column(MAGNETAR, True), {CPU_MS: 0.5, RATE: 900.0})
    found.add(MEMORY, column(APACHE_PULSAR, False), {IDLE_KIB: 12.0})
    found.add(DECISIONS, MAGNETAR, {"super user": 2e6})
    text = "\n".join(report.tables(found))
    for row in ("| TLS 1.3, P-256 | 0.50 | 900 |  |  |", "| KiB, idle |  |  | 12.0 |  |"):
        assert row in text
    assert "| super user | 2,000,000 | 500 |" in text
    assert "### Memory" not in "\n".join(report.tables(results()))


def test_the_page_keeps_its_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n")
    into_page(page, report.PART, report.markdown(results(), ["images/x.svg"]))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "images/x.svg" in text
    assert "old" not in text
    with pytest.raises(ValueError, match="has no part"):
        into_page(page, "other", [])
