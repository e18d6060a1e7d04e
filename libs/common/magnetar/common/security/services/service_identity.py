"""The identity of a service, as its certificate states it.

A service's certificate has one URI among its subject alternative names:
`spiffe://<clusterName>/<service>[/<name>]` (the form of SPIFFE IDs, https://spiffe.io). The common name is
not an identity: an authority of clients may sign any name.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

SCHEME: Final = "spiffe"

_URI_PROPERTY: Final = "peer_uri"
"""The property of gRPC's authentication context that holds the URIs of a verified peer certificate."""


class Service(enum.Enum):
    """Kinds of services that call each other."""

    BROKER = "broker"
    BOOKIE = "bookie"
    DISCOVERY = "discovery"
    JOB = "job"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """One service of one cluster; `name` tells replicas apart in logs and may be empty."""

    cluster: str
    service: Service
    name: str = ""

    @property
    def uri(self) -> str:
        """The URI that the service's certificate carries."""
        tail = f"/{self.name}" if self.name else ""
        return f"{SCHEME}://{self.cluster}/{self.service.value}{tail}"


def parse_identity(uri: str) -> ServiceIdentity | None:
    """Return the identity that a URI states; None for a URI of another form."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != SCHEME or parts.query or parts.fragment:
        return None
    segments = parts.path.split("/")
    if not parts.netloc or len(segments) not in (2, 3) or segments[0]:
        return None
    try:
        service = Service(segments[1])
    except ValueError:
        return None
    return ServiceIdentity(unquote(parts.netloc), service, "/".join(segments[2:]))


def peer_identities(auth_context: Mapping[str, Iterable[bytes]]) -> list[ServiceIdentity]:
    """Return the identities in the certificate of a gRPC peer; none without a verified certificate."""
    uris = (each.decode("utf-8", "replace") for each in auth_context.get(_URI_PROPERTY, ()))
    return [identity for uri in uris if (identity := parse_identity(uri)) is not None]
