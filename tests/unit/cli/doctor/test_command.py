"""`magnetar doctor` with hosts and clusters that are made up."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from magnetar.cli.access_options import Access
from magnetar.cli.credentials import credentials_of
from magnetar.cli.doctor.cluster_checks import etcd_findings
from magnetar.cli.doctor.command import examine
from magnetar.cli.doctor.findings import Finding, exit_code, graded
from magnetar.cli.doctor.probes import (
    CERTIFICATE,
    HttpAnswer,
    NotPermitted,
    Probes,
    Published,
    Unreachable,
)
from magnetar.cli.main import main
from magnetar.common.cluster.bookie_states import BookieState
from magnetar.common.metadata.values import BookieRegistration

TOPIC = "persistent://public/default/magnetar-doctor"
NOW_S = 1_700_000_000.0
ADMIN = "http://b1:8080"
HEALTH = f"{ADMIN}/admin/v2/brokers/health"
READY = f"{ADMIN}/admin/v2/brokers/ready"


@dataclass
class MadeUp(Probes):
    """A host where all is well, and a cluster that answers what `pages` says."""

    pages: dict[str, Any] = field(default_factory=dict)
    skews_s: dict[str, float] = field(default_factory=dict)
    open_ports: set[tuple[str, int]] = field(default_factory=set)
    busy_ports: set[int] = field(default_factory=set)
    syncs_s: float = 0.001
    free: tuple[int, int] = (80 << 30, 100 << 30)
    kind: str = "ext4"
    files: int = 1 << 20
    available: tuple[int, int] | None = (8 << 30, 16 << 30)
    texts: dict[str, str] = field(default_factory=dict)
    in_doubt: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    protobuf: str = "upb"
    answers_in_s: float = 0.01
    asked: list[tuple[str, bool]] = field(default_factory=list)
    """URLs, and whether each was asked with credentials."""
    refused: str = ""
    """Why the service refuses the credentials."""

    published: Published | Exception = field(default_factory=lambda: Published(0.02, is_carried=False))
    """The fate of the probe message."""
    states: list[BookieState] = field(default_factory=list)
    served: str = ""
    """The protocol of the server at a busy port."""

    def publish_and_read(self, service_url: str, topic: str) -> Published:
        if isinstance(self.published, Exception):
            raise self.published
        return self.published

    def bookies(self, metadata_url: str, cluster: str) -> list[BookieState]:
        return self.states

    def server_at(self, port: int) -> str:
        return self.served

    def doubts(self, metadata_url: str, cluster: str) -> dict[str, str]:
        return self.in_doubt

    def http_get(self, url: str, timeout_s: float = 5.0, *, is_broker: bool = False) -> HttpAnswer:
        self.asked.append((url, is_broker))
        if url not in self.pages:
            raise Unreachable("Connection refused")
        page = self.pages[url]
        status, body = page if isinstance(page, tuple) else (200, page)
        text = body if isinstance(body, str) else json.dumps(body)
        skew = next((skew for start, skew in self.skews_s.items() if url.startswith(start)), 0.0)
        date = formatdate(NOW_S - 0.5 + skew, usegmt=True)
        return HttpAnswer(status, {"date": date}, text.encode(), self.answers_in_s, NOW_S)

    def authenticate(self, host: str, port: int, *, tls: bool) -> None:
        if self.refused:
            raise Unreachable(self.refused)

    def connect(self, host: str, port: int, *, tls: bool = False) -> float:
        if (host, port) not in self.open_ports:
            raise Unreachable("timed out")
        return 0.001

    def port_is_free(self, port: int) -> bool:
        return port not in self.busy_ports

    def sync_seconds(self, directory: Path, times: int) -> list[float]:
        return [self.syncs_s] * times

    def space(self, directory: Path) -> tuple[int, int]:
        return self.free

    def file_system(self, directory: Path) -> str:
        return self.kind

    def file_limit(self) -> int:
        return self.files

    def memory(self) -> tuple[int, int] | None:
        return self.available

    def processors(self) -> int:
        return 4

    def text(self, path: str) -> str | None:
        return self.texts.get(path)

    def installed(self, module: str, package: str) -> str | None:
        return None if package in self.missing else "1.0"

    def protobuf_kind(self) -> str:
        return self.protobuf


def look(probes: Probes, *, metadata: str = "", host: bool = True, required: bool = False) -> list[Finding]:
    return list(
        examine(
            probes,
            Path("data"),
            (6650,),
            ADMIN,
            "pulsar://b1:6650",
            metadata,
            cluster="one",
            probe_topic=TOPIC,
            host=host,
            required=required,
        )
    )


def wrong(probes: Probes, **more: Any) -> dict[str, Finding]:
    """What is not well; each of it says what to do."""
    found = {each.check: each for each in look(probes, **more) if each.state in ("warning", "failure")}
    assert all(each.what_next for each in found.values()), found
    return found


def test_a_host_where_all_is_well_needs_no_broker() -> None:
    findings = look(MadeUp())
    assert exit_code(findings) == 0
    assert {each.state for each in findings} == {"ok", "skipped"}
    assert {"disk sync", "free space", "memory", "file limit", "libraries"} <= {
        each.check for each in findings
    }


@pytest.mark.parametrize(
    ("change", "check", "state"),
    [
        ({"syncs_s": 0.05}, "disk sync", "warning"),
        ({"syncs_s": 0.5}, "disk sync", "failure"),
        ({"free": (10 << 30, 100 << 30)}, "free space", "warning"),
        ({"free": (1 << 30, 100 << 30)}, "free space", "failure"),
        ({"kind": "tmpfs"}, "data directory", "failure"),
        ({"kind": "nfs4"}, "data directory", "warning"),
        ({"files": 4_096}, "file limit", "warning"),
        ({"files": 256}, "file limit", "failure"),
        ({"available": (100 << 20, 16 << 30)}, "memory", "failure"),
        ({"missing": {"crc32c"}}, "libraries", "failure"),
        ({"protobuf": "python"}, "libraries", "warning"),
        ({"busy_ports": {6650}}, "port 6650", "failure"),
        ({"texts": {"/proc/sys/net/core/somaxconn": "128\n"}}, "net.core.somaxconn", "warning"),
        (
            {"texts": {"/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}},
            "transparent huge pages",
            "warning",
        ),
        (
            {"texts": {"/proc/swaps": "Filename Type\n/swap file", "/proc/sys/vm/swappiness": "60"}},
            "vm.swappiness",
            "warning",
        ),
        (
            {"texts": {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"}},
            "clock source",
            "warning",
        ),
    ],
)
def test_host_problems_are_found(change: dict[str, Any], check: str, state: str) -> None:
    found = wrong(MadeUp(**change))
    assert {name: each.state for name, each in found.items()} == {check: state}


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    class ReadOnly(MadeUp):
        def sync_seconds(self, directory: Path, times: int) -> list[float]:
            raise PermissionError(13, "Permission denied")

    assert "Permission denied" in wrong(ReadOnly())["data directory"].found


def cluster(**more: Any) -> MadeUp:
    pages = {
        HEALTH: "ok",
        f"{ADMIN}/admin/v2/clusters": ["one"],
        f"{ADMIN}/admin/v2/brokers/one": ["b1:8080", "b2:8080"],
        f"{ADMIN}/admin/v2/brokers/leaderBroker": {"brokerId": "b1:8080"},
        "http://b2:8080/admin/v2/brokers/health": "ok",
        f"{ADMIN}/admin/v2/bookies/all": {"bookies": [{"bookieId": "k1:3181"}, {"bookieId": "by-name"}]},
        "http://e1:2379/health": {"health": "true"},
        "http://e1:2379/metrics": 'etcd_disk_wal_fsync_duration_seconds_bucket{le="0.008"} 99\n'
        'etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 100\n',
    }
    ports = {("b1", 6650), ("k1", 3181)}
    given: dict[str, Any] = {"pages": pages, "open_ports": ports, "states": [up("k1"), up("k2")], **more}
    given["pages"] = {url: page for url, page in (pages | more.get("pages", {})).items() if page is not None}
    return MadeUp(**given)


def up(bookie_id: str, *, read_only: bool = False) -> BookieState:
    registration = BookieRegistration(
        bookie_id=bookie_id, address=f"{bookie_id}:3181", read_only=read_only, free_bytes=1 << 30
    )
    return BookieState(bookie_id, "read-only" if read_only else "up", registration)


ETCD: dict[str, Any] = {"metadata": "etcd:e1:2379", "required": True}


def test_a_cluster_where_all_is_well() -> None:
    findings = look(cluster(), **ETCD)
    assert exit_code(findings) == 0
    assert {
        "broker b2:8080",
        "bookie k1",
        f"message through {TOPIC}",
        "etcd e1:2379",
        "disk of etcd e1:2379",
    } <= {each.check for each in findings}


@pytest.mark.parametrize(
    ("change", "check", "state"),
    [
        ({"pages": {HEALTH: (500, "no storage")}}, f"broker {ADMIN}", "failure"),
        ({"answers_in_s": 0.04, "pages": {HEALTH: (503, "")}}, f"broker {ADMIN}", "failure"),
        ({"skews_s": {"http://b2": 30.0}}, "clock of b2:8080", "failure"),
        ({"skews_s": {"http://e1": -4.0}}, "clock of etcd e1:2379", "warning"),
        ({"pages": {"http://b2:8080/admin/v2/brokers/health": None}}, "broker b2:8080", "failure"),
        (
            {"pages": {f"{ADMIN}/admin/v2/brokers/leaderBroker": (404, {"reason": "none"})}},
            "leader of brokers",
            "warning",
        ),
        ({"states": [up("k1"), BookieState("k2", "down")]}, "bookie k2", "failure"),
        ({"states": [up("k1", read_only=True)]}, "bookie k1", "warning"),
        ({"states": [BookieState("k1", "decommissioning")]}, "bookie k1", "warning"),
        ({"states": []}, "bookies", "warning"),
        ({"published": Unreachable("no receipt within 10 s")}, f"message through {TOPIC}", "failure"),
        ({"published": Published(4.0, is_carried=False)}, f"message through {TOPIC}", "failure"),
        ({"open_ports": {("k1", 3181)}}, "service b1:6650", "failure"),
        ({"in_doubt": {"k1:3181": "segment 5 is missing"}}, "data of bookie k1:3181", "warning"),
        ({"pages": {"http://e1:2379/health": None}}, "etcd e1:2379", "failure"),
        ({"pages": {"http://e1:2379/health": (503, {"health": "false"})}}, "etcd e1:2379", "failure"),
        (
            {
                "pages": {
                    "http://e1:2379/metrics": 'etcd_disk_wal_fsync_duration_seconds_bucket{le="0.256"} 100\n'
                }
            },
            "disk of etcd e1:2379",
            "warning",
        ),
    ],
)
def test_cluster_problems_are_found(change: dict[str, Any], check: str, state: str) -> None:
    found = wrong(cluster(**change), **ETCD)
    assert {name: each.state for name, each in found.items()} == {check: state}


def test_a_broker_that_was_named_has_to_be_there() -> None:
    assert wrong(MadeUp(), required=True)[f"broker {ADMIN}"].state == "failure"
    assert wrong(MadeUp(), required=False) == {}


def test_a_port_is_asked_itself_what_it_serves() -> None:
    """A broker at --admin-url says nothing about a port that another process has."""
    assert wrong(cluster(busy_ports={6650}, served="Pulsar's protocol")) == {}
    assert set(wrong(cluster(busy_ports={6650}, pages={READY: "ok"}))) == {"port 6650"}


def test_brokers_behind_a_discovery_that_carries_connections_need_not_be_reachable() -> None:
    away: dict[str, Any] = {"pages": {"http://b2:8080/admin/v2/brokers/health": None}}
    assert set(wrong(cluster(**away), **ETCD)) == {"broker b2:8080"}
    carried = cluster(published=Published(0.02, is_carried=True), **away)
    assert wrong(carried, **ETCD) == {}
    (finding,) = (each for each in look(carried, **ETCD) if each.check == "broker b2:8080")
    assert finding.state == "skipped"
    assert "clients reach it through discovery" in finding.found


def test_without_metadata_bookies_that_are_not_checked_are_said_to_be() -> None:
    findings = {each.check: each for each in look(cluster(), required=True)}
    assert findings["bookie k1:3181"].state == "ok"
    assert findings["bookies"].state == "skipped"
    assert findings["bookies"].found == "1 bookie known; --metadata and --cluster read their states"


def test_a_probe_that_the_credentials_do_not_allow_is_no_failure() -> None:
    probes = cluster(published=NotPermitted("the role may not produce"))
    assert wrong(probes, **ETCD) == {}
    (finding,) = (each for each in look(probes, **ETCD) if each.check.startswith("message"))
    assert finding.found == "the role may not produce; another topic: --probe-topic"


def test_a_broker_that_asks_for_a_token_is_there() -> None:
    assert wrong(cluster(pages={HEALTH: (401, "")})) == {}


WITH_TOKEN = Access(credentials=credentials_of("secret", "", "", "", ""))


def test_credentials_go_to_brokers_alone_and_are_checked_at_the_service() -> None:
    probes = cluster(access=WITH_TOKEN)
    findings = {each.check: each for each in look(probes, **ETCD)}
    assert findings["credentials at b1:6650"].found == "accepted, by method token"
    assert {url.split("//")[1][:2] for url, is_broker in probes.asked if is_broker} == {"b1", "b2"}
    assert {url.split("//")[1][:2] for url, is_broker in probes.asked if not is_broker} == {"e1"}


def test_credentials_that_are_refused_are_a_finding() -> None:
    found = wrong(cluster(access=WITH_TOKEN, refused="Failed to authenticate"), **ETCD)
    assert {name: each.found for name, each in found.items()} == {
        "credentials at b1:6650": "Failed to authenticate"
    }
    refused = {"reason": "needs a super user"}
    (finding,) = wrong(cluster(access=WITH_TOKEN, pages={HEALTH: (401, refused)})).values()
    assert (finding.state, finding.what_next) == ("warning", "use the credentials of a super user")
    assert "needs a super user" in finding.found


def test_by_https_a_broker_with_a_plain_port_gets_no_credentials() -> None:
    base, peer = "https://b1:8443", "b2:8080/admin/v2/brokers/health"
    probes = cluster(
        access=WITH_TOKEN,
        pages={
            f"{base}/admin/v2/brokers/health": "ok",
            f"{base}/admin/v2/clusters": ["one"],
            f"{base}/admin/v2/brokers/one": ["b1:8443", "b2:8080"],
            f"http://{peer}": (401, ""),
        },
    )
    found = {
        each.check: each
        for each in examine(probes, Path("data"), (), base, "pulsar://b1:6650", "", host=False, required=True)
    }
    assert found["broker b2:8080"].state == "ok"
    assert [(url, is_broker) for url, is_broker in probes.asked if peer in url] == [
        (f"https://{peer}", True),
        (f"http://{peer}", False),
    ]


def test_a_certificate_that_is_not_trusted_has_its_own_remedy() -> None:
    class Distrusting(MadeUp):
        def connect(self, host: str, port: int, *, tls: bool = False) -> float:
            raise Unreachable(f"{CERTIFICATE}: self-signed certificate")

    finding = wrong(Distrusting(pages={HEALTH: "ok"}), required=True)["service b1:6650"]
    assert "--tls-trust-cert-path" in finding.what_next


def test_why_a_broker_is_not_healthy_is_told_in_its_own_words() -> None:
    said = {"reason": "Health check failed: the disk is full"}
    (finding,) = wrong(cluster(pages={HEALTH: (500, said)})).values()
    assert finding.found == "HTTP 500 Health check failed: the disk is full"


def test_a_metadata_url_that_cannot_be_is_said() -> None:
    assert wrong(MadeUp(), metadata="etcd:nowhere")["etcd"].state == "failure"


def test_half_of_etcd_away_is_no_quorum() -> None:
    found = wrong(cluster(), metadata="etcd:e1:2379,e2:2379", required=True)
    assert set(found) == {"etcd e2:2379", "etcd quorum"}


def test_limits_are_inclusive() -> None:
    assert [graded("x", value, 2, 3, "", "do").state for value in (1, 2, 3)] == ["ok", "warning", "failure"]
    states = [graded("x", value, 2, 1, "", "do", higher=True).state for value in (3, 2, 1)]
    assert states == ["ok", "warning", "failure"]


def test_this_host_can_be_looked_at(tmp_path: Path) -> None:
    """The real probes; what they find is the host's business."""
    done = CliRunner().invoke(main, ["doctor", "--data-dir", str(tmp_path / "data"), "--json"])
    assert done.exit_code in (0, 1), done.output
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert found["libraries"]["state"] == "ok"
    assert "disk sync" in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "nonsense://x:abc"), "invalid service URL 'nonsense://x:abc'"),
        (("--url", "pulsar://x:99999999"), "invalid service URL 'pulsar://x:99999999'"),
        (("--metadata", "zk:h:2181"), "does not begin with etcd:"),
        (("--metadata", "etcd:"), "is not host:port"),
    ],
)
def test_a_url_that_is_none_is_a_finding(arguments: tuple[str, str], told: str) -> None:
    option, url = arguments
    service, metadata = (url, "") if option == "--url" else ("pulsar://b1:6650", url)
    found = list(
        examine(
            MadeUp(pages={HEALTH: "ok"}),
            Path("data"),
            (),
            ADMIN,
            service,
            metadata,
            host=False,
            required=True,
        )
    )
    assert [
        finding.what_next for finding in found if told in finding.found and finding.state == "failure"
    ] != []


