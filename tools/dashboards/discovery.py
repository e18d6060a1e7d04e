"""Discoveries: lookups that they answer, connections that they carry."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row
from tools.dashboards.shared import (
    CLUSTER,
    OF_CLUSTER,
    instances,
    of_processes,
    processes,
    quantile,
    summed_rate,
)

_DISCOVERIES: Final = instances("discovery")


def _rate(metric: str, by: str = "instance") -> tuple[Query, ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return (Query(summed_rate(metric, _DISCOVERIES, by), legend),)


_CONNECTIONS: Final = Row(
    "Connections",
    (
        Panel(
            title="Up",
            help="Discoveries that Prometheus reaches.",
            unit="none",
            kind="stat",
            queries=(Query(f'sum(up{{job="discovery", {CLUSTER}}})', "up"),),
            limits=(Limit(1, "green"),),
            low_is_bad=True,
            width=4,
        ),
        Panel(
            title="Metadata answers",
            help="Discoveries that metadata answers; the others name owners as they were when it last did.",
            unit="none",
            kind="stat",
            queries=(Query(f"sum(magnetar_discovery_metadata_answers{{{_DISCOVERIES}}})", "up to date"),),
            limits=(Limit(1, "green"),),
            low_is_bad=True,
            width=4,
        ),
        Panel(
            title="Connections",
            help="Connections of clients now: asking where topics are, or carried to brokers.",
            unit="short",
            queries=(
                Query(
                    f"sum by (instance, kind) (magnetar_discovery_connections{{{_DISCOVERIES}}})",
                    "{{kind}} {{instance}}",
                ),
            ),
        ),
        Panel(
            title="Connections made",
            help="Connections a second that clients opened.",
            unit="cps",
            queries=_rate("magnetar_discovery_connections_accepted_total"),
        ),
        Panel(
            title="Commands",
            help="Commands of clients a second that were answered, by command and answer.",
            unit="reqps",
            queries=_rate("magnetar_discovery_commands_total", "command, code"),
        ),
        Panel(
            title="Time to answer",
            help="Time until commands of clients were answered, of all chosen discoveries; most are lookups.",
            unit="s",
            queries=(
                Query(quantile(0.5, "magnetar_discovery_answer_latency_seconds", _DISCOVERIES), "median"),
                Query(quantile(0.99, "magnetar_discovery_answer_latency_seconds", _DISCOVERIES), "99 %"),
            ),
            log=True,
        ),
        Panel(
            title="Carried",
            help="Bytes a second carried between clients and brokers, by where they came from.",
            unit="binBps",
            queries=_rate("magnetar_discovery_proxied_bytes_total", "source"),
        ),
        Panel(
            title="HTTP",
            help="HTTP requests a second, by the status of the answer.",
            unit="reqps",
            queries=_rate("magnetar_discovery_http_requests_total", "status"),
        ),
    ),
)

_REFUSED: Final = Row(
    "Refused (empty where there was nothing)",
    (
        Panel(
            title="Connections over the limit",
            help="Connections a second over maxConcurrentInboundConnections, and of HTTP.",
            unit="cps",
            queries=(
                Query(summed_rate("magnetar_discovery_connections_refused_total", _DISCOVERIES), "clients"),
                Query(summed_rate("magnetar_discovery_http_connections_refused_total", _DISCOVERIES), "HTTP"),
            ),
        ),
        Panel(
            title="Not carried",
            help="Connections a second that were not carried: to no broker of the cluster, or to one that is "
            "not reached.",
            unit="cps",
            queries=_rate("magnetar_discovery_proxy_refused_total", "reason"),
        ),
        Panel(
            title="Connections that broke the protocol",
            help="Connections a second that were closed because of what the client sent, by reason.",
            unit="cps",
            queries=_rate("magnetar_discovery_protocol_errors_total", "reason"),
        ),
    ),
)

DISCOVERY: Final = Dashboard(
    name="discovery",
    title="Discovery",
    about="Where clients ask for their topics: lookups answered, connections carried, and what was refused.",
    variables=(OF_CLUSTER, of_processes("discovery", "Discovery")),
    rows=(_CONNECTIONS, _REFUSED, processes(_DISCOVERIES)),
)
