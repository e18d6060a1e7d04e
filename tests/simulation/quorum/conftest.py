"""Says at the end how many runs there were, and how fast."""

from __future__ import annotations

import pytest

from tests.simulation.quorum.running import SPENT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seeds, cpu_s = SPENT["seeds"], SPENT["cpu_s"]
    if seeds:
        rate = seeds / cpu_s
        terminalreporter.write_line(
            f"replicated storage: {seeds:.0f} simulated runs in {cpu_s:.0f} s of CPU, {rate:.1f} a second"
        )
