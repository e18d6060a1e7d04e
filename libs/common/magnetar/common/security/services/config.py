"""Settings of the links between our own services and to etcd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.common.config.settings import setting
from magnetar.common.metadata.open_store import etcd_tls

if TYPE_CHECKING:  # it imports gRPC
    from magnetar.common.metadata.etcd_access import EtcdAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAccessConfig:
    """TLS and credentials towards etcd. TLS is on where metadataStoreUrl says etcd:https://HOST:PORT,..."""

    trust_certs: str = setting(
        "",
        "PEM file of the authorities that sign etcd's certificates; empty trusts the platform's.",
        key="magnetarMetadataTlsTrustCertsFilePath",
    )
    certificate: str = setting(
        "",
        "PEM file with the client certificate for etcd; with role-based access control its common name is "
        "the user.",
        key="magnetarMetadataTlsCertificateFilePath",
    )
    key: str = setting("", "PEM file with its key.", key="magnetarMetadataTlsKeyFilePath")
    user: str = setting(
        "", "User of etcd, where no client certificate names one.", key="magnetarMetadataUser"
    )
    password_file: str = setting(
        "", "File whose first line is that user's password.", key="magnetarMetadataPasswordFile"
    )

    def problems(self, url: str) -> list[str]:
        """Return the contradictions between these settings and `url`, the metadata store's."""
        found = []
        files = (self.trust_certs, self.certificate, self.key)
        if any(files) and not etcd_tls(url):
            found.append(
                f"magnetarMetadataTls... is set, but the metadata store {url!r} is not reached by TLS: "
                "write etcd:https://HOST:PORT,..."
            )
        if bool(self.certificate) != bool(self.key):
            found.append(
                "magnetarMetadataTlsCertificateFilePath and magnetarMetadataTlsKeyFilePath are given together"
            )
        if bool(self.user) != bool(self.password_file):
            found.append("magnetarMetadataUser and magnetarMetadataPasswordFile are given together")
        return found

    def access(self, url: str, refresh_s: float) -> EtcdAccess | None:
        """Return how the store at `url` is reached; None without TLS and user.

        `refresh_s`: seconds between checks for replaced files.
        """
        if not etcd_tls(url) and not self.user:
            return None
        from magnetar.common.metadata.etcd_access import EtcdAccess

        return EtcdAccess(
            tls=etcd_tls(url),
            trust_certs=_path(self.trust_certs),
            certificate=_path(self.certificate),
            key=_path(self.key),
            user=self.user,
            password_file=_path(self.password_file),
            refresh_s=refresh_s,
        )


def _path(text: str) -> Path | None:
    return Path(text) if text else None
