"""Advertised listeners: broker addresses by network, each under a listener name.

`advertisedListeners` has Pulsar's format: NAME:SCHEME://HOST:PORT, separated by commas. Each listener has at
most one address of a scheme, and no two listeners share an address.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import ConfigError

_FIELDS: Final = {
    "pulsar": "broker_url",
    "pulsar+ssl": "broker_url_tls",
    "http": "http_url",
    "https": "http_url_tls",
}


def parse_listeners(text: str) -> dict[str, ServiceUrls]:
    """Parses the listeners; returns them by name, in order of first mention. Raises ConfigError."""
    found: dict[str, ServiceUrls] = {}
    names: dict[str, str] = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, separator, url = each.partition(":")
        name, url = name.strip(), url.strip()
        parts = urlsplit(url)
        if not separator or not name or parts.scheme not in _FIELDS or not _has_address(url):
            raise _problem(f"invalid advertised listener {each!r}: use the form NAME:pulsar://HOST:PORT")
        if names.setdefault(parts.netloc, name) != name:
            raise _problem(f"{parts.netloc} belongs to both {names[parts.netloc]!r} and {name!r}")
        urls = found.setdefault(name, ServiceUrls())
        if getattr(urls, _FIELDS[parts.scheme]):
            raise _problem(f"{name!r} has more than one {parts.scheme}:// address")
        setattr(urls, _FIELDS[parts.scheme], url)
    return found


def internal_name(config: ListenerConfig) -> str:
    """Name of the listener for clients that name none; "" without listeners."""
    return config.internal_listener_name or next(iter(parse_listeners(config.advertised_listeners)), "")


def internal_host(config: ListenerConfig) -> str:
    """Host of the internal listener; "" without listeners, or when the setting is invalid."""
    try:
        found = parse_listeners(config.advertised_listeners).get(internal_name(config))
    except ConfigError:
        return ""
    if found is None:
        return ""
    return urlsplit(found.broker_url or found.broker_url_tls).netloc.rpartition(":")[0]


def listener_problems(config: ListenerConfig) -> list[str]:
    """Problems of the listeners and of the settings they replace, as texts."""
    try:
        found = parse_listeners(config.advertised_listeners)
    except ConfigError as error:
        return [str(error)]
    problems = []
    if found and config.advertised_address not in ("", internal_host(config)):
        problems.append("advertisedListeners replaces advertisedAddress: set only one of them")
    if config.internal_listener_name and config.internal_listener_name not in found:
        problems.append(
            f"internalListenerName = {config.internal_listener_name!r} is not a name in advertisedListeners"
        )
    internal = found.get(internal_name(config))
    if internal is not None and not (internal.broker_url or internal.broker_url_tls):
        problems.append(
            f"advertisedListeners: the internal listener {internal_name(config)!r} has neither a "
            "pulsar:// nor a pulsar+ssl:// address"
        )
    return problems


def _has_address(url: str) -> bool:
    parts = urlsplit(url)
    try:
        return bool(parts.hostname and parts.port) and not parts.path.strip("/")
    except ValueError:
        return False


def _problem(text: str) -> ConfigError:
    return ConfigError(f"advertisedListeners: {text}")
