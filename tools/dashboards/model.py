"""Model of a dashboard, and its JSON for Grafana.

Dashboards are written as Python: each panel has a unit and a sentence of help because neither has a default,
ids and places follow from the order, and all panels look alike. The JSON is committed, since that is what
people import; `python -m tools.dashboards --check` says whether it is up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

COLUMNS: Final = 24
"""Width of Grafana's grid."""
SCHEMA_VERSION: Final = 39
"""Schema version of Grafana 10.4 and 11; newer ones migrate it when they load it."""
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
REFRESH: Final = "30s"

Kind = Literal["timeseries", "stat", "table"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; `legend` names its series, with labels in `{{}}`."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Color of a panel from a value on."""

    value: float
    color: Literal["green", "yellow", "orange", "red"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel. `unit` is Grafana's unit id, `help` its description."""

    title: str
    help: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False
    limits: tuple[Limit, ...] = ()
    """Colors of a stat; below the first one it is green."""
    low_is_bad: bool = False
    """Below the first limit it is red."""
    max: float | None = None
    log: bool = False
    """A logarithmic scale, for times that differ by powers of ten."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a dashboard: the values of a label."""

    name: str
    title: str
    query: str
    """`label_values(...)` of Grafana."""
    many: bool = False
    """Whether several values, or all, can be selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One page of Grafana, and one file."""

    name: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels


def to_text(dashboard: Dashboard) -> str:
    """The file, as Grafana's own export is formatted."""
    return json.dumps(to_json(dashboard), indent=2, ensure_ascii=False) + "\n"


def to_json(dashboard: Dashboard) -> Json:
    """JSON that Grafana imports or provisions."""
    return {
        "uid": f"magnetar-{dashboard.name}",
        "title": f"Magnetar / {dashboard.title}",
        "description": dashboard.about,
        "tags": ["magnetar"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,  # one crosshair over all panels: causes are found by their time
        "id": None,
        "liveNow": False,
        "refresh": REFRESH,
        "style": "dark",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "version": 1,
        "weekStart": "",
        "annotations": {"list": [_alerts_shown()]},
        "links": [_link_to_the_others()],
        "templating": {"list": [_datasource(), *(_variable(each) for each in dashboard.variables)]},
        "panels": _placed(dashboard.rows),
    }


def _alerts_shown() -> Json:
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing", alertname=~"Magnetar.*", cluster="$cluster"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}} {{instance}}",
        "step": "60s",
    }


def _link_to_the_others() -> Json:
    return {
        "title": "Magnetar",
        "type": "dashboards",
        "tags": ["magnetar"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "current": {},
    }


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": f"variable-{variable.name}"},
        "hide": 0,
        "includeAll": variable.many,
        # All is no list of ten thousand names; and `.*` holds where a label is not there.
        "allValue": ".*" if variable.many else None,
        "multi": variable.many,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if variable.many else {},
        "options": [],
        "refresh": 2,  # when the time changes: topics and processes come and go
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
    }


def _placed(rows: tuple[Row, ...]) -> list[Json]:
    """Panels from left to right and from the top down, in the order of their rows."""
    placed: list[Json] = []
    top = 0
    for row in rows:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            where = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            placed.append(_panel(panel, len(placed) + 1, where))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _panel(panel: Panel, number: int, where: Json) -> Json:
    make = {"timeseries": _timeseries, "stat": _stat, "table": _table}[panel.kind]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "gridPos": where,
        **make(panel),
        "targets": [
            _target(panel, query, chr(ord("A") + place)) for place, query in enumerate(panel.queries)
        ],
    }


def _target(panel: Panel, query: Query, letter: str) -> Json:
    at_once = panel.kind != "timeseries"
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": at_once,
        "range": not at_once,
        **({"format": "table"} if panel.kind == "table" else {}),
    }


def _thresholds(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "red" if panel.low_is_bad else "green", "value": None}]
    steps += [{"color": each.color, "value": each.value} for each in panel.limits]
    return {"mode": "absolute", "steps": steps}


def _defaults(panel: Panel, color: str) -> Json:
    defaults: Json = {
        "unit": panel.unit,
        "color": {"mode": color},
        "mappings": [],
        "thresholds": _thresholds(panel),
    }
    if panel.max is not None:
        defaults["max"] = panel.max
    return defaults


def _timeseries(panel: Panel) -> Json:
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 8,
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "axisPlacement": "auto",
        "scaleDistribution": {"type": "log", "log": 10} if panel.log else {"type": "linear"},
        "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        "thresholdsStyle": {"mode": "dashed" if panel.limits else "off"},
    }
    defaults = {**_defaults(panel, "palette-classic"), "custom": custom}
    if not panel.log:
        defaults["min"] = 0
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _stat(panel: Panel) -> Json:
    return {
        "fieldConfig": {
            "defaults": {**_defaults(panel, "thresholds"), "noValue": "none"},
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
            "wideLayout": True,
        },
    }


def _table(panel: Panel) -> Json:
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "inspect": False}
    return {
        "fieldConfig": {"defaults": {**_defaults(panel, "thresholds"), "custom": custom}, "overrides": []},
        "options": {
            "cellHeight": "sm",
            "footer": {"show": False, "countRows": False, "fields": "", "reducer": ["sum"]},
            "showHeader": True,
            "sortBy": [{"displayName": panel.queries[0].legend, "desc": True}],
        },
        "transformations": [
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "includeByName": {},
                    "indexByName": {},
                    "renameByName": {"Value": panel.queries[0].legend},
                },
            }
        ],
    }
