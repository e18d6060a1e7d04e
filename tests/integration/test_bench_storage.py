"""The storage benchmark works and prints its figures; how high those are is not a test's business."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import ROOT


def run_bench(*arguments: str) -> dict[str, dict[str, list[float]]]:
    """The figures that `python -m bench.storage` measured on a hundredth of everything."""
    command = [sys.executable, "-m", "bench.storage", "--scale=0.02", "--seconds=0.3", "--rounds=1"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    (path,) = re.findall(r"bench: results in (\S+)", done.stdout)
    results = json.loads((ROOT / path).read_text())
    (ROOT / path).unlink()
    figures: dict[str, dict[str, list[float]]] = results["figures"]
    return figures


@pytest.mark.nightly
def test_appends_are_measured_on_the_local_log_and_through_bookies(tmp_path: Path) -> None:
    figures = run_bench("--directory", str(tmp_path), "--only", "appends")
    local = figures["100 B in runs of 100: local log"]
    bookies = figures["100 B in runs of 100: three bookies"]
    assert local["entries/s"][0] > 0
    assert bookies["entries/s"][0] > 0
    assert bookies["entries/CPU s of one bookie"][0] > 0
    assert bookies["of the local log's entries/CPU s"][0] > 0


@pytest.mark.full
def test_one_run_in_flight_has_a_latency(tmp_path: Path) -> None:
    figures = run_bench("--directory", str(tmp_path), "--only", "latency")
    for batch in ("1 entry a run", "100 entries a run"):
        one = figures[f"100 B, one in flight, {batch}: three bookies"]
        assert 0 < one["p50 ms"][0] <= one["p99 ms"][0]


@pytest.mark.nightly
def test_a_backlog_is_read_after_compaction(tmp_path: Path) -> None:
    figures = run_bench("--directory", str(tmp_path), "--only", "reads")
    for length in (100, 10):
        local = figures[f"catch-up read, local log, runs of {length}"]
        bookie = figures[f"catch-up read, a bookie over gRPC, runs of {length}"]
        assert local["MB"] == bookie["MB"]
        assert bookie["MB/s"][0] > 0


@pytest.mark.full
@pytest.mark.parametrize("part", ["restart", pytest.param("memory", marks=pytest.mark.full)])
def test_made_up_segments_are_taken_for_real_ones(tmp_path: Path, part: str) -> None:
    figures = run_bench("--directory", str(tmp_path), "--only", part)
    if part == "restart":
        assert len(figures["restart of a bookie over 10 GB"]["seconds"]) == 3
    else:
        found = figures["a bookie with 50 GB, 100,000 ledgers"]
        assert found["ledgers"] == [2_000]
        assert 0 < found["after the start"][0] <= found["after reads"][0] + 1
