"""`python -m bench.graphs`: what dashboards show of a cluster under load, drawn from a real Prometheus.

A cluster of three bookies, two brokers and a discovery is started for it on this machine, with Prometheus.
`magnetar perf` publishes and consumes; on the way a bookie and a broker are killed and come back. Then the
queries of some panels are asked over that time, as Grafana would, and drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from tests.cluster.processes import CLUSTER_NAME
from tests.cluster.whole_cluster import WholeCluster
from tests.deploy.prometheus_server import PrometheusServer, Series
from tests.integration.harness import eventually, magnetar_command, spawn, temporary_directory
from tools.dashboards.catalog import ALL, ROOT
from tools.dashboards.model import Dashboard, Panel
from tools.dashboards.query_variables import asked

RULES: Final = ROOT / "helm" / "magnetar" / "rules" / "magnetar.yaml"
IMAGE: Final = ROOT / "docs" / "images" / "dashboards-under-load.svg"
TOPICS: Final = 8
STEP_S: Final = 1
RATE_INTERVAL: Final = "8s"
"""Eight scrapes: Grafana's is longer, since it scrapes less often."""
SERIES_MAX: Final = 8
ENDS_SECONDS_MAX: Final = 60
COLUMNS: Final = 2
STYLES: Final = ("-", "--", ":")
"""Styles of the lines of one process, by query."""
LEGEND_POINTS: Final = 22
"""Height between a title and its panel: two lines."""
COLORS: Final = ("#1f6feb", "#cf222e", "#2da44e", "#bf8700", "#8250df", "#1b7c83", "#bc4c00", "#57606a")

SHOWN: Final = (
    ("overview", "Messages"),
    ("overview", "Backlog"),
    ("bookie", "Written"),
    ("bookie", "Time of an append"),
    ("broker", "Topics and bundles"),
    ("broker", "Ensemble changes"),
    ("overview", "CPU"),
    ("overview", "Event loop lag, 99th percentile"),
)
"""Panels by dashboard and title."""

SCALES: Final = {"binBps": ("MiB/s", 2.0**20), "mps": ("messages/s", 1.0), "percentunit": ("%", 0.01)}
SCALES_OF_OTHERS: Final = {"s": ("ms", 1e-3), "ms": ("ms", 1.0), "cps": ("/s", 1.0)}

Absence = tuple[float, float, str]
"""From when to when, in seconds since 1970, and who."""


def found(dashboard: str, title: str) -> tuple[Dashboard, Panel]:
    """A panel by its title. Raises StopIteration when there is none."""
    page = next(each for each in ALL if each.name == dashboard)
    return page, next(panel for panel in page.panels if panel.title == title)


