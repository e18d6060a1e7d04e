"""The results as pictures: how each figure stands to its floor, throughput, and latency percentiles."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.figures import QUANTILES, spread
from bench.results import Results
from bench.scenarios import FULL, QUICK, all_scenarios

COLORS: Final = {MAGNETAR: "#1f6feb", APACHE_PULSAR: "#8b949e"}
MET, MISSED, AIM = "#2da44e", "#cf222e", "#1f6feb"
MARGIN_MAX: Final = 20.0
"""Bars end here: beyond it a floor is no longer the question."""


def draw(results: Results, directory: Path, prefix: str = "bench") -> list[tuple[str, Path]]:
    """Write the plots that there are figures for, as SVG; returns their kinds and paths.

    Needs the packages of requirements-bench.txt.
    """
    import matplotlib

    matplotlib.use("svg")
    # Text stays text, and the same results give the same bytes.
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False}
    )
    matplotlib.rcParams["axes.spines.right"] = False
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, painter in (("floors", _floors), ("throughput", _throughput), ("latency", _latency)):
        figure = painter(pyplot, results)
        if figure is None:
            continue
        path = directory / f"{prefix}-{name}.svg"
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
        pyplot.close(figure)
        text = path.read_text()
        path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
        drawn.append((name, path))
    return drawn


def _floors(pyplot: Any, results: Results) -> Any:
    """A bar for each figure that has a floor: how many times better than it."""
    labels, margins, aims = [], [], []
    for scenario in all_scenarios(QUICK if results.quick else FULL):
        for figure in scenario.figures:
            ours = results.values(scenario.key, figure.key, MAGNETAR)
            anchor = results.values(scenario.key, figure.key, APACHE_PULSAR)
            if figure.floor is None or not ours or (figure.of == "ratio" and not anchor):
                continue
            judged = median(ours) / (median(anchor) if figure.of == "ratio" else 1.0)
            sign = 1 if figure.better == "higher" else -1
            margins.append((max(judged, 1e-3) / figure.floor) ** sign)
            aims.append(None if figure.aim is None else (figure.aim / figure.floor) ** sign)
            labels.append(f"{scenario.title}: {figure.key}")
    if not labels:
        return None
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(labels) + 1))
    places = range(len(labels))
    for place, margin, aim in zip(places, margins, aims, strict=True):
        shown = min(margin, MARGIN_MAX)
        axes.barh(place, shown - 1, left=1, height=0.6, color=MET if margin >= 1 else MISSED)
        beside = max(shown, 1.0)
        if aim is not None and beside < aim < 1.4 * beside:
            beside = aim
        text = f"{margin:.2f}" if margin <= MARGIN_MAX else f"more than {MARGIN_MAX:g}"
        axes.text(beside * 1.04, place, text, va="center", fontsize=8)
    with_aim = [(aim, place) for aim, place in zip(aims, places, strict=True) if aim is not None]
    axes.plot(
        [aim for aim, _ in with_aim],
        [place for _, place in with_aim],
        linestyle="none",
        marker="|",
        markersize=13,
        markeredgewidth=2,
        color=AIM,
        label="aim",
    )
    axes.axvline(1, color="black", linewidth=1, label="floor")
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *margins) / 1.2, 2 * MARGIN_MAX)
    ticks = [
        tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if tick >= min(0.5, *margins)
    ]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlabel("times better than the floor (log scale); red: floor missed")
    axes.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=2, frameon=False)
    return figure


def _throughput(pyplot: Any, results: Results) -> Any:
    """Both brokers' rates, with the range of the rounds."""
    shown = [
        (scenario.key, rate.key, scenario.title)
        for scenario in all_scenarios(QUICK if results.quick else FULL)
        for rate in scenario.figures
        if rate.of == "ratio"
        and rate.unit in ("/s", "MB/s")
        and results.values(scenario.key, rate.key, MAGNETAR)
    ]
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(9, 0.55 * len(shown) + 1))
    brokers = [name for name in (MAGNETAR, APACHE_PULSAR) if name in results.brokers]
    height = 0.8 / len(brokers)
    for number, name in enumerate(brokers):
        for place, (scenario_key, figure_key, _) in enumerate(shown):
            values = results.values(scenario_key, figure_key, name)
            if not values:
                continue
            # MB/s would vanish beside entries/s: drawn in thousands of 1 KiB messages.
            scale = 1 / 1.024 if figure_key == "MB/s" else 1e-3
            one = spread([value * scale for value in values])
            at = place + (number - (len(brokers) - 1) / 2) * height
            axes.barh(
                at,
                one.median,
                height=height * 0.9,
                color=COLORS[name],
                label=name if place == 0 else None,
                xerr=[[one.median - one.lowest], [one.highest - one.median]],
                error_kw={"elinewidth": 1, "capsize": 2},
            )
            text = f"{one.median:,.0f}"
            if figure_key == "MB/s":
                text += f" ({median(values):,.0f} MB/s)"
            axes.annotate(
                text, (one.highest, at), (6, 0), textcoords="offset points", va="center", fontsize=8
            )
    axes.set_yticks(range(len(shown)), [label for _, _, label in shown])
    axes.invert_yaxis()
    axes.set_xlabel("thousand messages a second; median, lowest and highest round")
    axes.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=2, frameon=False)
    return figure


def _latency(pyplot: Any, results: Results) -> Any:
    """Percentile curves at a fixed rate, the median round of each point."""
    curves = results.curves.get("rate-2000")
    if not curves:
        return None
    figure, panels = pyplot.subplots(1, len(curves), figsize=(9, 3.2), sharey=True, squeeze=False)
    points = [(place, share) for place, share in enumerate(QUANTILES) if 0.1 <= share <= 0.999]
    for axes, (name, by_broker) in zip(panels[0], curves.items(), strict=True):
        for broker, rounds in by_broker.items():
            values = [median(one[place] for one in rounds) for place, _ in points]
            axes.plot(
                range(len(points)), values, marker="o", markersize=3, color=COLORS[broker], label=broker
            )
        axes.set_yscale("log")
        axes.set_xticks(range(len(points)), [f"{share * 100:g}" for _, share in points], fontsize=8)
        axes.set_xlabel("percentile")
        axes.set_title({"ack": "acknowledgement"}.get(name, name), fontsize=9)
        axes.grid(True, axis="y", which="major", color="#d0d7de", linewidth=0.6)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    low, high = panels[0][0].get_ylim()
    ticks = [tick for tick in ticks if low <= tick <= high]
    panels[0][0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[0][0].minorticks_off()
    panels[0][0].set_ylabel("ms at 2,000 messages a second")
    panels[0][0].legend(frameon=False, fontsize=8)
    return figure
