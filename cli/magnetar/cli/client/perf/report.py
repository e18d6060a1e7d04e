"""Output of `magnetar perf`: progress and final statistics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click
from magnetar.cli.client.perf.latencies import Latencies


@dataclass(slots=True)
class Measurement:
    """Counts of one run. Times are in seconds of `now`."""

    verb: str
    now: Callable[[], float] = time.monotonic
    messages: int = 0
    byte_length: int = 0
    all: Latencies = field(default_factory=Latencies)
    interval: Latencies = field(default_factory=Latencies)
    began: float = 0.0
    ended: float = 0.0
    _interval_began: float = 0.0
    _interval_messages: int = 0
    _interval_bytes: int = 0

    def start(self) -> None:
        self.began = self.ended = self._interval_began = self.now()

    def add(self, latencies_s: list[float], byte_length: int) -> None:
        """Count the messages of one entry."""
        self.messages += len(latencies_s)
        self.byte_length += byte_length
        self.all.add(latencies_s)
        self.interval.add(latencies_s)
        self.ended = self.now()

    def figures(self) -> dict[str, Any]:
        """Return the statistics of the whole run."""
        seconds = max(self.ended - self.began, 1e-9)
        return {
            "messages": self.messages,
            "bytes": self.byte_length,
            "seconds": round(seconds, 3),
            "messagesPerSecond": round(self.messages / seconds, 1),
            "megabitsPerSecond": round(self.byte_length * 8e-6 / seconds, 3),
            "latencyMs": self.all.summary(),
        }

    def line(self) -> str:
        """Return a line with the statistics since the last line."""
        now = self.now()
        seconds = max(now - self._interval_began, 1e-9)
        count = self.messages - self._interval_messages
        rate, bits = count / seconds, (self.byte_length - self._interval_bytes) * 8e-6 / seconds
        found = self.interval
        text = (
            f"{self.verb} {self.messages:,} msg --- {rate:,.1f} msg/s --- {bits:,.2f} Mbit/s --- latency ms: "
            f"mean {found.mean_ms:.2f}, p50 {found.percentile_ms(50):.2f}, "
            f"p99 {found.percentile_ms(99):.2f}, max {found.max_ms:.2f}"
        )
        self.interval = Latencies()
        self._interval_began, self._interval_messages = now, self.messages
        self._interval_bytes = self.byte_length
        return text


def show_figures(measured: Measurement, *, as_json: bool) -> None:
    """Print the final statistics."""
    figures = measured.figures()
    if as_json:
        print(json.dumps(figures))
        return
    latencies = figures.pop("latencyMs")
    if not sys.stdout.isatty():
        for name, value in figures.items():
            print(f"{name}\t{value}")
        for name, value in latencies.items():
            print(f"latencyMs {name}\t{value}")
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{measured.verb} [bold]{figures['messages']:,}[/] messages in {figures['seconds']:g} s: "
        f"[bold]{figures['messagesPerSecond']:,.1f}[/] msg/s, {figures['megabitsPerSecond']:,.2f} Mbit/s"
    )
    table = Table(title="Latency in ms")
    for name in latencies:
        table.add_column(name, justify="right")
    table.add_row(*(f"{value:,.2f}" for value in latencies.values()))
    console.print(table)


class Following:
    """Shows the progress of a run: a bar on a terminal, otherwise a line per interval."""

    def __init__(self, measured: Measurement, messages: int, seconds: float, interval_s: float) -> None:
        """`messages` and `seconds` are the limits of the run; 0: no limit."""
        self._measured = measured
        self._messages = messages
        self._seconds = seconds
        self._interval_s = interval_s
        self._next = measured.now() + interval_s
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = self._draw()

    def tick(self) -> None:
        """Update the display; called a few times per second."""
        measured = self._measured
        now = measured.now()
        if self._bar is not None:
            done: float = measured.messages if self._messages else now - measured.began
            seconds = max(now - measured.began, 1e-9)
            self._bar.update(
                0,
                completed=done,
                rate=f"{measured.messages / seconds:,.0f} msg/s",
                p99=f"p99 {measured.all.percentile_ms(99):.1f} ms",
            )
        if now >= self._next:
            self._next = now + self._interval_s
            line = measured.line()
            if self._bar is None:
                click.echo(line, err=True)
            else:
                self._bar.console.print(line, highlight=False)

    def close(self) -> None:
        if self._bar is not None:
            self.tick()
            self._bar.stop()

    def _draw(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn(self._measured.verb),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %" if self._messages or self._seconds else ""),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[p99]}"),
            TimeRemainingColumn() if self._messages or self._seconds else TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        bar.add_task("", total=self._messages or self._seconds or None, rate="", p99="")
        bar.start()
        return bar
