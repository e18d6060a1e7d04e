"""The cluster that an admin command is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster is meant, and how answers are to look."""

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
