"""Plan of a cluster on this machine: processes, ports and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.testing.free_ports import free_run
from magnetar.testing.free_ports import take as take_port

CLUSTER_NAME: Final = "local"
HOST: Final = "127.0.0.1"

FIRST_PORTS: Final = {
    "etcd": {"clients": 2379, "peers": 2380},
    "bookie": {"brokers": 3181, "HTTP": 8000},
    "discovery": {"clients": 6650, "HTTP": 8080},
    "broker": {"clients": 6660, "HTTP": 8090, "control": 6760},
    "console": {"HTTP": 8070},
}
"""Ports of the first process of each kind; later ones have the next ports."""

KINDS: Final = ("etcd", "bookie", "broker", "discovery", "console")
"""In the order of starting."""

_ALONE: Final = ("etcd", "console")

COPIES: Final = 3
COPIES_ACKNOWLEDGED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parsed arguments."""

    data_dir: Path
    bookies: int = 3
    brokers: int = 3
    discoveries: int = 2
    console: bool = True
    free_ports: bool = False
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """KEY=VALUE by kind."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process."""

    kind: str
    name: str
    command: tuple[str, ...]
    ports: Mapping[str, int]
    log: Path

    @property
    def reached_at(self) -> str:
        """Where those connect whom it serves."""
        if self.kind == "console":
            return self.http_url
        first = next(iter(self.ports.values()))
        scheme = "pulsar://" if self.kind in ("broker", "discovery") else ""
        return f"{scheme}{HOST}:{first}"

    @property
    def http_port(self) -> int:
        """Where health and /metrics are; etcd has them beside what clients ask."""
        return self.ports["clients" if self.kind == "etcd" else "HTTP"]

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.http_port}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Every process, in the order of starting."""

    members: tuple[Member, ...]
    moved: tuple[str, ...]
    """Processes on another than the documented port, since that was in use."""

    def of(self, kind: str) -> list[Member]:
        return [member for member in self.members if member.kind == kind]

    @property
    def service_url(self) -> str:
        """Service addresses for clients: every discovery, or every broker without discovery."""
        doors = self.of("discovery") or self.of("broker")
        return "pulsar://" + ",".join(f"{HOST}:{member.ports['clients']}" for member in doors)

    @property
    def admin_url(self) -> str:
        return (self.of("discovery") or self.of("broker"))[0].http_url

    @property
    def console_url(self) -> str:
        """Empty without a console."""
        return "".join(member.http_url for member in self.of("console"))

    @property
    def metadata_url(self) -> str:
        """The etcd that has the cluster's metadata."""
        return f"etcd:{HOST}:{self.of('etcd')[0].ports['clients']}"

    @property
    def is_where_commands_look(self) -> bool:
        """Whether `magnetar` finds it without being told where it is."""
        first = (self.of("discovery") or self.of("broker"))[0]
        return first.ports["clients"] == 6650 and first.http_port == 8080


class Ports:
    """Gives out ports of the loopback interface: those that are wanted, or free ones where they are taken."""

    def __init__(self, *, only_free: bool = False, take: Callable[[int], bool] | None = None) -> None:
        self._only_free = only_free
        self._take = take or take_port
        self._given: set[int] = set()
        self.moved: list[str] = []

    def take(self, name: str, purpose: str, wanted: int) -> int:
        """A port for good. Raises OSError when none can be found."""
        port = wanted
        if self._only_free or wanted in self._given or not self._take(wanted):
            port = free_run(1)
            if not self._only_free:
                self.moved.append(f"{name}: port {wanted} ({purpose}) is taken; it has {port}")
        self._given.add(port)
        return port


def make_plan(options: Options, *, magnetar: str, etcd: str, ports: Ports | None = None) -> Plan:
    """`magnetar` and `etcd` are the programs. Raises OSError when there are no ports left."""
    given = ports or Ports(only_free=options.free_ports)
    data = options.data_dir
    counts = {
        "etcd": 1,
        "bookie": options.bookies,
        "broker": options.brokers,
        "discovery": options.discoveries,
        "console": int(options.console),
    }
    members: list[Member] = []
    metadata = ""
    for kind in KINDS:
        for number in range(counts[kind]):
            name = kind if kind in _ALONE else f"{kind}-{number + 1}"
            own = {
                purpose: given.take(name, purpose, first + number)
                for purpose, first in FIRST_PORTS[kind].items()
            }
            if kind == "etcd":
                metadata = f"etcd:{HOST}:{own['clients']}"
                command = _etcd_command(etcd, data, own)
            else:
                settings = (
                    _console_settings(Plan(tuple(members), ()), own)
                    if kind == "console"
                    else _settings(kind, number + 1, own, metadata, options)
                )
                sets = [f"{key}={value}" for key, value in settings.items()]
                sets += options.settings.get(kind, ())
                command = (magnetar, kind, "--log-format", "console")
                command += tuple(part for one in sets for part in ("--set", one))
            members.append(Member(kind, name, command, own, data / "logs" / f"{name}.log"))
    return Plan(tuple(members), tuple(given.moved))


def _etcd_command(program: str, data: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    clients, peers = f"http://{HOST}:{ports['clients']}", f"http://{HOST}:{ports['peers']}"
    return (
        program,
        *("--name", "etcd", "--data-dir", str(data / "etcd"), "--logger", "zap", "--log-level", "warn"),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"etcd={peers}"),
    )


def _console_settings(cluster: Plan, ports: Mapping[str, int]) -> dict[str, object]:
    return {
        "webServicePort": ports["HTTP"],
        "webServiceUrl": cluster.admin_url,
        "brokerServiceUrl": cluster.service_url,
    }


def _settings(
    kind: str, number: int, ports: Mapping[str, int], metadata: str, options: Options
) -> dict[str, object]:
    if kind == "bookie":
        return {
            "clusterName": CLUSTER_NAME,
            "metadataServiceUri": metadata,
            "bookieId": f"bookie-{number}",
            "magnetarBookieRack": f"/default/rack-{number}",
            "ledgerDirectories": options.data_dir / f"bookie-{number}",
            "bookiePort": ports["brokers"],
            "httpServerPort": ports["HTTP"],
        }
    own: dict[str, object] = {"clusterName": CLUSTER_NAME, "metadataStoreUrl": metadata}
    if kind == "discovery":
        return {**own, "servicePort": ports["clients"], "webServicePort": ports["HTTP"]}
    own |= {"brokerServicePort": ports["clients"], "webServicePort": ports["HTTP"]}
    own["magnetarControlPort"] = ports["control"]
    if options.bookies < COPIES:
        own["managedLedgerDefaultEnsembleSize"] = options.bookies
        own["managedLedgerDefaultWriteQuorum"] = options.bookies
        own["managedLedgerDefaultAckQuorum"] = min(options.bookies, COPIES_ACKNOWLEDGED)
    return own
