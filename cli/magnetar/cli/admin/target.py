"""The target cluster of an admin command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """The target cluster, its credentials, and the output format."""

    metadata_url: str
    cluster: str
    output: str
    admin_url: str = "http://localhost:8080"
    token: str = ""
    trust_certs_file: str = ""
    allow_insecure: bool = False
    certificate_file: str = ""
    key_file: str = ""
    timeout_s: float = 60.0
    basic: str = ""
    """user:password; empty means none."""
