"""Everything a standalone can be told: the broker's configuration and that of the storage inside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from magnetar.broker.config import BrokerConfig
from magnetar.common.config.settings import setting
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.standalone.broker_front import advertised, contradictions

_SQLITE: Final = "sqlite:"

NO_PORT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """Where offload jobs and Spark call a standalone."""

    port: int = setting(
        6750,
        "Port of gRPC on loopback, where offload jobs and Spark on this host ask for ledgers and their "
        "entries; 0 picks a free one, -1: no job can connect.",
        key="magnetarControlPort",
        minimum=NO_PORT,
        maximum=65_535,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig:
    """One process with every role in it."""

    metadata_store_url: str = setting(
        "",
        "Where metadata is kept: sqlite:PATH, or empty for a file in the data directory.",
        key="metadataStoreUrl",
    )
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    managed_ledger: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)
    segment_log: SegmentLogConfig = field(default_factory=SegmentLogConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)

    @property
    def jobs_host(self) -> str:
        """Loopback, of the family that clients use."""
        return "::1" if self.broker.listener.bind_address in ("::", "::1") else "127.0.0.1"

    def metadata_path(self, data_dir: Path) -> Path:
        """The file of the metadata store."""
        if self.metadata_store_url:
            return Path(self.metadata_store_url.removeprefix(_SQLITE))
        return data_dir / "metadata.sqlite"

    def problems(self) -> list[str]:
        """All problems between values that are each valid."""
        found = []
        url = self.metadata_store_url
        if url and not (url.startswith(_SQLITE) and len(url) > len(_SQLITE)):
            found.append(f"metadataStoreUrl = {url!r}: a standalone keeps its metadata in sqlite:PATH")
        return found + contradictions(self.broker, {"magnetarControlPort": self.jobs.port})

    def warnings(self) -> list[str]:
        """Warnings about valid settings that may be unintended."""
        found = []
        if not self.segment_log.sync_data:
            found.append("journalSyncData=false: a power loss will lose acknowledged messages")
        quorums = self.managed_ledger
        if (quorums.ensemble_size, quorums.write_quorum, quorums.ack_quorum) != (1, 1, 1):
            found.append(
                "managedLedgerDefaultEnsembleSize, ...WriteQuorum and ...AckQuorum have no use here: a "
                "standalone keeps one copy of its data"
            )
        return found

    def advertised(self) -> StandaloneConfig:
        """The same with the host that clients are sent to filled in."""
        return replace(self, broker=advertised(self.broker))
