"""Where clients are sent to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServiceUrls:
    """This broker's addresses, filled in once its sockets are bound; empty where there is no such address."""

    broker_url: str = ""
    """`pulsar://host:port`"""
    http_url: str = ""
    broker_url_tls: str = ""
