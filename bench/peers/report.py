"""The comparison as Markdown: a table with a sync before each acknowledgement, and one without."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Final

from bench.brokers import MAGNETAR
from bench.figures import Figure
from bench.peers.loads import DRAIN, IDLE, KAFKA, LOADS, NATS, ONE_IN_FLIGHT, START, STARTS
from bench.peers.run import group
from bench.report import summary, values_cell
from bench.results import Results
from bench.table import lines

PEERS: Final = (NATS, KAFKA)
HEADINGS: Final = ("load", "figure", MAGNETAR, NATS, "Magnetar/NATS", KAFKA, "Magnetar/Kafka", "aim")
TITLES: Final = {True: "A sync before each acknowledgement:", False: "No sync before an acknowledgement:"}


def with_aim(load: str, figure: Figure, *, synced: bool) -> Figure:
    """The figure with what the project aims at, which is a ratio to Kafka or a value."""
    match load, figure.key, synced:
        case _, "messages/s", _ if load == DRAIN:
            return replace(figure, floor=1.0)
        case _, "ack p50", False if load == ONE_IN_FLIGHT:
            return replace(figure, floor=0.12, of="value")
        case _, "start", _ if load == START:
            return replace(figure, floor=0.4, of="value")
        case _, "resident memory", _ if load == IDLE:
            return replace(figure, floor=35.0, of="value")
    return figure


def rows(results: Results, *, synced: bool) -> list[tuple[str, ...]]:
    """The body of a table; a load's title stands in its first row only."""
    found = []
    for load in (*LOADS, *STARTS):
        title, where = load.title, group(load.key, synced=synced)
        for plain in load.figures:
            figure = with_aim(load.key, plain, synced=synced)
            ours = results.values(where, figure.key, MAGNETAR)
            if not ours:
                continue
            theirs = {peer: results.values(where, figure.key, peer) for peer in PEERS}
            cells = [values_cell(ours, figure.unit)]
            for peer in PEERS:
                cells += [values_cell(theirs[peer], figure.unit), ratio_cell(ours, theirs[peer])]
            found.append((title, figure.key, *cells, aim_cell(figure, ours, theirs[KAFKA])))
            title = ""
    return found


def ratio_of(ours: list[float], theirs: list[float]) -> float | None:
    """The median of the ratios of each round, in which the machine had the same other work.

    None without figures of a peer; the ratio of the medians when a round of one failed.
    """
    if not ours or not theirs or not all(theirs):
        return None
    if len(ours) != len(theirs):
        return median(ours) / median(theirs)
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def ratio_cell(ours: list[float], theirs: list[float]) -> str:
    ratio = ratio_of(ours, theirs)
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def aim_cell(figure: Figure, ours: list[float], kafka: list[float]) -> str:
    """The aim, and whether it is met."""
    if figure.floor is None:
        return ""
    if figure.of == "value":
        said, told = figure.verdict(median(ours), None), f"{figure.floor:g} {figure.unit}"
    else:
        # A verdict is about a ratio to the anchor, which is 1 of itself here.
        ratio = ratio_of(ours, kafka)
        said, told = "not paired" if ratio is None else figure.verdict(ratio, 1.0), "Kafka's"
    return f"{told}: {said.replace('floor ', '')}"


def markdown(results: Results) -> list[str]:
    """Both tables below the conditions of the run."""
    found = summary(results)
    for synced in (True, False):
        if body := rows(results, synced=synced):
            found += ["", TITLES[synced], "", *lines(HEADINGS, body)]
    return found
