"""docs/metrics.md: what every service shows, from rendered pages and from what modules declare.

Written by `make docs`. So the page cannot say what the code does not: neither which metrics there are, nor
which of Pulsar's there are not.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar.bookie.metrics import BookieStats, Figures
from magnetar.bookie.metrics import MetricsPage as BookieMetricsPage
from magnetar.broker.config import BrokerConfig, MetricsConfig
from magnetar.broker.message_drops import Drops, NonPersistentSubscriptionStats
from magnetar.broker.metrics.page import MetricsPage
from magnetar.broker.schemas.figures import SUMMARIES as SCHEMA_SUMMARIES
from magnetar.broker.stats import ProducerStats, SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.limits.dispatch_rate import BYTES, MESSAGES, OF_TOPIC
from magnetar.broker.topics.compaction_state import CompactionState
from magnetar.broker.topics.transaction_figures import TransactionFigures
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.compacted.figures import WRITE_MS_BOUNDS, WriteTimes

from tools.pulsar_metrics import absences

ROOT: Final = Path(__file__).resolve().parent.parent

INTRODUCTION: Final = """\
# Metrics

Written by `make docs` from the metrics in the code; change them there.

Every service answers `GET /metrics` on its HTTP port in Prometheus's text format: brokers, standalone and
discovery on 8080, bookies on 8000. Names, labels and units are those of Apache Pulsar and BookKeeper where
the meaning is the same, so that dashboards and alerts that exist go on working; what they have no name for
begins with `magnetar_`. Rates are per second over the last `statsUpdateFrequencyInSecs` (a minute), sizes are
in bytes, backlogs in entries; latencies are in milliseconds, as Pulsar's, unless the name ends in `_seconds`.

Every sample of a broker carries a label `cluster`, as every one of Pulsar's does; it is listed below only
where the metric itself has it. Prometheus should add it to every target, as bookies and discoveries have
none, with `job` one of `broker`, `bookie` and `discovery`, as the compose file and the chart of this
repository do; the dashboards and alerts here rely on both.

Beside what is listed, each page has the metrics of its process from the Prometheus client library: CPU
(`process_cpu_seconds_total`), memory (`process_resident_memory_bytes`), file descriptors (`process_open_fds`,
`process_max_fds`), its start (`process_start_time_seconds`) and the interpreter's (`python_...`).

## How many series there are

| what | series | switch |
| --- | --- | --- |
| a topic | {of_topic} | `exposeTopicLevelMetricsInPrometheus=false` shows sums of namespaces instead |
| a subscription | {of_subscription} | the same |
| a consumer | {of_consumer}, off | `exposeConsumerLevelMetricsInPrometheus=true` |
| a producer | {of_producer}, off | `exposeProducerLevelMetricsInPrometheus=true` |
| a namespace | {of_namespace} | `exposeManagedLedgerMetricsInPrometheus=false` leaves 1 |

What seldom differs from 0 has no series while it is 0. `splitTopicAndPartitionLabelInPrometheus=true` gives a
partition's number a label of its own, so that sums over a topic's partitions need no pattern. The page of
topics comes in slices of a millisecond, between which messages are served.

## Where latency comes from

| metric | from and to |
| --- | --- |
| `magnetar_publish_latency_seconds` | messages arrive; their receipts are written. Every run of messages |
| `magnetar_storage_write_latency_seconds` | a run goes to its ledger; enough bookies have it. Sampled |
| `magnetar_dispatch_latency_seconds` | an entry is durable; it goes out to a consumer. Sampled |
| `magnetar_end_to_end_latency_seconds` | the producer's publish time; it goes out to a consumer. Sampled |
| `magnetar_bookie_append_latency_seconds` | an append arrives at the bookie; its answer goes out. Every one |
| `magnetar_log_sync_seconds` | a group of the log is given to the disk; it is there. Every one |
| `magnetar_event_loop_lag_seconds` | a timer is due; it runs |

