"""The bookie's settings. Keys are BookKeeper's where the meaning is the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.common.config.settings import setting
from magnetar.common.security.services.config import MetadataAccessConfig
from magnetar.ledger.bookie_protocol.grpc_methods import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX
from magnetar.ledger.segment_log.config import SegmentLogConfig

_ETCD: Final = "etcd:"
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")
_HEADROOM_BYTES: Final = 64 << 10
_BOOKKEEPER_TLS: Final = "org.apache.bookkeeper.tls.TLSContextFactory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """The bookie's listening and advertised addresses."""

    bind_address: str = setting("127.0.0.1", "The address to listen on.", key="bindAddress")
    port: int = setting(
        3181, "The port for gRPC; 0 takes a free one.", key="bookiePort", minimum=0, maximum=65535
    )
    advertised_address: str = setting(
        "",
        "The host that clients are told to connect to; empty for `bindAddress`.",
        key="advertisedAddress",
    )
    http_enabled: bool = setting(True, "Serve /metrics and /health over HTTP.", key="httpServerEnabled")
    http_host: str = setting("", "The address for HTTP; empty for `bindAddress`.", key="httpServerHost")
    http_port: int = setting(
        8000, "The port for HTTP; 0 takes a free one.", key="httpServerPort", minimum=0, maximum=65535
    )
    message_bytes_max: int = setting(
        MESSAGE_BYTES_MAX,
        "The longest gRPC message that is taken or sent, in bytes: the largest entry and some headroom. "
        "Brokers have to be told the same.",
        key="nettyMaxFrameSizeBytes",
        minimum=2 * BATCH_BYTES_MAX,
    )
    unconfirmed_bytes_max: int = setting(
        16 << 20,
        "Bytes of appends of one client that may wait for their confirmation; beyond it the client's stream "
        "is not read.",
        key="magnetarBookieUnconfirmedBytesMax",
        minimum=1 << 20,
    )
    calls_max: int = setting(
        4096,
        "Reads and other calls at a time; more are refused with RESOURCE_EXHAUSTED.",
        key="maxReadsInProgressLimit",
        minimum=1,
    )
    shutdown_timeout_ms: int = setting(
        15_000,
        "How long a stop may take, in milliseconds; then the process ends anyway.",
        key="magnetarBookieShutdownTimeoutMs",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS for gRPC, enabled by `tlsCertificatePath`."""

    provider: str = setting(
        "",
        "As in BookKeeper: asks for TLS, which then needs `tlsCertificatePath` and `tlsKeyStore`.",
        key="tlsProviderFactoryClass",
        choices=("", _BOOKKEEPER_TLS),
    )
    certificate: str = setting(
        "", "The bookie's certificate and its chain, a PEM file. Turns TLS on.", key="tlsCertificatePath"
    )
    key: str = setting("", "The key of the certificate, a PEM file.", key="tlsKeyStore")
    key_type: str = setting("PEM", "The kind of key file.", key="tlsKeyStoreType", choices=("PEM",))
    trust_certs: str = setting(
        "", "The certificates that verify client certificates, a PEM file.", key="tlsTrustStore"
    )
    trust_type: str = setting(
        "PEM", "The kind of file with trusted certificates.", key="tlsTrustStoreType", choices=("PEM",)
    )
    client_authentication: bool = setting(
        False,
        "Refuse callers without a certificate that an authority in `tlsTrustStore` signed, and check by its "
        "URI spiffe://CLUSTER/SERVICE what the caller may do.",
        key="tlsClientAuthentication",
    )
    to_bookies: bool = setting(
        False,
        "As for brokers: asks for TLS to other bookies, for re-replication. They are called with the files "
        "of `tlsCertificatePath` and `tlsKeyStore`, which it needs.",
        key="bookkeeperTLSClientAuthentication",
    )
    authorized_roles: tuple[str, ...] = setting(
        (),
        "Services (broker, bookie, job, admin) or URIs of certificates that may call at all, with "
        "`tlsClientAuthentication`; empty admits all of these. What each may do is fixed.",
        key="authorizedRoles",
    )
    refresh_s: int = setting(
        300,
        "Seconds between checks for replaced certificates.",
        key="tlsCertFilesRefreshDurationSeconds",
        minimum=1,
    )

    @property
    def enabled(self) -> bool:
        return bool(self.provider or self.certificate or self.to_bookies)

    def problems(self) -> list[str]:
        """Returns the missing settings that other settings require."""
        found = []
        if self.client_authentication and not self.enabled:
            found.append("tlsClientAuthentication=true needs TLS: give tlsCertificatePath and tlsKeyStore")
        if self.enabled and not (self.certificate and self.key):
            found.append("TLS needs both tlsCertificatePath and tlsKeyStore, PEM files")
        if self.enabled and self.client_authentication and not self.trust_certs:
            found.append("tlsClientAuthentication=true needs tlsTrustStore, a PEM file")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityConfig:
    """The bookie's identity, and the locations of its metadata and data."""

    cluster_name: str = setting("", "The cluster this bookie belongs to. Required.", key="clusterName")
    bookie_id: str = setting(
        "",
        "The bookie's name for good; other bookies' data is never taken for its own. Empty for "
        "advertisedAddress:bookiePort, as in BookKeeper.",
        key="bookieId",
    )
    rack: str = setting(
        "/default-region/default-rack",
        "Bookies of one rack fail together: copies of an entry are placed in different racks. "
        "/region/rack or any label.",
        key="magnetarBookieRack",
    )
    metadata_uri: str = setting(
        "", "The metadata store: etcd:HOST:PORT,... Required.", key="metadataServiceUri"
    )
    session_timeout_ms: int = setting(
        10_000,
        "Session timeout in metadata, in ms: the bookie is down after this long without a keep-alive.",
        key="metadataStoreSessionTimeoutMillis",
        minimum=1000,
    )
    directories: tuple[str, ...] = setting(
        ("data/bookie",),
        "The one directory with the bookie's data: it has a single log, and no journal beside it.",
        key="ledgerDirectories",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig:
    """All settings of one bookie."""

    identity: IdentityConfig = field(default_factory=IdentityConfig)
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    metadata_access: MetadataAccessConfig = field(default_factory=MetadataAccessConfig)
    core: BookieCoreConfig = field(default_factory=BookieCoreConfig)
    auto_recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    segment_log: SegmentLogConfig = field(default_factory=SegmentLogConfig)

    @property
    def data_dir(self) -> Path:
        """The directory with all data of this bookie."""
        return Path(self.identity.directories[0])

    @property
    def bookie_id(self) -> str:
        """The configured name, or one derived from the advertised address."""
        return self.identity.bookie_id or f"{self.host}:{self.listener.port}"

    @property
    def host(self) -> str:
        """The host that clients connect to, in address notation."""
        host = self.listener.advertised_address or self.listener.bind_address
        return f"[{host}]" if ":" in host and not host.startswith("[") else host

    @property
    def etcd_endpoints(self) -> str:
        """etcd's addresses as host:port,..."""
        return self.identity.metadata_uri.removeprefix(_ETCD)

    def problems(self) -> list[str]:
        """Returns all invalid combinations of valid values."""
        identity, listener = self.identity, self.listener
        found = self.tls.problems() + self.metadata_access.problems(identity.metadata_uri)
        if not identity.cluster_name:
            found.append("clusterName has to be given: the name that brokers of this cluster use too")
        uri = identity.metadata_uri
        if not uri.startswith(_ETCD) or len(uri) == len(_ETCD):
            found.append(f"metadataServiceUri = {uri!r}: a bookie's metadata is in etcd:HOST:PORT,...")
        if len(identity.directories) != 1:
            given = ",".join(identity.directories)
            found.append(
                f"ledgerDirectories = {given!r}: exactly one directory; start one bookie for each disk"
            )
        if not self.segment_log.sync_data:
            found.append(
                "journalSyncData = false: a bookie never confirms what it has not synced; remove the setting"
            )
        if listener.message_bytes_max < self.core.entry_bytes_max + _HEADROOM_BYTES:
            found.append(
                f"nettyMaxFrameSizeBytes = {listener.message_bytes_max} has no room for an entry of "
                f"magnetarBookieEntryBytesMax = {self.core.entry_bytes_max} and {_HEADROOM_BYTES} bytes more"
            )
        if self.core.disk_usage_low_water_mark > self.core.disk_usage_threshold:
            found.append(
                "diskUsageLwmThreshold is above diskUsageThreshold: nothing would ever be writable again"
            )
        if listener.port == 0 and not identity.bookie_id:
            found.append("bookiePort = 0 gives another address at each start: bookieId has to be given")
        if not listener.advertised_address and listener.bind_address in _EVERY_ADDRESS:
            found.append(
                f"bindAddress = {listener.bind_address} is no address to connect to: give advertisedAddress"
            )
        if listener.http_enabled and listener.http_port == listener.port != 0:
            found.append(f"bookiePort and httpServerPort are both {listener.port}")
        return found

    def warnings(self) -> list[str]:
        """Returns valid settings that may be unintended."""
        found = []
        if self.listener.bind_address not in ("127.0.0.1", "::1", "localhost") and not self.tls.enabled:
            found.append("bookie without TLS on a non-loopback address: any client that reaches it can write")
        return found
