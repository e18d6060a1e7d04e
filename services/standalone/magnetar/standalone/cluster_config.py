"""Configuration of `magnetar broker`: the broker's settings and those of its bookie client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from magnetar.broker.config import BrokerConfig
from magnetar.broker.load.config import LoadConfig
from magnetar.common.config.settings import setting
from magnetar.common.control.config import ControlConfig
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.open_store import etcd_endpoints
from magnetar.common.security.authentication.provider_table import authentication_problems
from magnetar.common.security.services.config import MetadataAccessConfig
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.standalone.broker_front import advertised, contradictions

_ETCD: Final = "etcd:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig:
    """Location of the cluster's metadata."""

    url: str = setting("", "URL of the metadata store: etcd:HOST:PORT,... Required.", key="metadataStoreUrl")
    session_timeout_ms: int = setting(
        10_000,
        "Milliseconds without a keep-alive after which a broker's session expires "
        "(Pulsar: 30,000; here a broker that is cut off from metadata keeps serving).",
        key="metadataStoreSessionTimeoutMillis",
        minimum=1_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieClientConfig:
    """Settings of the bookie client."""

    timeout_s: int = setting(
        5,
        "Timeout of a bookie request, in seconds (Pulsar: 30); reads then try the next replica.",
        key="bookkeeperClientTimeoutInSeconds",
        minimum=1,
    )
    tls_trust_certs: str = setting(
        "",
        "Trusted CA certificates for bookies, a PEM file. Enables TLS to bookies.",
        key="bookkeeperTLSTrustCertsFilePath",
    )
    tls_client_authentication: bool = setting(
        False,
        "Use a client certificate for bookies; enables TLS to bookies.",
        key="bookkeeperTLSClientAuthentication",
    )
    tls_certificate: str = setting(
        "", "Client certificate and its chain, a PEM file.", key="bookkeeperTLSCertificateFilePath"
    )
    tls_key: str = setting(
        "", "Private key of the client certificate, a PEM file.", key="bookkeeperTLSKeyFilePath"
    )
    tls_key_type: str = setting(
        "PEM", "File type of the private key.", key="bookkeeperTLSKeyFileType", choices=("PEM",)
    )
    tls_trust_type: str = setting(
        "PEM",
        "File type of the trusted certificates.",
        key="bookkeeperTLSTrustCertTypes",
        choices=("PEM",),
    )
    tls_refresh_s: int = setting(
        300,
        "Seconds between checks for replaced certificates.",
        key="bookkeeperTlsCertFilesRefreshDurationSeconds",
        minimum=1,
    )
    tls_server_name: str = setting(
        "",
        "Host name expected in bookies' certificates; empty for the host of each bookie's address.",
        key="magnetarBookieTlsServerName",
    )

    @property
    def tls_enabled(self) -> bool:
        return bool(self.tls_trust_certs) or self.tls_client_authentication

    def problems(self) -> list[str]:
        """Return the settings that are missing for the requested features."""
        found = []
        if self.tls_client_authentication:
            if not (self.tls_certificate and self.tls_key):
                found.append(
                    "bookkeeperTLSClientAuthentication=true needs bookkeeperTLSCertificateFilePath and "
                    "bookkeeperTLSKeyFilePath, PEM files"
                )
            if not self.tls_trust_certs:
                found.append(
                    "bookkeeperTLSClientAuthentication=true needs bookkeeperTLSTrustCertsFilePath, a PEM file"
                )
        files = {
            "bookkeeperTLSTrustCertsFilePath": self.tls_trust_certs,
            "bookkeeperTLSCertificateFilePath": self.tls_certificate,
            "bookkeeperTLSKeyFilePath": self.tls_key,
        }
        found += [f"{key} = {name!r}: file not found" for key, name in files.items() if _is_missing(name)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBrokerConfig:
    """A broker of a cluster: its metadata is in etcd, its ledgers are on bookies."""

    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    metadata_access: MetadataAccessConfig = field(default_factory=MetadataAccessConfig)
    broker: BrokerConfig = field(default_factory=lambda: BrokerConfig(cluster_name=""))
    control: ControlConfig = field(default_factory=ControlConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    managed_ledger: ManagedLedgerConfig = field(
        default_factory=lambda: ManagedLedgerConfig(ensemble_size=3, write_quorum=3, ack_quorum=2)
    )
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    bookies: BookieClientConfig = field(default_factory=BookieClientConfig)

    def problems(self) -> list[str]:
        """All problems between values that are each valid."""
        found = authentication_problems(self.broker.authentication)
        if not self.broker.cluster_name:
            found.append("clusterName is required: use the same name as the bookies of this cluster")
        if not self.metadata.url.startswith(_ETCD):
            found.append(f"metadataStoreUrl = {self.metadata.url!r}: a cluster needs etcd:HOST:PORT,...")
        else:
            try:
                etcd_endpoints(self.metadata.url)
            except ConfigError as error:
                found.append(str(error))
        ledgers = self.managed_ledger
        if not ledgers.ensemble_size >= ledgers.write_quorum >= ledgers.ack_quorum:
            found.append(
                f"managedLedgerDefaultEnsembleSize={ledgers.ensemble_size}, ...WriteQuorum="
                f"{ledgers.write_quorum} and ...AckQuorum={ledgers.ack_quorum}: each may be at most the one "
                "before"
            )
        found += self.metadata_access.problems(self.metadata.url) + self.control.tls.problems()
        found += self.broker.problems() + self.bookies.problems()
        return found + contradictions(self.broker, {"magnetarControlPort": self.control.port})

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        found = []
        if self.managed_ledger.ack_quorum == 1:
            found.append(
                "managedLedgerDefaultAckQuorum=1: a message is acknowledged when one bookie has "
                "stored it, and lost "
                "with that bookie's disk"
            )
        return found

    def advertised(self) -> ClusterBrokerConfig:
        """Return the configuration with the advertised host filled in."""
        return replace(self, broker=advertised(self.broker))


def _is_missing(name: str) -> bool:
    return bool(name) and not Path(name).is_file()
