"""Converts cluster data between JSON and metadata values, and validates it.

The JSON names are Pulsar's and equal the JSON names of the fields in metadata.proto, so the message
descriptor is the table of members.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

from magnetar.broker.admin.edge.call import names
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.metadata.values import Cluster

_PEERS: Final = "peer_cluster_names"
_URLS: Final = {
    "service_url": (("http",), "Illegal service url, example: http://pulsar.example.com:8080"),
    "service_url_tls": (("https",), "Illegal service tls url, example: https://pulsar.example.com:8443"),
    "broker_service_url": (
        ("pulsar",),
        "Illegal broker service url, example: pulsar://pulsar.example.com:6650",
    ),
    "broker_service_url_tls": (
        ("pulsar+ssl",),
        "Illegal broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
    ),
    "proxy_service_url": (
        ("pulsar", "pulsar+ssl"),
        "Illegal proxy service url, example: pulsar+ssl://ats-proxy.example.com:4443 or "
        "pulsar://ats-proxy.example.com:4080",
    ),
}
"""Valid schemes of each URL member, and the error text for other schemes."""

_PROXY_PROTOCOLS: Final = ("SNI",)


def read_cluster(value: Any) -> Cluster.Data:
    """Parses the data of a cluster in a body. Raises Refused (400)."""
    given = _object(value)
    data = Cluster.Data()
    for field in Cluster.Data.DESCRIPTOR.fields:
        found = given.get(field.json_name)
        if found is None:
            continue
        if field.name == _PEERS:
            data.peer_cluster_names.names.extend(names(found, field.json_name))
        elif field.type == field.TYPE_BOOL:
            setattr(data, field.name, _flag(field.json_name, found))
        else:
            setattr(data, field.name, _text(field.json_name, found))
    _check_urls(data)
    if data.HasField("proxy_protocol") and data.proxy_protocol not in _PROXY_PROTOCOLS:
        raise Refused(400, f"invalid proxyProtocol {data.proxy_protocol!r}: use SNI")
    return data


def cluster_json(data: Cluster.Data) -> dict[str, Any]:
    """Returns the data of a cluster; unset members are omitted, except flags."""
    shown: dict[str, Any] = {}
    for field in Cluster.Data.DESCRIPTOR.fields:
        if field.name == _PEERS:
            if data.HasField("peer_cluster_names"):
                shown[field.json_name] = list(data.peer_cluster_names.names)
        elif not field.has_presence or data.HasField(field.name):  # type: ignore[arg-type]
            shown[field.json_name] = getattr(data, field.name)
    return shown


def own_data(urls: ServiceUrls) -> Cluster.Data:
    """Returns the data of the broker's own cluster where none is stored."""
    data = Cluster.Data(
        service_url=urls.http_url,
        broker_service_url=urls.broker_url,
        broker_client_tls_trust_store_type="JKS",
        broker_client_tls_key_store_type="JKS",
        broker_client_ssl_factory_plugin="org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    )
    if urls.http_url_tls:
        data.service_url_tls = urls.http_url_tls
    if urls.broker_url_tls:
        data.broker_service_url_tls = urls.broker_url_tls
    return data


def read_migration(value: Any) -> Cluster.Migration:
    """Parses the migration target of a cluster. Raises Refused (400)."""
    given = _object(value)
    migration = Cluster.Migration()
    for field in Cluster.Migration.DESCRIPTOR.fields:
        found = given.get(field.json_name)
        if found is not None:
            setattr(migration, field.name, _text(field.json_name, found))
    _check_urls(migration)
    return migration


def migration_json(migration: Cluster.Migration) -> dict[str, Any]:
    """Returns Pulsar's ClusterPolicies; no cluster is migrated."""
    url = {
        field.json_name: getattr(migration, field.name)
        for field in Cluster.Migration.DESCRIPTOR.fields
        if migration.HasField(field.name)  # type: ignore[arg-type]
    }
    return {"migrated": False, "migratedClusterUrl": {**url, "empty": not any(url.values())}}


def _check_urls(data: Cluster.Data | Cluster.Migration) -> None:
    for name, (schemes, reason) in _URLS.items():
        url = getattr(data, name, "")
        if url and _scheme(url) not in schemes:
            raise Refused(400, reason)


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "the body must be an object")
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, dict | list):
        raise Refused(400, f"{name} must be a string")
    return value if isinstance(value, str) else json.dumps(value)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false")
    return value
