"""A bookie as an operator meets it: a process over a real etcd."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.security.services.credentials import CredentialFiles, loaded
from magnetar.common.security.services.service_identity import Service, ServiceIdentity
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, UNREACHABLE, Code
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.records import decode_run, encode_append
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerRef, Run

from tests.certificates import Authority
from tests.cluster.bookie_process import OneBookie
from tests.cluster.processes import CLUSTER_NAME
from tests.etcd_server import EtcdServer
from tests.integration.harness import magnetar_command

LEDGER = LedgerRef(3, 4)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer.running(tmp_path / "etcd") as server:
        yield server


def with_clients(
    etcd: EtcdServer,
    scenario: Callable[[BookieRegistry, GrpcBookieClients], Awaitable[None]],
    tls: CredentialFiles | None = None,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(120):
            metadata = await open_metadata_store(etcd.url)
            registry = BookieRegistry(metadata, Keys(CLUSTER_NAME))
            await registry.start()
            options = ClientOptions(reopen_after_s=0.01, reopen_after_max_s=0.1)
            clients = GrpcBookieClients(
                registry.address, registry.directory, tls=loaded(tls), options=options
            )
            await scenario(registry, clients)
            await clients.close()
            await registry.close()
            await metadata.close()

    asyncio.run(main())


async def append(clients: GrpcBookieClients, bookie_id: str, entry: int) -> tuple[Code.ValueType, str]:
    done: asyncio.Future[tuple[Code.ValueType, str]] = asyncio.get_running_loop().create_future()
    run = Run([b"entry %d" % entry], first_entry_id=entry)
    clients.client(bookie_id).append(
        encode_append(run, LEDGER, entry - 1), lambda code, reason: done.set_result((code, reason))
    )
    return await done


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def test_a_bookie_registers_serves_and_goes_in_good_order(tmp_path: Path, etcd: EtcdServer) -> None:
    rack = {"magnetarBookieRack": "/east/a"}
    with OneBookie.serving(tmp_path, etcd.url, rack) as bookie:

        async def scenario(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            info = registry.bookies["bookie-1"]
            assert (info.address, info.rack, info.read_only) == (bookie.address, "/east/a", False)
            assert (await append(clients, "bookie-1", 0)) == (OK, "")
            assert json.loads(bookie.page("/api/v1/bookie/state")[1])["running"]
            # An entry counts once its answer went out, so perhaps after the client has it.
            counted = 'ADD_ENTRY_REQUEST_count{success="true"} 1\n'
            await eventually(lambda: counted in bookie.page("/metrics")[1])
            await asyncio.to_thread(bookie.stop)
            await eventually(lambda: "bookie-1" not in registry.bookies)
            assert (await append(clients, "bookie-1", 1))[0] == UNREACHABLE

        with_clients(etcd, scenario)


def test_acknowledged_entries_survive_a_kill(tmp_path: Path, etcd: EtcdServer) -> None:
    with OneBookie.serving(tmp_path, etcd.url) as bookie:

        async def scenario(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            for entry in range(50):
                assert (await append(clients, "bookie-1", entry))[0] == OK
            bookie.kill()
            assert (await append(clients, "bookie-1", 50))[0] == UNREACHABLE
            await asyncio.to_thread(bookie.start)
            while (await append(clients, "bookie-1", 50))[0] != OK:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            answer = await clients.client("bookie-1").read(LEDGER, 0, 50, 1 << 20)
            entries = [entry for record in answer.records for entry in decode_run(record).entries]
            assert entries == [b"entry %d" % entry for entry in range(51)]
            assert "bookie-1" in registry.bookies

        with_clients(etcd, scenario)


@pytest.mark.full
def test_a_bookie_serves_on_without_etcd_and_registers_again(tmp_path: Path, etcd: EtcdServer) -> None:
    short = {"metadataStoreSessionTimeoutMillis": "2000"}
    with OneBookie.serving(tmp_path, etcd.url, short) as bookie:

        async def scenario(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            assert (await append(clients, "bookie-1", 0))[0] == OK
            etcd.pause()
            await asyncio.sleep(4)
            assert (await append(clients, "bookie-1", 1))[0] == OK
            etcd.resume()
            await eventually(lambda: "bookie-1" in registry.bookies)
            await asyncio.to_thread(
                etcd.clear
            )  # as if the session had ended long ago: leases go on, keys went
            assert (await append(clients, "bookie-1", 2))[0] == OK
            assert bookie.page("/health")[0] == 200

        with_clients(etcd, scenario)


@pytest.mark.full
def test_the_disk_threshold_turns_the_bookie_read_only(tmp_path: Path, etcd: EtcdServer) -> None:
    full = {"diskUsageThreshold": "0.01", "diskUsageLwmThreshold": "0.01", "diskCheckInterval": "100"}
    with OneBookie.serving(tmp_path, etcd.url, full) as bookie:

        async def scenario(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            assert registry.bookies["bookie-1"].read_only
            assert registry.writable() == []
            assert json.loads(bookie.page("/api/v1/bookie/state")[1])["readOnly"]
            code, reason = await append(clients, "bookie-1", 0)
            assert Code.Name(code) == "READ_ONLY", reason
            assert "diskUsageThreshold" in reason

        with_clients(etcd, scenario)


@pytest.mark.full
def test_mutual_tls_by_configuration(tmp_path: Path, etcd: EtcdServer) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.issue("bookie")
    theirs = authority.issue("broker", ServiceIdentity(CLUSTER_NAME, Service.BROKER).uri)
    settings = {
        "tlsCertificatePath": str(own.certificate),
        "tlsKeyStore": str(own.key),
        "tlsTrustStore": str(authority.certificate),
        "tlsClientAuthentication": "true",
    }
    with OneBookie.serving(tmp_path, etcd.url, settings):

        async def served(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            assert await append(clients, "bookie-1", 0) == (OK, "")

        async def refused(registry: BookieRegistry, clients: GrpcBookieClients) -> None:
            assert (await append(clients, "bookie-1", 0))[0] == UNREACHABLE

        trust = authority.certificate
        with_clients(
            etcd, served, CredentialFiles(trust_certs=trust, certificate=theirs.certificate, key=theirs.key)
        )
        with_clients(etcd, refused, CredentialFiles(trust_certs=trust))
        with_clients(etcd, refused)


def test_another_bookie_s_directory_is_refused_with_the_reason(tmp_path: Path, etcd: EtcdServer) -> None:
    with OneBookie.serving(tmp_path, etcd.url) as bookie:
        bookie.stop()
        stranger = OneBookie(tmp_path, etcd.url, {"ledgerDirectories": str(bookie.data_dir)}, number=2)
        stranger.launch()
        assert stranger.wait_for_end() == 1
        assert "bookie-1" in stranger.log_tail()
        bookie.start()


def test_two_processes_never_share_a_directory_or_a_port(tmp_path: Path, etcd: EtcdServer) -> None:
    with OneBookie.serving(tmp_path, etcd.url) as bookie:
        twin = OneBookie(tmp_path, etcd.url, {"bookieId": "bookie-1"}, number=2)
        twin.settings["ledgerDirectories"] = str(bookie.data_dir)
        twin.launch()
        assert twin.wait_for_end() == 1
        assert "LOCK" in twin.log_tail()
        port = bookie.settings["bookiePort"]
        neighbor = OneBookie(tmp_path, etcd.url, {"bookiePort": port}, number=3)
        neighbor.launch()
        assert neighbor.wait_for_end() == 1
        assert "bookiePort" in neighbor.log_tail()
        assert bookie.running


def test_all_invalid_settings_are_reported_at_once() -> None:
    done = subprocess.run(
        [*magnetar_command(), "bookie", "--set", "journalSyncData=false", "--set", "bookiePort=0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    for key in ("clusterName", "metadataServiceUri", "journalSyncData", "bookieId"):
        assert key in done.stderr
    shown = subprocess.run(
        [*magnetar_command(), "bookie", "--print-config", "--set", "bookiePort=1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "bookiePort\t1\tcommand line" in shown.stdout


def test_standalone_starts_without_grpc() -> None:
    done = subprocess.run(
        [
            *(magnetar_command()[0].rpartition("/")[0] + "/python", "-c"),
            "import sys, magnetar.cli.main, magnetar.cli.servers.commands\n"
            "import magnetar.standalone.run, magnetar.standalone.standalone\n"
            "sys.exit(', '.join(name for name in sys.modules if name.partition('.')[0] == 'grpc'))",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.strip() == ""
