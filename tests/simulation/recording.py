"""A plugin of pytest that notes every seeded test it ran: `-p tests.simulation.recording`.

A line of JSON for each, in the file that MAGNETAR_SIM_RECORD_FILE names, and a last one with how often the
trouble of these runs came about. `record.py` adds them up.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from typing import Any, Final

import pytest

from tests.spent import HAPPENED

FILE_VARIABLE: Final = "MAGNETAR_SIM_RECORD_FILE"
HAPPENED_LINE: Final = "happened"

_CPU_S: Final = "cpu_s"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure the processor time of the test itself."""
    started_s = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append((_CPU_S, time.process_time() - started_s))


class Recorder:
    """Writes the lines, in the one process that hears of every test."""

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            cpu_s = float(str(dict(report.user_properties).get(_CPU_S, 0.0)))
            self._write({"test": report.nodeid, "failed": report.failed, _CPU_S: round(cpu_s, 4)})

    def pytest_terminal_summary(self) -> None:
        self._write({HAPPENED_LINE: dict(HAPPENED)})

    def _write(self, line: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record where the variable names a file; workers of pytest-xdist only measure."""
    path = os.environ.get(FILE_VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path))
