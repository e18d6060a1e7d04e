"""Write the generated pages: `make docs`; `--check` fails when a committed page differs.

docs/configuration.md comes from the settings dataclasses, docs/metrics.md from a rendered metrics page and
the metrics that modules declare, the reference in docs/admin.md from the table of routes: none can say what
the code does not.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import magnetar
from magnetar.bookie.config import BookieConfig
from magnetar.bookie.metrics import BookieStats, Figures
from magnetar.bookie.metrics import MetricsPage as BookieMetricsPage
from magnetar.broker.admin.metrics_page import MetricsPage
from magnetar.broker.admin.reference_text import chapter
from magnetar.broker.admin.table import routes
from magnetar.broker.config import BrokerConfig
from magnetar.broker.drops import Drops, NonPersistentSubscriptionStats
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.dispatch_rate import BYTES, MESSAGES, OF_TOPIC
from magnetar.common.config.reference import reference
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.command_reference import reference as command_reference
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.main import main as command_line

DOCS = Path(__file__).resolve().parent

CONFIGURATION = """\
# Configuration

Written by `make docs` from the settings in the code; change them there.

Keys are those of Apache Pulsar wherever the meaning is the same; Magnetar's own begin with `magnetar`. A
value comes from, each overriding the one before:

1. the default below;
2. a file of `key=value` lines given with `--config FILE`: `broker.conf` and `standalone.conf` of a Pulsar
   installation can be given as they are, and keys that Magnetar has no use for are listed in one warning;
3. the environment: `MAGNETAR_` and the key, case and underscores ignored, for example
   `MAGNETAR_BROKER_SERVICE_PORT=6651`;
4. the command line: `--set brokerServicePort=6651`, repeated as needed.

A key that neither Pulsar nor Magnetar knows, or a value of the wrong type, stops the start; the message lists
all problems at once and names the nearest valid key. So does a switch that turns on a security feature which
this version does not have. `magnetar standalone --print-config` prints every value and where it came from.

## Standalone

"""

CLI_REFERENCE = """\
## Commands

Written by `make docs` from the commands in the code; what they share is above.

"""

BROKER_CONFIGURATION = """
## Broker

`magnetar broker`; [cluster.md](cluster.md) is about running it. Settings with the same meaning and default as
a standalone's are listed again, so that this is all of them.

"""

BOOKIE_CONFIGURATION = """
## Bookie

`magnetar bookie`; [bookies.md](bookies.md) is about running it. Keys are those of Apache BookKeeper wherever
the meaning is the same, and a `bookkeeper.conf` can be given as it is, with `clusterName` and
`metadataServiceUri=etcd:...` beside it.

"""

DISCOVERY_CONFIGURATION = """
## Discovery

`magnetar discovery`; [discovery.md](discovery.md) is about running it. Keys are those of Apache Pulsar's
proxy wherever the meaning is the same.

"""

METRICS = """\
# Metrics

Written by `make docs` from the metrics in the code; change them there.

`GET /metrics` on the HTTP port (8080; of a bookie 8000) answers in the Prometheus text format. Names, labels
and units are those of Apache Pulsar and BookKeeper where the meaning is the same: rates are per second over
the last minute, sizes are in bytes, latencies in milliseconds, backlogs in entries. What they have no name
for begins with `magnetar_`; a process shows those of its own parts.

The metrics of the process (`process_...`, `python_...`) come from the Prometheus client library and are not
listed.
"""


ADMIN_REFERENCE = """\
## Reference

Written by `make docs` from the table of routes in the code; change it there. A broker shows the same at
`/docs`, with the members of every type, and as an OpenAPI 3.1 document at `/openapi.json`. `{domain}` is
`persistent` or `non-persistent`; an answer without a body says that what was asked for is not set.

"""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: str
    labels: str
    help: str


def parse(exposition: str) -> Iterator[Row]:
    """One row per `# HELP` of a page; labels from the first sample after it."""
    name = kind = text = ""
    for line in exposition.splitlines():
        if line.startswith("# HELP "):
            name, _, text = line.removeprefix("# HELP ").partition(" ")
        elif line.startswith("# TYPE "):
            kind = line.rpartition(" ")[2]
            labels = ""
        elif name:
            if "{" in line:
                pairs = line.partition("{")[2].rpartition("}")[0].split(",")
                labels = ", ".join(f"`{pair.partition('=')[0]}`" for pair in pairs)
            yield Row(name, kind, labels, text)
            name = ""


class Silent:
    """Stands for a topic, subscription or broker with nothing to report: figures not given are 0."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> int:
        return 0


