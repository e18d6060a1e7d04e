"""Queries of dashboards as Grafana sends them, for tests and pictures that have no Grafana."""

from __future__ import annotations

from tools.dashboards.model import Dashboard
from tools.dashboards.shared import RATE


def asked(expr: str, dashboard: Dashboard, cluster: str, rate_interval: str) -> str:
    """A query when everything is chosen that can be; `rate_interval` as in PromQL: 1m."""
    chosen = {RATE: rate_interval, "$cluster": cluster}
    chosen |= {f"${each.name}": ".*" for each in dashboard.variables if each.many}
    for variable, value in chosen.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, f"{dashboard.name}: {expr}"
    return expr