Samples are one entry at a time, up to a hundred a second for the whole process, so that they cost nothing for
a message. Those of dispatch are of each subscription that has consumers; producers' clocks are believed.

They are histograms, so that they can be added up over processes before a quantile is taken:
`histogram_quantile(0.99, sum by (le) (rate(magnetar_publish_latency_seconds_bucket[5m])))`. A message that
waits for its consumer counts in dispatch with the time that it waited. Of a topic alone there are Pulsar's
`pulsar_storage_write_latency_le_...`: gauges, each with its own entries of the last period, which do not add
up to the next.
"""

ABSENT: Final = """
## Pulsar's and BookKeeper's that are not here

Whatever Pulsar 4.0.7 and its bookies show under load and this does not, and where to look instead.

| metrics | why, and what instead |
| --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_COMPACTED: Final = CompactionState(
    removed_total=1,
    succeeded=1,
    failed=1,
    duration_ms=1,
    bytes_read=1,
    bytes_written=1,
    writes=WriteTimes([1] * (len(WRITE_MS_BOUNDS) + 1), 1.0),
)


class Silent:
    """Stands for a topic, subscription or broker with nothing to report: figures not given are 0."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> int:
        return 0


def parse(exposition: str) -> Iterator[Row]:
    """One row per `# HELP` of a page; labels from the first sample after it."""
    name = kind = text = ""
    for line in exposition.splitlines():
        if line.startswith("# HELP "):
            name, _, text = line.removeprefix("# HELP ").partition(" ")
        elif line.startswith("# TYPE "):
            kind = line.rpartition(" ")[2]
        elif name:
            pairs = line.partition("{")[2].rpartition("}")[0].split(",") if "{" in line else []
            labels = tuple(pair.partition("=")[0] for pair in pairs)
            yield Row(name, kind, labels, text)
            name = ""


def rendered_page() -> str:
    """The page of a broker with one of everything, with something of what is seldom shown."""
    for _, _, figures in SCHEMA_SUMMARIES:
        figures.succeeded(NamespaceName("any", "any"), 0, 0)
    stats = NonPersistentSubscriptionStats(expired_at_ms=1, drops=Drops(rate=1))
    stats.count_throttled(OF_TOPIC, MESSAGES)
    stats.count_throttled(OF_TOPIC, BYTES)
    consumer = Silent(
        name="any",
        sent_at_ms=1,
        acked_at_ms=1,
        flow_at_ms=1,
        stats=SubscriptionStats(),
        pending=Silent(),
    )
    subscription = Silent(stats=stats, consumers=[consumer], backlog=lambda: 0, mark_deleted_ms=1)
    topic = Silent(
        name=TopicName.parse("persistent://public/default/any"),
        stats=TopicStats(),
        subscriptions={"any": subscription},
        producers={"any": Silent(stats=ProducerStats())},
        times_rate_limited=1,
        offloaded_bytes=1,
        compaction=_COMPACTED,
        compaction_subscription=lambda: None,
        transactions=TransactionFigures(1, 1, 1),
        blocked_by_transaction_s=1,
        compacted_entries=1,
        compacted_bytes=1,
    )
    config = replace(BrokerConfig(), metrics=MetricsConfig(consumer_level=True, producer_level=True))
    broker: Any = Silent(config=config, topics={"any": topic}, not_ready=None, leaving=None, cluster=None)
    return "".join(MetricsPage(broker).render())


def bookie_page() -> str:
    """The part of a bookie's page that is rendered by hand."""
    figures = Figures(ledgers=lambda: 0, writable=lambda: True)
    return "".join(BookieMetricsPage(BookieStats(), figures, lambda: 0.0).bookkeeper_part())


def declared() -> Iterator[Row]:
    """Metrics that modules declare on the registry, counted yet or not."""
    for module in pkgutil.walk_packages(magnetar.__path__, "magnetar."):
        importlib.import_module(module.name)
    for metric in REGISTRY.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        collector: Any = REGISTRY._names_to_collectors[metric.name]
        yield Row(name, metric.type, tuple(collector._labelnames), metric.documentation)


