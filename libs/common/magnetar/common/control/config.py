"""Settings of a broker's control plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.common.config.settings import setting

if TYPE_CHECKING:  # it imports gRPC
    from magnetar.common.security.services.credentials import CredentialFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTlsConfig:
    """Mutual TLS of the control plane, on once a certificate is given. Discovery has the same settings."""

    certificate: str = setting(
        "",
        "PEM file with this service's certificate for the control plane, and its chain. Its URI "
        "spiffe://CLUSTER/SERVICE is the service's identity. Turns mutual TLS on.",
        key="magnetarControlTlsCertificateFilePath",
    )
    key: str = setting("", "PEM file with its key.", key="magnetarControlTlsKeyFilePath")
    trust_certs: str = setting(
        "",
        "PEM file of the authorities that sign services' certificates: not those that sign clients'.",
        key="magnetarControlTlsTrustCertsFilePath",
    )
    refresh_s: int = setting(
        60,
        "Seconds between checks for replaced certificates of the links between services and to etcd.",
        key="magnetarServiceTlsRefreshSeconds",
        minimum=1,
    )

    def problems(self) -> list[str]:
        """Return the settings that are missing for mutual TLS."""
        given = {
            "magnetarControlTlsCertificateFilePath": self.certificate,
            "magnetarControlTlsKeyFilePath": self.key,
            "magnetarControlTlsTrustCertsFilePath": self.trust_certs,
        }
        missing = [key for key, value in given.items() if not value]
        if not any(given.values()) or not missing:
            return [f"{key} = {name!r}: no such file" for key, name in given.items() if _is_missing(name)]
        return [f"TLS of the control plane is mutual: {', '.join(missing)} must be given, too"]

    def files(self) -> CredentialFiles | None:
        """Return the files; None without TLS."""
        if not self.certificate:
            return None
        from magnetar.common.security.services.credentials import CredentialFiles

        return CredentialFiles(
            trust_certs=Path(self.trust_certs), certificate=Path(self.certificate), key=Path(self.key)
        )


def _is_missing(name: str) -> bool:
    return bool(name) and not Path(name).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The port for calls from other brokers, discovery and offload jobs."""

    port: int = setting(
        6750,
        "Port of gRPC, where other brokers, discovery, offload jobs and Spark call this one, at bindAddress; "
        "0 picks a free one. Not for clients: keep it within the cluster's network.",
        key="magnetarControlPort",
        minimum=0,
        maximum=65_535,
    )
    tls: ControlTlsConfig = field(default_factory=ControlTlsConfig)
