"""The target cluster of an admin command."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.cli.access_options import Access


@dataclass(frozen=True, slots=True)
class Target:
    """The target cluster, its credentials, and the output format."""

    metadata_url: str
    cluster: str
    output: str
    admin_url: str = "http://localhost:8080"
    access: Access = field(default_factory=Access)
    timeout_s: float = 60.0
    metadata_settings: tuple[str, ...] = ()
    """How the metadata store is reached, from the options of `metadata_options`."""


def broker_target(admin_url: str, access: Access, timeout_s: float, output: str = "json") -> Target:
    """Returns a target that is asked over HTTP alone."""
    return Target("", "", output, admin_url, access, timeout_s)
