"""The proof on real text and the table of costs can be had with one command each; small here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import ROOT

SECONDS_MAX = 800

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(SECONDS_MAX + 60)]


def run(module: str, *arguments: str) -> str:
    """What `python -m bench.<module>` printed, which ended well."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lines_of_text_come_back_byte_for_byte_and_two_engines_agree_on_them(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    printed = run(
        "spark_proof", "--messages", "20000", "--ledger-megabytes", "1", "--cores", "2", "--table", str(table)
    )
    assert "same answers from both engines, every message byte for byte as it was published" in printed
    (messages,) = re.findall(r"^  messages +([\d,]+)$", printed, re.MULTILINE)
    (ledgers,) = re.findall(r"^  ledgers offloaded +([\d,]+)$", printed, re.MULTILINE)
    assert (int(messages.replace(",", "")), int(ledgers) > 1) == (20_000, True)
    assert table.read_text().count("\n") > 15


def test_the_table_of_costs_has_a_column_for_each_size_and_what_they_differ_by(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    printed = run("offload", "--gigabytes", "0.004", "0.012", "--cores", "2", "--table", str(table))
    assert "one more GB: offload MB/s" in printed
    heading, rule, *rows = table.read_text().splitlines()
    assert heading == "| figure | 0.004 GB, 1 core | 0.012 GB, 1 core | 0.012 GB, 2 cores |"
    assert len({row.count("|") for row in (heading, rule, *rows)}) == 1
    assert len(rows) > 15
