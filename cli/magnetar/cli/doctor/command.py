"""`magnetar doctor`: checks a host and a cluster, and reports problems with remedies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.metadata_credentials import metadata_options

if TYPE_CHECKING:
    from magnetar.cli.doctor.findings import Finding
    from magnetar.cli.doctor.probes import Probes

PORTS: Final = (6650, 8080)
_COLORS: Final = {"ok": "green", "warning": "yellow", "failure": "red", "skipped": "dim"}
_MARKS: Final = {"ok": "✓", "warning": "!", "failure": "✗", "skipped": "-"}


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Data directory, existing or planned; its disk is measured.",
)
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65_535),
    multiple=True,
    default=PORTS,
    show_default=True,
    help="Port of a server on this host, running or planned; repeat for several.",
)
@click.option(
    "--admin-url",
    envvar="MAGNETAR_ADMIN_URL",
    default="http://localhost:8080",
    show_default=True,
    metavar="URL",
    help="HTTP URL of a broker; also from MAGNETAR_ADMIN_URL.",
)
@click.option(
    "--url",
    "--service-url",
    "-u",
    "service_url",
    envvar="MAGNETAR_SERVICE_URL",
    default="pulsar://localhost:6650",
    show_default=True,
    metavar="URL",
    help="Service URL for clients; also from MAGNETAR_SERVICE_URL.",
)
@click.option(
    "--metadata",
    "metadata_url",
    envvar="MAGNETAR_METADATA_STORE_URL",
    default="",
    metavar="URL",
    help="URL of the cluster's etcd: etcd:HOST:PORT,...; also from MAGNETAR_METADATA_STORE_URL.",
)
@click.option(
    "--cluster",
    envvar="MAGNETAR_CLUSTER_NAME",
    default="standalone",
    show_default=True,
    metavar="NAME",
    help="Cluster name (clusterName), for the bookie checks in metadata; also from MAGNETAR_CLUSTER_NAME.",
)
@click.option(
    "--probe-topic",
    default="persistent://public/default/magnetar-doctor",
    show_default=True,
    metavar="TOPIC",
    help="Topic through which a message is published and read back; empty: none.",
)
@click.option("--cluster-only", is_flag=True, help="Skip the checks of this host.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@access_options
@metadata_options
@click.pass_context
def doctor(
    context: click.Context,
    data_dir: Path,
    ports: tuple[int, ...],
    admin_url: str,
    service_url: str,
    metadata_url: str,
    cluster: str,
    probe_topic: str,
    cluster_only: bool,
    as_json: bool,
    access: Access,
    metadata_settings: tuple[str, ...],
) -> None:
    """Check this host, and the cluster if there is one.

    Exits with 0 when all checks pass, and with 1 on a failure or a warning.
    """
    from magnetar.cli.doctor.findings import exit_code
    from magnetar.cli.doctor.probes import Probes

    named = {
        name
        for name in ("admin_url", "service_url")
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    findings = examine(
        Probes(access=access, metadata_settings=metadata_settings),
        data_dir,
        ports,
        admin_url,
        service_url,
        metadata_url,
        cluster=cluster,
        probe_topic=probe_topic,
        host=not cluster_only,
        required=bool(named or access.conf_file) or cluster_only,
    )
    seen = _show(findings, as_json=as_json)
    sys.exit(exit_code(seen))


def examine(
    probes: Probes,
    data_dir: Path,
    ports: tuple[int, ...],
    admin_url: str,
    service_url: str,
    metadata_url: str,
    *,
    cluster: str = "standalone",
    probe_topic: str = "",
    host: bool,
    required: bool,
) -> Iterator[Finding]:
    """Run all checks and yield their findings. `required`: a missing broker is a failure."""
    from magnetar.cli.doctor.cluster_checks import (
        bookie_findings,
        broker_findings,
        doubt_findings,
        etcd_findings,
    )
    from magnetar.cli.doctor.host_checks import host_findings

    if host:
        yield from host_findings(probes, data_dir, ports)
    has_metadata = bool(metadata_url) and not metadata_url.startswith("sqlite:")
    yield from broker_findings(
        probes,
        admin_url,
        service_url,
        required=required,
        probe_topic=probe_topic,
        has_metadata=has_metadata,
    )
    if has_metadata:
        members = list(etcd_findings(probes, metadata_url))
        yield from members
        if any(finding.state != "failure" for finding in members):
            yield from bookie_findings(probes, metadata_url, cluster)
            yield from doubt_findings(probes, metadata_url, cluster)


def _show(findings: Iterator[Finding], *, as_json: bool) -> list[Finding]:
    """Draw the findings on a terminal and return them."""
    if as_json:
        seen = list(findings)
        print(json.dumps([asdict(finding) for finding in seen], indent=2))
    elif not sys.stdout.isatty():
        seen = list(findings)
        print("check\tstate\tfound\twhat_next")
        for finding in seen:
            print(f"{finding.check}\t{finding.state}\t{finding.found}\t{finding.what_next}")
    else:
        seen = _draw(findings)
    return seen


def _draw(findings: Iterator[Finding]) -> list[Finding]:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    with console.status("looking"):
        seen = list(findings)
    table = Table("")
    for heading in ("check", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in seen:
        color = _COLORS[finding.state]
        table.add_row(
            f"[{color}]{_MARKS[finding.state]}[/]",
            escape(finding.check),
            f"[{color}]{escape(finding.found)}[/]" if finding.state != "ok" else escape(finding.found),
            escape(finding.what_next),
        )
    console.print(table)
    wrong = sum(finding.state == "failure" for finding in seen)
    doubtful = sum(finding.state == "warning" for finding in seen)
    if wrong or doubtful:
        failures = f"{wrong} failure{'s' * (wrong != 1)}"
        console.print(f"[bold]{failures}, {doubtful} warning{'s' * (doubtful != 1)}[/]")
    else:
        console.print("[bold green]All is well.[/]")
    return seen
