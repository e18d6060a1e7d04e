"""Common parts of several dashboards: variables, selectors, and the rows about processes."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Limit, Panel, Query, Row, Variable

CLUSTER: Final = 'cluster="$cluster"'
"""The selector of everything: brokers' samples have the label, other targets get it from Prometheus."""
RATE: Final = "$__rate_interval"
"""Grafana's: at least four scrapes, so that a rate never comes from a single sample."""

OF_CLUSTER: Final = Variable(
    name="cluster",
    title="Cluster",
    query='label_values(up{job=~"broker|bookie"}, cluster)',
)


def of_processes(job: str, title: str) -> Variable:
    """A choice among the processes of one kind."""
    query = f'label_values(up{{job="{job}", {CLUSTER}}}, instance)'
    return Variable(name=job, title=title, query=query, many=True)


def instances(job: str) -> str:
    """The selector of the processes of one kind that were chosen."""
    return f'job="{job}", {CLUSTER}, instance=~"${job}"'


def summed_rate(metric: str, where: str, by: str = "") -> str:
    """Per second, of a counter."""
    grouped = f"sum by ({by}) " if by else "sum"
    return f"{grouped}(rate({metric}{{{where}}}[{RATE}]))"


def quantile(share: float, histogram: str, where: str, by: str = "") -> str:
    """Quantile of a histogram's recent observations."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({histogram}_bucket{{{where}}}[{RATE}])))"


def message_latencies(where: str, width: int = 8) -> Panel:
    """How long messages take through the brokers that `where` selects."""
    return Panel(
        title="Latency of messages",
        help="Publishing: from arrival to receipt. Dispatch: from durable to a consumer. End to end: by the "
        "producer's clock.",
        unit="s",
        queries=tuple(
            Query(quantile(share, f"magnetar_{name}_latency_seconds", where), f"{text}, {of}")
            for name, text in (
                ("publish", "publishing"),
                ("dispatch", "dispatch"),
                ("end_to_end", "end to end"),
            )
            for share, of in ((0.5, "median"), (0.99, "99 %"))
        ),
        width=width,
        log=True,
    )


def processes(where: str, legend: str = "{{instance}}") -> Row:
    """How those that `where` selects are doing: the loop, the processor, memory and files."""
    lag = "Magnetar serves from one event loop a process: what is late here is late for all clients."
    return Row(
        "Processes",
        (
            Panel(
                title="Event loop lag, 99th percentile",
                help=f"How much later than asked timers run. {lag}",
                unit="s",
                queries=(
                    Query(quantile(0.99, "magnetar_event_loop_lag_seconds", where, "instance"), legend),
                ),
                limits=(Limit(0.5, "red"),),
                width=6,
            ),
            Panel(
                title="CPU",
                help="Share of one processor that the process uses; an event loop cannot use more than one.",
                unit="percentunit",
                queries=(Query(f"rate(process_cpu_seconds_total{{{where}}}[{RATE}])", legend),),
                width=6,
            ),
            Panel(
                title="Memory",
                help="Resident memory, which the limits of containers count.",
                unit="bytes",
                queries=(Query(f"process_resident_memory_bytes{{{where}}}", legend),),
                width=6,
            ),
            Panel(
                title="Open files",
                help="Share of the limit on open files that is used; each connection takes one.",
                unit="percentunit",
                queries=(Query(f"process_open_fds{{{where}}} / process_max_fds{{{where}}}", legend),),
                limits=(Limit(0.8, "red"),),
                width=6,
            ),
        ),
    )
