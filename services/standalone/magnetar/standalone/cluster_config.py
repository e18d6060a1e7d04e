"""Everything `magnetar broker` can be told: the broker's configuration and that of its way to the bookies."""

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
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.standalone.broker_front import advertised, contradictions

_ETCD: Final = "etcd:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig:
    """Where the cluster's metadata is."""

    url: str = setting(
        "", "Where metadata is kept: etcd:HOST:PORT,... Has to be given.", key="metadataStoreUrl"
    )
    session_timeout_ms: int = setting(
        10_000,
        "A broker counts as gone when metadata has not heard of it for this long, in milliseconds "
        "(Pulsar: 30,000; here a broker that is cut off from metadata goes on serving).",
        key="metadataStoreSessionTimeoutMillis",
        minimum=1_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieClientConfig:
    """How bookies are reached."""

    timeout_s: int = setting(
        5,
        "Seconds that a bookie may take to answer (Pulsar: 30; after this the next replica is asked).",
        key="bookkeeperClientTimeoutInSeconds",
        minimum=1,
    )
    tls_trust_certs: str = setting(
        "",
        "The certificates that bookies' are checked against, a PEM file. Turns TLS to bookies on.",
        key="bookkeeperTLSTrustCertsFilePath",
    )
    tls_client_authentication: bool = setting(
        False,
        "Show bookies a certificate of our own, and turn TLS to them on.",
        key="bookkeeperTLSClientAuthentication",
    )
    tls_certificate: str = setting(
        "", "Our own certificate and its chain, a PEM file.", key="bookkeeperTLSCertificateFilePath"
    )
    tls_key: str = setting("", "The key of our certificate, a PEM file.", key="bookkeeperTLSKeyFilePath")
    tls_key_type: str = setting(
        "PEM", "The kind of file with our key.", key="bookkeeperTLSKeyFileType", choices=("PEM",)
    )
    tls_trust_type: str = setting(
        "PEM",
        "The kind of file with trusted certificates.",
        key="bookkeeperTLSTrustCertTypes",
        choices=("PEM",),
    )
    tls_server_name: str = setting(
        "",
        "The name that bookies' certificates are issued for; empty for the host of each bookie's address.",
        key="magnetarBookieTlsServerName",
    )

    @property
    def tls_enabled(self) -> bool:
        return bool(self.tls_trust_certs) or self.tls_client_authentication

    def problems(self) -> list[str]:
        """Settings missing for the requested features."""
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
        found += [f"{key} = {name!r}: no such file" for key, name in files.items() if _is_missing(name)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBrokerConfig:
    """A broker of a cluster: its metadata is in etcd, its ledgers are on bookies."""

    metadata: MetadataConfig = field(default_factory=MetadataConfig)
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
        found = []
        if not self.broker.cluster_name:
            found.append("clusterName has to be given: the name that the bookies of this cluster use too")
        if not self.metadata.url.startswith(_ETCD):
            found.append(
                f"metadataStoreUrl = {self.metadata.url!r}: a cluster's metadata is in etcd:HOST:PORT,..."
            )
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
        found += self.bookies.problems()
        return found + contradictions(self.broker, {"magnetarControlPort": self.control.port})

    def warnings(self) -> list[str]:
        """Warnings about valid settings that may be unintended."""
        found = []
        if self.managed_ledger.ack_quorum == 1:
            found.append(
                "managedLedgerDefaultAckQuorum=1: a message is acknowledged when one bookie has it, and lost "
                "with that bookie's disk"
            )
        return found

    def advertised(self) -> ClusterBrokerConfig:
        """The same with the host that clients are sent to filled in."""
        return replace(self, broker=advertised(self.broker))


def _is_missing(name: str) -> bool:
    return bool(name) and not Path(name).is_file()