def rendered_page() -> str:
    """The page of a broker with one topic and one subscription, with something of what is seldom shown."""
    stats = NonPersistentSubscriptionStats(expired_at_ms=1, drops=Drops(rate=1))
    stats.count_throttled(OF_TOPIC, MESSAGES)
    stats.count_throttled(OF_TOPIC, BYTES)
    consumer = Silent(sent_at_ms=1, acked_at_ms=1, flow_at_ms=1)
    subscription = Silent(stats=stats, consumers=[consumer], backlog=lambda: 0)
    name = TopicName.parse("persistent://public/default/any")
    topic = Silent(
        name=name,
        stats=TopicStats(),
        subscriptions={"any": subscription},
        times_rate_limited=1,
        offloaded_bytes=1,
    )
    broker: Any = Silent(config=BrokerConfig(), topics={"any": topic})
    return "".join(MetricsPage(broker).render())


def bookie_page() -> str:
    """The part of a bookie's page that is rendered by hand."""
    figures = Figures(ledgers=lambda: 0, writable=lambda: True)
    return "".join(BookieMetricsPage(BookieStats(), figures, lambda: 0.0).bookkeeper_part())


def declared() -> Iterator[Row]:
    """What modules declare on the registry, whether or not anything was counted yet."""
    for module in pkgutil.walk_packages(magnetar.__path__, "magnetar."):
        importlib.import_module(module.name)
    for metric in REGISTRY.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        collector: Any = REGISTRY._names_to_collectors[metric.name]
        labels = ", ".join(f"`{label}`" for label in collector._labelnames)
        yield Row(name, metric.type, labels, metric.documentation)


def table(title: str, rows: list[Row]) -> str:
    lines = ["", f"## {title}", "", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{row.name}` | {row.kind} | {row.labels} | {row.help} |" for row in rows]
    return "\n".join(lines) + "\n"


def metrics() -> str:
    rows = list(parse(rendered_page()))
    of_topics = [row for row in rows if "`topic`" in row.labels]
    of_broker = [row for row in rows if "`topic`" not in row.labels]
    own = sorted(declared(), key=lambda row: row.name)
    return (
        METRICS
        + table("Topics and subscriptions", of_topics)
        + table("The broker", of_broker)
        + table("A bookie", list(parse(bookie_page())))
        + table("Inside", own)
    )


def admin() -> str:
    """What was written by hand, up to the reference, and that."""
    by_hand, _, _ = (DOCS / "admin.md").read_text().partition(ADMIN_REFERENCE.splitlines()[0] + "\n")
    broker: Any = Silent(config=BrokerConfig(), topics={})
    return by_hand + ADMIN_REFERENCE + chapter(routes(broker))


def cli() -> str:
    """What was written by hand, up to the reference, and that."""
    by_hand, _, _ = (DOCS / "cli.md").read_text().partition(CLI_REFERENCE.splitlines()[0] + "\n")
    return by_hand + CLI_REFERENCE + command_reference(command_line, "magnetar")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    check = parser.parse_args().check
    pages = {
        "configuration.md": CONFIGURATION
        + reference(StandaloneConfig)
        + BROKER_CONFIGURATION
        + reference(ClusterBrokerConfig)
        + DISCOVERY_CONFIGURATION
        + reference(DiscoveryConfig)
        + BOOKIE_CONFIGURATION
        + reference(BookieConfig),
        "metrics.md": metrics(),
        "admin.md": admin(),
        "cli.md": cli(),
    }
    stale = []
    for name, text in pages.items():
        page = DOCS / name
        if not page.exists() or page.read_text() != text:
            stale.append(f"docs/{name}")
            if not check:
                page.write_text(text)
    if check and stale:
        sys.exit("generated pages are out of date, run 'make docs': " + ", ".join(stale))


if __name__ == "__main__":
    main()
