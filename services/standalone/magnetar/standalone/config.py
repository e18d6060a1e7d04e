"""Configuration of a standalone: the broker's settings and those of the embedded storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from magnetar.broker.config import BrokerConfig
from magnetar.common.config.settings import setting
from magnetar.common.security.authentication.provider_table import authentication_problems
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.standalone.broker_front import advertised, contradictions

_SQLITE: Final = "sqlite:"

NO_PORT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """Address for offload jobs and Spark."""

    port: int = setting(
        6750,
        "gRPC port on loopback, where offload jobs and Spark on this host read ledgers and their "
        "entries; 0 picks a free port, -1 disables it.",
        key="magnetarControlPort",
        minimum=NO_PORT,
        maximum=65_535,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePagesConfig:
    """The console at the HTTP port."""

    enabled: bool = setting(
        True,
        "Serve the console at /console of the HTTP ports. It is loaded with its first page, and has no "
        "rights of its own.",
        key="consoleEnabled",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig:
    """Configuration of all roles in one process."""

    metadata_store_url: str = setting(
        "",
        "URL of the metadata store: sqlite:PATH; empty for a file in the data directory.",
        key="metadataStoreUrl",
    )
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    managed_ledger: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)
    segment_log: SegmentLogConfig = field(default_factory=SegmentLogConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    console: ConsolePagesConfig = field(default_factory=ConsolePagesConfig)

    @property
    def jobs_host(self) -> str:
        """Loopback address, of the address family that clients use."""
        return "::1" if self.broker.listener.bind_address in ("::", "::1") else "127.0.0.1"

    def metadata_path(self, data_dir: Path) -> Path:
        """Path of the metadata store."""
        if self.metadata_store_url:
            return Path(self.metadata_store_url.removeprefix(_SQLITE))
        return data_dir / "metadata.sqlite"

    def problems(self) -> list[str]:
        """All problems between values that are each valid."""
        found = authentication_problems(self.broker.authentication)
        url = self.metadata_store_url
        if url and not (url.startswith(_SQLITE) and len(url) > len(_SQLITE)):
            found.append(f"metadataStoreUrl = {url!r}: a standalone needs sqlite:PATH")
        ports = {"magnetarControlPort": self.jobs.port}
        return found + self.broker.problems() + contradictions(self.broker, ports)

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        found = []
        if not self.segment_log.sync_data:
            found.append("journalSyncData=false: a power loss will lose acknowledged messages")
        quorums = self.managed_ledger
        if (quorums.ensemble_size, quorums.write_quorum, quorums.ack_quorum) != (1, 1, 1):
            found.append(
                "managedLedgerDefaultEnsembleSize, ...WriteQuorum and ...AckQuorum have no effect: a "
                "standalone keeps one copy of its data"
            )
        return found

    def advertised(self) -> StandaloneConfig:
        """Return the configuration with the advertised host filled in."""
        return replace(self, broker=advertised(self.broker))
