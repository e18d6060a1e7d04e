"""The address of an offload service: HOST:PORT, or grpcs://HOST:PORT for mutual TLS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TLS_SCHEME: Final = "grpcs://"

_TARGET: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A broker's or a standalone's magnetarControlPort; `str` gives what `parse_service_url` reads."""

    target: str
    """host:port, as gRPC takes it."""
    tls: bool = False

    def __str__(self) -> str:
        return f"{TLS_SCHEME}{self.target}" if self.tls else self.target


def parse_service_url(address: str) -> ServiceUrl:
    """Parses an address. Raises ValueError, with the expected form, if it is invalid."""
    text = address.strip()
    tls = text.startswith(TLS_SCHEME)
    target = text.removeprefix(TLS_SCHEME if tls else "grpc://").rstrip("/")
    found = _TARGET.fullmatch(target)
    if found is None or not 0 < int(found["port"]) < 65_536:
        raise ValueError(
            f"{address!r} is not an offload service address: write HOST:PORT, for example 127.0.0.1:6750 "
            "(magnetarControlPort of a broker or a standalone; not the port of Pulsar clients), or "
            "grpcs://HOST:PORT for brokers with mutual TLS"
        )
    return ServiceUrl(target, tls)