@contextlib.contextmanager
def load(directory: Path, url: str, rate: float, size: int) -> Iterator[None]:
    """Publishing and consuming until the end."""
    topic = "persistent://public/default/load"
    common = ["--url", url, "--num-topics", str(TOPICS), "--stats-interval-seconds", "10"]
    commands = {
        "consume": ["perf", "consume", topic, *common],
        "produce": ["perf", "produce", topic, "--rate", f"{rate:g}", "--size", str(size), *common],
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            with (directory / f"{name}.log").open("ab") as log:
                started.append(spawn([*magnetar_command(), *command], log, directory))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(ENDS_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(cluster: WholeCluster, seconds: float) -> tuple[float, float, list[Absence]]:
    """When it began and ended, and who was away meanwhile; each part of the time is an eighth of it."""
    part_s = seconds / 8
    began_s = time.time()
    absences: list[Absence] = []

    def report(what: str) -> float:
        print(f"{time.time() - began_s:6.1f} s  {what}", flush=True)
        return time.time()

    time.sleep(2 * part_s)
    for what, process, then_parts in (
        ("bookie 1", cluster.bookies[0], 1.5),
        ("broker 2", cluster.brokers[1], 2.5),
    ):
        process.kill()
        killed_s = report(f"{what} is killed")
        time.sleep(part_s)
        process.start()
        absences.append((killed_s, report("and serves again"), f"{what} is away"))
        time.sleep(then_parts * part_s)
    return began_s, time.time(), absences


def draw(
    prometheus: PrometheusServer,
    names: Mapping[str, str],
    over: tuple[float, float],
    absences: Sequence[Absence],
) -> Any:
    """A picture of the panels, one beside the other; needs matplotlib. `names`: of processes, by address."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "graphs", "font.size": 8, "axes.spines.top": False}
    )
    matplotlib.rcParams["axes.spines.right"] = False
    from matplotlib import pyplot

    began_s, ended_s = over
    rows = math.ceil(len(SHOWN) / COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(11, 2.4 * rows), sharex=True, squeeze=False)
    for number, (name, title) in enumerate(SHOWN):
        axes = grid[number // COLUMNS][number % COLUMNS]
        dashboard, panel = found(name, title)
        unit, scale = {**SCALES, **SCALES_OF_OTHERS}.get(panel.unit, (panel.unit, 1.0))
        _panel(axes, prometheus, names, dashboard, panel, over, scale)
        for from_s, to_s, _ in absences:
            axes.axvspan(from_s - began_s, to_s - began_s, color="#eaeef2", zorder=0)
        axes.set_title(f"{dashboard.title}: {title}", loc="left", fontsize=9, pad=LEGEND_POINTS)
        axes.set_ylabel(unit if unit not in ("short", "none") else "")
        axes.set_xlim(0, ended_s - began_s)
        if not panel.log:
            axes.set_ylim(bottom=0)
        # Below the title and above the lines.
        axes.legend(
            fontsize=6,
            frameon=False,
            ncols=4,
            loc="lower left",
            bbox_to_anchor=(-0.02, 0.97),
            columnspacing=1,
        )
    for axes in grid[0]:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * 1.15)
        for from_s, to_s, what in absences:
            middle = (from_s + to_s) / 2 - began_s
            axes.annotate(what, (middle, high * 1.13), fontsize=6, ha="center", va="top", color="#57606a")
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    figure.tight_layout()
    return figure


def _panel(
    axes: Any,
    prometheus: PrometheusServer,
    names: Mapping[str, str],
    dashboard: Dashboard,
    panel: Panel,
    over: tuple[float, float],
    scale: float,
) -> None:
    drawn = 0
    processes = list(names)
    for style, query in zip(cycle(STYLES), panel.queries, strict=False):
        expr = asked(query.expr, dashboard, CLUSTER_NAME, RATE_INTERVAL)
        for series in prometheus.query_range(expr, *over, STEP_S):
            if drawn < SERIES_MAX:
                label = legend(query.legend, series.labels, names)
                instance = series.labels.get("instance", "")
                # A process has its color in every panel.
                color = COLORS[processes.index(instance) if instance in names else drawn]
                points = line(series, over[0], scale)
                axes.plot(
                    *points, linewidth=0.9, color=color, linestyle=style if instance else "-", label=label
                )
                drawn += 1
    if panel.log:
        axes.set_yscale("log")


def line(series: Series, began_s: float, scale: float) -> tuple[list[float], list[float]]:
    """Its points, with a break where it had none: nothing is known of what is away."""
    times: list[float] = []
    values: list[float] = []
    before = math.inf
    for at, value in series.points:
        if at - before > 1.5 * STEP_S:
            times.append(before - began_s)
            values.append(math.nan)
        times.append(at - began_s)
        values.append(value / scale)
        before = at
    return times, values


def legend(template: str, labels: Mapping[str, str], names: Mapping[str, str]) -> str:
    """A query's legend, with names of processes for their addresses."""
    template = template.replace("{{job}} {{instance}}", "{{instance}}")  # the name has it
    for key, value in labels.items():
        template = template.replace(f"{{{{{key}}}}}", names.get(value, value))
    return template


def shortened(svg: str) -> str:
    """Return the picture with coordinates rounded to hundredths of a point, to save bytes."""
    lines = [
        re.sub(r"\b\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", line.rstrip())
        for line in svg.splitlines()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Start, load, break, ask, draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.graphs", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=160.0, help="of load (%(default)g)")
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second (%(default)g)")
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a message (%(default)s)")
    parser.add_argument("--image", type=Path, default=IMAGE, help="where to write it")
    options = parser.parse_args()
    directory = temporary_directory()
    settings = {"statsUpdateFrequencyInSecs": "4"}
    serving = WholeCluster.serving(directory / "cluster", brokers=2, discoveries=1, broker_settings=settings)
    try:
        with serving as cluster:
            targets = {
                "broker": [one.endpoint.http_url.removeprefix("http://") for one in cluster.brokers],
                "bookie": [one.http_url.removeprefix("http://") for one in cluster.bookies],
                "discovery": [one.endpoint.http_url.removeprefix("http://") for one in cluster.discoveries],
                "etcd": [cluster.etcd.endpoint],
            }
            names = {
                address: f"{job} {number}"
                for job, addresses in targets.items()
                for number, address in enumerate(addresses, 1)
            }
            watching = PrometheusServer.running(directory / "prometheus", targets, CLUSTER_NAME, RULES)
            with (
                watching as prometheus,
                load(directory, cluster.endpoint.service_url, options.rate, options.size),
            ):
                every = sum(map(len, targets.values()))
                eventually(lambda: prometheus.targets_up() == every, "all are scraped")
                began_s, ended_s, absences = run(cluster, options.seconds)
                figure = draw(prometheus, names, (began_s, ended_s), absences)
        options.image.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.image, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
        options.image.write_text(shortened(options.image.read_text()))
        print(f"written: {options.image}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
