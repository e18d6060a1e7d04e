"""Write the generated pages: `make docs`; `--check` fails when a committed page differs.

docs/configuration.md comes from the settings dataclasses, docs/metrics.md from a rendered metrics page and
the metrics that modules declare, the reference in docs/admin.md from the table of routes, docs/clients.md
from the recorded verdicts of client libraries, docs/client-api.md from the public names of magnetar.client:
none can say what the code does not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from magnetar.bookie.config import BookieConfig
from magnetar.broker.admin.openapi.markdown import chapter
from magnetar.broker.admin.table import routes
from magnetar.broker.config import BrokerConfig
from magnetar.cli.command_reference import reference as command_reference
from magnetar.cli.main import main as command_line
from magnetar.common.config.reference import reference
from magnetar.common.config.setting_values import settings_of
from magnetar.console.config import ConsoleConfig
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.shared_config import SharedStandaloneConfig

DOCS = Path(__file__).resolve().parent

sys.path.insert(0, str(DOCS.parent))
from tests.clients.page import page as clients  # noqa: E402  # found only now
from tools.client_reference import client_reference  # noqa: E402
from tools.metrics_reference import Silent, metrics  # noqa: E402

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

`magnetar broker`; [cluster.md](cluster.md) is about running it. It has the settings of a standalone, except
{absent}. Only settings that a standalone lacks, or that have another default or meaning, are listed here.

"""

SHARED_CONFIGURATION = """
## Standalone with workers

`magnetar standalone --workers N` ([operations.md](operations.md#more-than-one-core)). It has the settings of
a standalone, those of load balancing of a broker, and:

"""

BOOKIE_CONFIGURATION = """
## Bookie

`magnetar bookie`; [bookies.md](bookies.md) is about running it. Keys are those of Apache BookKeeper wherever
the meaning is the same, and a `bookkeeper.conf` can be given as it is, with `clusterName` and
`metadataServiceUri=etcd:...` beside it. As of a standalone or a broker: {shared}.

"""

DISCOVERY_CONFIGURATION = """
## Discovery

`magnetar discovery`; [discovery.md](discovery.md) is about running it. Keys are those of Apache Pulsar's
proxy wherever the meaning is the same.

"""

CONSOLE_CONFIGURATION = """
## Console

`magnetar console`; [console.md](console.md) is about running it. A standalone has the console at `/console`
without any of these.

"""

ADMIN_REFERENCE = """\
## Reference

Written by `make docs` from the table of routes in the code; change it there. A broker shows each call with
the members of every type and its own errors at `/docs`, and as an OpenAPI 3.1 document at `/openapi.json`.
`{domain}` is `persistent` or `non-persistent`. Under *answers*, a type without a status means 200; an empty
cell, and a method without an entry, mean 204. A GET answered without a body means that the value is not set.
Where nothing is said, GET, POST or PUT, and DELETE get, set and remove the policy that the path names; names
after a comma replace its last word.

"""


def admin() -> str:
    """The hand-written part up to the reference, then the reference."""
    by_hand, _, _ = (DOCS / "admin.md").read_text().partition(ADMIN_REFERENCE.splitlines()[0] + "\n")
    broker: Any = Silent(config=BrokerConfig(), topics={})
    return by_hand + ADMIN_REFERENCE + chapter(routes(broker))


def cli() -> str:
    """The hand-written part up to the reference, then the reference."""
    by_hand, _, _ = (DOCS / "cli.md").read_text().partition(CLI_REFERENCE.splitlines()[0] + "\n")
    return by_hand + CLI_REFERENCE + command_reference(command_line, "magnetar")


def only_of_standalone() -> str:
    """The keys that a broker of a cluster does not have."""
    broker = settings_of(ClusterBrokerConfig)
    return ", ".join(f"`{key}`" for key in settings_of(StandaloneConfig) if key not in broker)


def of_bookies_and_others() -> str:
    """The keys of a bookie that a standalone or a broker of a cluster has alike."""
    rows = reference(BookieConfig).splitlines()
    others = set((reference(StandaloneConfig) + reference(ClusterBrokerConfig)).splitlines())
    return ", ".join(
        row.split(" | ")[0].removeprefix("| ") for row in rows if row[:3] == "| `" and row in others
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    check = parser.parse_args().check
    pages = {
        "configuration.md": CONFIGURATION
        + reference(StandaloneConfig)
        + SHARED_CONFIGURATION
        + reference(SharedStandaloneConfig, StandaloneConfig, ClusterBrokerConfig)
        + BROKER_CONFIGURATION.format(absent=only_of_standalone())
        + reference(ClusterBrokerConfig, StandaloneConfig)
        + DISCOVERY_CONFIGURATION
        + reference(DiscoveryConfig)
        + CONSOLE_CONFIGURATION
        + reference(ConsoleConfig)
        + BOOKIE_CONFIGURATION.format(shared=of_bookies_and_others())
        + reference(BookieConfig, StandaloneConfig, ClusterBrokerConfig),
        "metrics.md": metrics(),
        "admin.md": admin(),
        "cli.md": cli(),
        "clients.md": clients(),
        "client-api.md": client_reference(),
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
