"""What a run on a real node did, as a page: commands, how long each took, what was there afterwards."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
OUTPUT_LINES_MAX: Final = 60
OUTPUT_LINES_SHOWN: Final = 8
"""Outputs with more lines are left out of the page."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done."""

    title: str
    seconds: float
    command: str = ""
    output: str = ""


@dataclass(slots=True)
class Record:
    """Grows while a run goes on; `page` may be asked for at any time."""

    part: str = ""
    """Part of the chart that the page is about; empty: all that has no page of its own."""
    steps: list[Step] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(default_factory=list)
    """Headings and text that come after the steps."""

    def note(self, title: str, seconds: float, command: Sequence[str] = (), output: str = "") -> None:
        """Keep a step; of a long output its end."""
        lines = output.rstrip().splitlines()[-OUTPUT_LINES_MAX:]
        self.steps.append(Step(title, seconds, shlex.join(command), "\n".join(map(str.rstrip, lines))))

    def fact(self, name: str, value: str) -> None:
        self.facts.append((name, value))

    def section(self, heading: str, text: str) -> None:
        self.sections.append((heading, text.rstrip()))

    def page(self) -> str:
        """Markdown."""
        lines = [
            f"# A run on a real Kubernetes cluster{f': {self.part}' if self.part else ''}",
            "",
            "Written by the run itself: `make kubernetes RECORD=docs/kubernetes-run.md`.",
            "[testing.md](testing.md#kubernetes) says what the cluster may be, and what the tiers show.",
            "",
            *_table(("", ""), self.facts),
            "",
            "## Steps",
            "",
            *_table(("step", "time"), [(step.title, f"{step.seconds:.1f} s") for step in self.steps]),
        ]
        for heading, text in self.sections:
            lines += ["", f"## {heading}", "", text]
        lines += ["", "## Commands"]
        for step in self.steps:
            if step.command:
                shown = 0 < len(step.output.splitlines()) <= OUTPUT_LINES_SHOWN
                block = [f"$ {step.command}", *([step.output] if shown else [])]
                lines += ["", f"{step.title} ({step.seconds:.1f} s):", "", "```text", *block, "```"]
        return "\n".join(lines) + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    return "\n".join(_table(columns, rows))


def machine_facts() -> list[tuple[str, str]]:
    """What results depend on, and times."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return [
        ("date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")),
        ("commit", _commit()),
        (
            "machine",
            f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {system}, kernel {platform.release()}",
        ),
    ]


def _commit() -> str:
    """Of this tree."""
    if shutil.which("git") is None:
        return "not known"
    git = ("git", "-C", str(ROOT))
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    if changed.returncode != 0:
        return "not known"
    return program_version([*git, "rev-parse", "--short=12", "HEAD"]) + ", with changes" * bool(
        changed.stdout
    )


def program_version(command: Sequence[str]) -> str:
    """The first line of what a program says of itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout or done.stderr).partition("\n")[0].strip()


def size(path: Path) -> str:
    """Of a file, in MiB."""
    return f"{path.stat().st_size / MIB:.0f} MiB"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    return [line(columns), line(["---"] * len(columns)), *map(line, rows)]