def test_only_http_is_asked_for_health() -> None:
    (found,) = examine(
        MadeUp(), Path("data"), (), "ftp://b1", "pulsar://b1:6650", "", host=False, required=True
    )
    assert (found.state, found.found) == ("failure", "invalid HTTP URL 'ftp://b1'")


def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    class Full(MadeUp):
        def sync_seconds(self, directory: Path, times: int) -> list[float]:
            raise OSError(errno.ENOSPC, "No space left on device")

    found = {each.check: each for each in look(Full(free=(0, 100 << 30)))}
    assert found["data directory"].state == "ok"
    assert (found["free space"].state, found["disk sync"].state) == ("failure", "skipped")
    assert "delete unneeded data" in found["free space"].what_next


def test_members_of_etcd_with_tls_are_only_connected_to() -> None:
    """Their health page wants a certificate."""
    probes = MadeUp(open_ports={("m1", 2379)})
    found = {each.check: each for each in etcd_findings(probes, "etcd:https://m1:2379,https://m2:2379")}
    assert (found["etcd m1:2379"].state, found["etcd m1:2379"].found) == ("ok", "reachable, in 1 ms")
    assert (found["etcd m2:2379"].state, found["etcd m2:2379"].found) == ("failure", "timed out")
    assert found["etcd quorum"].state == "failure"