ROOMS: Final = {
    "common": "Of every process",
    "ledger": "Of storage: bookies, and brokers as their clients",
    "bookie": "Of bookies",
    "broker": "Of brokers",
    "console": "Of the console",
    "discovery": "Of discovery",
    "standalone": "Of processes",
}
"""Where modules declare metrics, and what the chapter of those is called."""


def by_room(rows: list[Row]) -> dict[str, list[Row]]:
    """Each with the room in whose source its name stands."""
    sources = {room: "".join(_sources(room)) for room in ROOMS}
    found: dict[str, list[Row]] = {room: [] for room in ROOMS}
    for row in rows:
        base = row.name.removesuffix("_total")
        homes = [room for room, text in sources.items() if f'"{base}"' in text or f'"{row.name}"' in text]
        for end in range(len(base), len("pulsar_"), -1):
            # One of several that are made from one pattern.
            homes = homes or [room for room, text in sources.items() if f'f"{base[:end]}{{' in text]
        if not homes:
            raise SystemExit(f"no module has the name {row.name}, or a pattern that begins like it")
        found[homes[0]].append(row)
    return found


def _sources(room: str) -> Iterator[str]:
    for base in ("libs", "services"):
        for path in sorted((ROOT / base / room).rglob("*.py")):
            yield path.read_text()


def table(rows: list[Row]) -> str:
    """A table of metrics; labels that all of them have stand above it."""
    common = [label for label in rows[0].labels if all(label in row.labels for row in rows)]
    lines = (
        ["", f"Every metric has the labels {', '.join(f'`{each}`' for each in common)}."] if common else []
    )
    lines += ["", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels if label not in common)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.help} |")
    return "\n".join(lines) + "\n"


def series(rows: list[Row]) -> int:
    """How many lines a page has for one thing that shows these."""
    return len({row.name for row in rows})


def metrics() -> str:
    """The whole page."""
    rows = list(parse(rendered_page()))
    of = {
        "consumer": [row for row in rows if "consumer_name" in row.labels],
        "producer": [row for row in rows if "producer_name" in row.labels],
    }
    clients = of["consumer"] + of["producer"]
    of["subscription"] = [row for row in rows if "subscription" in row.labels and row not in clients]
    of["topic"] = [
        row for row in rows if "topic" in row.labels and row not in clients and row not in of["subscription"]
    ]
    of["namespace"] = [row for row in rows if "namespace" in row.labels and "topic" not in row.labels]
    of_broker = [row for row in rows if "namespace" not in row.labels]
    bookie = list(parse(bookie_page()))
    rooms = by_room(sorted(declared(), key=lambda row: row.name))
    counts = {f"of_{name}": series(found) for name, found in of.items()}
    # Ranges are lines of one metric, told apart by a label.
    counts["of_namespace"] = len(
        re.findall(r"^pulsar_(?:ml_\w+|topics_count)\{[^}]*namespace=", rendered_page(), re.M)
    )
    pages = [
        INTRODUCTION.format(**counts),
        "\n## Topics\n" + table(of["topic"]),
        "\n## Subscriptions\n" + table(of["subscription"]),
        "\n## Consumers and producers\n\nWhere the configuration says so.\n" + table(clients),
        "\n## Namespaces\n" + table(of["namespace"]),
        "\n## The broker\n" + table(of_broker),
        "\n## A bookie\n" + table(bookie),
        "\n## Inside\n\nCounted where it happens; a process shows what its own parts count.\n",
        *(f"\n### {title}\n" + table(rooms[room]) for room, title in ROOMS.items() if rooms[room]),
    ]
    everything = [*rows, *bookie, *(row for found in rooms.values() for row in found)]
    reasons: dict[str, list[str]] = {}
    for name, why in absences({row.name for row in everything}):
        reasons.setdefault(why, []).append(f"`{name}`")
    pages.append(ABSENT + "".join(f"| {', '.join(names)} | {why} |\n" for why, names in reasons.items()))
    return "".join(pages)
