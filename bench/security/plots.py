"""Throughput of both brokers as a picture, plain and with TLS."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.results import Results
from bench.security.run import loads
from bench.security.services import column

COLORS: Final = {
    column(MAGNETAR, False): "#1f6feb",
    column(MAGNETAR, True): "#79b8ff",
    column(APACHE_PULSAR, False): "#57606a",
    column(APACHE_PULSAR, True): "#afb8c1",
}


def draw(results: Results, directory: Path) -> list[Path]:
    """Write the plot as SVG; nothing without figures. Needs the packages of requirements-bench.txt."""
    shown = [each for each in loads(0) if results.values(each.key, each.rate, MAGNETAR)]
    if not shown:
        return []
    import matplotlib

    matplotlib.use("svg")
    # Text stays text, and the same results give the same bytes.
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False}
    )
    matplotlib.rcParams["axes.spines.right"] = False
    from matplotlib import pyplot

    names = [name for name in COLORS if any(results.values(each.key, each.rate, name) for each in shown)]
    figure, axes = pyplot.subplots(figsize=(9, 0.8 * len(shown) + 1))
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        for place, load in enumerate(shown):
            values = results.values(load.key, load.rate, name)
            if not values:
                continue
            # MB/s in thousands of 1 KiB messages, as the others.
            scale = 1 / 1.024 if load.rate == "MB/s" else 1e-3
            at = place + (number - (len(names) - 1) / 2) * height
            middle, low, high = (each * scale for each in (median(values), min(values), max(values)))
            axes.barh(
                at,
                middle,
                height=height * 0.9,
                color=COLORS[name],
                label=name if place == 0 else None,
                xerr=[[middle - low], [high - middle]],
                error_kw={"elinewidth": 1, "capsize": 2},
            )
            axes.annotate(
                f"{middle:,.0f}", (high, at), (6, 0), textcoords="offset points", va="center", fontsize=8
            )
    axes.set_yticks(range(len(shown)), [load.title for load in shown])
    axes.invert_yaxis()
    axes.set_xlabel("thousand messages a second; median, lowest and highest round")
    axes.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=2, frameon=False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "security-throughput.svg"
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
    pyplot.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    return [path]
