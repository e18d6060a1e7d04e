"""values.schema.json: the values that helm accepts before it renders templates.

Settings of services are taken from the code, so that a misspelled key or a value out of range is an error of
`helm install` and not of a pod that does not start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from magnetar.bookie.config import BookieConfig
from magnetar.common.config.setting_values import Setting, settings_of
from magnetar.console.config import ConsoleConfig
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig

from tools.chart.values_file import Value

SERVICES: Final[Mapping[str, type]] = {
    "bookie": BookieConfig,
    "broker": ClusterBrokerConfig,
    "discovery": DiscoveryConfig,
    "console": ConsoleConfig,
}
SET_BY_CHART: Final[Mapping[str, frozenset[str]]] = {
    "bookie": frozenset(
        {
            "advertisedAddress",
            "bindAddress",
            "bookieId",
            "bookiePort",
            "clusterName",
            "httpServerEnabled",
            "httpServerHost",
            "httpServerPort",
            "ledgerDirectories",
            "magnetarBookieRack",
            "metadataServiceUri",
        }
    ),
    "broker": frozenset(
        {
            "advertisedAddress",
            "bindAddress",
            "brokerServicePort",
            "clusterName",
            "magnetarControlPort",
            "magnetarOffloadLocation",
            "metadataStoreUrl",
            "webServicePort",
        }
    ),
    "discovery": frozenset(
        {
            "bindAddress",
            "clusterName",
            "magnetarProxyThroughServiceUrl",
            "metadataStoreUrl",
            "servicePort",
            "webServicePort",
        }
    ),
    "console": frozenset(
        {
            "bindAddress",
            "brokerClientTrustCertsFilePath",
            "brokerServiceUrl",
            "tlsCertificateFilePath",
            "tlsKeyFilePath",
            "webServicePort",
            "webServicePortTls",
            "webServiceUrl",
        }
    ),
}
"""Values with keys of their own, or derived from the objects; none that `config` could set."""
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i?|[mk])?$"
_KINDS: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}

Schema = dict[str, Any]


def schema(values: Iterable[Value]) -> str:
    """The file's text."""
    root = _section()
    root["properties"]["global"] = {
        "type": "object",
        "description": "What helm gives charts inside of others.",
    }
    for value in values:
        section = root
        for key in value.path[:-1]:
            section = section["properties"].setdefault(key, _section())
        section["properties"][value.path[-1]] = _leaf(value)
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart magnetar",
        "$comment": "Written by `make docs` from values.yaml and the settings of services; change those.",
    }
    return json.dumps(head | root, indent=1, ensure_ascii=False) + "\n"


def _section() -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _leaf(value: Value) -> Schema:
    hints = dict(value.hints)
    found: Schema = {"description": value.about}
    if service := hints.pop("config", None):
        return found | _settings(service)
    found["type"] = _KINDS[type(value.default)]
    if hints.pop("free", False):
        return found
    if hints.pop("quantity", False):
        found["pattern"] = QUANTITY
    if not isinstance(value.default, dict | list):
        found["default"] = value.default
    return found | hints


def _settings(service: str) -> Schema:
    settings = settings_of(SERVICES[service])
    own = SET_BY_CHART[service]
    assert own <= settings.keys(), f"{service} has no setting {sorted(own - settings.keys())}"
    properties = {key: _setting(settings[key]) for key in sorted(settings.keys() - own)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting(setting: Setting) -> Schema:
    info = setting.info
    found: Schema = {"description": " ".join(info.doc.split())}
    if setting.kind is tuple:
        items: Schema = {"type": "string"} | ({} if info.choices is None else {"enum": list(info.choices)})
        return found | {"type": ["array", "string"], "items": items}
    found["type"] = _KINDS[setting.kind]
    if info.choices is not None:
        found["enum"] = list(info.choices)
    if info.minimum is not None:
        found["minimum"] = _plain(info.minimum)
    if info.maximum is not None:
        found["maximum"] = _plain(info.maximum)
    if setting.default is not None:
        found["default"] = setting.default
    return found


def _plain(number: float) -> float:
    return int(number) if float(number).is_integer() else number
