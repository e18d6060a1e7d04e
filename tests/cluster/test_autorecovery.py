"""Auto-recovery with real processes: bookies that die for good, leave, and rot, over a real etcd."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieCookie, Leader, LedgerMetadata, decode
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.security.certificates import Authority
from magnetar.common.security.services.credentials import CredentialFiles, loaded
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.records import decode_run
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerListener, LedgerRef, LedgerWriter, Run
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore

from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.integration.harness import magnetar_command

KEYS = Keys(CLUSTER_NAME)

QUICK = {
    "metadataStoreSessionTimeoutMillis": "2000",
    "magnetarAutoRecoverySessionTimeoutMs": "2000",
    "lostBookieRecoveryDelay": "1",
    "openLedgerRereplicationGracePeriod": "2000",
    "rwRereplicateBackoffMs": "200",
    "magnetarLogFreeSpaceHeadroomBytes": "0",
    "diskUsageThreshold": "1",
    "diskUsageLwmThreshold": "1",
}
LEDGERS = 30
ENTRIES = 120
SECONDS_MAX = 90.0
"""Each of these takes a few seconds on an idle machine."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    return f"{ledger_id}/{entry_id}/".encode().ljust(500, b".")


@dataclass(slots=True)
class Client:
    """Writes ledgers and looks at every replica of them."""

    metadata: MetadataStore
    registry: BookieRegistry
    clients: GrpcBookieClients
    store: QuorumLedgerStore
    failures: list[StorageError] = field(default_factory=list)

    async def writer(self) -> LedgerWriter:
        listener = LedgerListener(lambda confirmed: None, lambda error, last: self.failures.append(error))
        return await self.store.create(listener, ensemble_size=3, write_quorum=3, ack_quorum=2, properties={})

    async def write(self, writer: LedgerWriter, first: int, last: int) -> None:
        """Entries, confirmed."""
        for entry in range(first, last + 1, 10):
            stop = min(entry + 9, last)
            writer.append(Run([payload(writer.ref.id, each) for each in range(entry, stop + 1)]))
        await eventually(lambda: writer.last_confirmed == last)

    async def closed_ledgers(self) -> list[LedgerRef]:
        refs = []
        for _ in range(LEDGERS):
            writer = await self.writer()
            await self.write(writer, 0, ENTRIES - 1)
            await writer.close()
            refs.append(writer.ref)
        return refs

    async def metadata_of(self, ref: LedgerRef) -> LedgerMetadata:
        found = await self.metadata.get(KEYS.ledger(ref.id))
        assert found is not None
        return decode(LedgerMetadata, found.value)

    async def named(self, refs: list[LedgerRef]) -> set[str]:
        """Every bookie in the ledgers' metadata."""
        values = [await self.metadata_of(ref) for ref in refs]
        return {bookie for value in values for each in value.fragments for bookie in each.bookie_ids}

    async def marks(self) -> int:
        return len((await self.metadata.children(KEYS.under_replicated_prefix)).items)

    async def auditor(self) -> str:
        found = await self.metadata.get(KEYS.auditor)
        return "" if found is None else decode(Leader, found.value).id

    async def cookie(self, bookie_id: str) -> BookieCookie | None:
        found = await self.metadata.get(KEYS.cookie(bookie_id))
        return None if found is None else decode(BookieCookie, found.value)

    async def lacking(self, ref: LedgerRef) -> list[tuple[str, int]]:
        """(bookie, entry) that metadata gives to the bookie, and that it does not give undamaged."""
        value = await self.metadata_of(ref)
        assert value.state == LedgerMetadata.CLOSED
        ends = [each.first_entry_id - 1 for each in value.fragments[1:]] + [value.last_entry_id]
        found = []
        for fragment, end in zip(value.fragments, ends, strict=True):
            for bookie in fragment.bookie_ids:
                have = await self.entries_at(bookie, ref, fragment.first_entry_id, end)
                found += [
                    (bookie, entry) for entry in range(fragment.first_entry_id, end + 1) if entry not in have
                ]
        return found

    async def entries_at(self, bookie: str, ref: LedgerRef, first: int, last: int) -> set[int]:
        have: set[int] = set()
        try:
            answer = await self.clients.client(bookie).read(ref, first, last, 1 << 30)
        except BookieUnreachable:
            return have
        for record in answer.records:
            run = decode_run(record)
            for number, entry in enumerate(run.entries, run.first_entry_id):
                assert entry == payload(ref.id, number)
                have.add(number)
        return have

    async def whole(self, refs: list[LedgerRef]) -> None:
        """Every replica that metadata names is there, byte for byte."""
        for ref in refs:
            assert await self.lacking(ref) == []
            assert not (await self.metadata_of(ref)).gaps


@asynccontextmanager
async def client(cluster: Cluster, tls: CredentialFiles | None = None) -> AsyncIterator[Client]:
    metadata = await open_metadata_store(cluster.etcd.url)
    registry = BookieRegistry(metadata, KEYS)
    await registry.start()
    clients = GrpcBookieClients(registry.address, registry.directory, tls=loaded(tls))
    store = QuorumLedgerStore(clients, registry, metadata, KEYS, SystemClock(), random.Random(1))
    try:
        yield Client(metadata, registry, clients, store)
    finally:
        await store.close()
        await clients.close()
        await registry.close()
        await metadata.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def on_a_cluster(
    tmp_path: Path,
    bookies: int,
    scenario: Callable[[Cluster, Client], Awaitable[None]],
    settings: Mapping[str, str] | None = None,
    tls: CredentialFiles | None = None,
) -> None:
    async def main(cluster: Cluster) -> None:
        async with client(cluster, tls) as one:
            await scenario(cluster, one)

    with Cluster.running(tmp_path, bookies=bookies, bookie_settings={**QUICK, **(settings or {})}) as cluster:
        asyncio.run(main(cluster))


def lose(cluster: Cluster, bookie_id: str) -> None:
    """Its process is killed and its disk is gone."""
    [bookie] = [each for each in cluster.bookies if each.bookie_id == bookie_id]
    bookie.kill()
    shutil.rmtree(bookie.data_dir)


def admin(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*magnetar_command(), "admin", "--metadata", cluster.etcd.url, "--cluster", CLUSTER_NAME]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX)


def metric(cluster: Cluster, name: str) -> float:
    """The sum of a metric over the bookies that run."""
    total = 0.0
    for bookie in cluster.bookies:
        if bookie.running:
            with urllib.request.urlopen(f"{bookie.http_url}/metrics", timeout=10) as page:
                lines = page.read().decode().splitlines()
            total += sum(
                float(line.rpartition(" ")[2])
                for line in lines
                if line.partition("{")[0].partition(" ")[0] == name
            )
    return total


@pytest.mark.full
def test_a_bookie_lost_for_good_is_replaced_everywhere_while_writers_go_on(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, one: Client) -> None:
        refs = await one.closed_ledgers()
        writer = await one.writer()
        await one.write(writer, 0, 99)

        async def audited() -> bool:
            return await one.auditor() != ""

        await until(audited)
        victim = await one.auditor()
        assert victim in [each.bookie_id for each in cluster.bookies]
        assert victim in await one.named(refs)
        lose(cluster, victim)

        async def recovered() -> bool:
            first = writer.last_confirmed + 1
            await one.write(writer, first, first)  # this one is not fenced
            return victim not in await one.named(refs) and not await one.marks()

        await until(recovered)
        await one.whole(refs)
        assert one.failures == []
        assert await one.auditor() not in ("", victim)
        assert metric(cluster, "replication_worker_NUM_ENTRIES_READ_total") > ENTRIES
        await writer.close()
        status = json.loads(admin(cluster, "--output", "json", "bookies", "recover-status").stdout)
        assert status["bookies_down"] == [victim]

    on_a_cluster(tmp_path, 5, scenario)


@pytest.mark.full
def test_three_bookies_lose_one_go_on_and_a_fourth_makes_everything_whole(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, one: Client) -> None:
        refs = await one.closed_ledgers()
        writer = await one.writer()
        await one.write(writer, 0, 99)
        lose(cluster, "bookie-3")
        await one.write(writer, 100, 199)

        async def marked() -> bool:
            return await one.marks() >= LEDGERS

        await until(marked)
        assert one.failures == []
        fourth = cluster.add_bookie()
        await asyncio.to_thread(fourth.start)

        async def recovered() -> bool:
            first = writer.last_confirmed + 1
            await one.write(writer, first, first)
            return "bookie-3" not in await one.named(refs) and "bookie-4" in await one.named([writer.ref])

        await until(recovered)
        await writer.close()

        async def unmarked() -> bool:
            return not await one.marks()

        await until(unmarked)
        await one.whole([*refs, writer.ref])
        assert one.failures == []

    on_a_cluster(tmp_path, 3, scenario)


@pytest.mark.full
def test_an_abandoned_open_ledger_is_recovered_and_whole_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, one: Client) -> None:
        async with client(cluster) as gone:
            writer = await gone.writer()
            await gone.write(writer, 0, 99)
        victim = (await one.metadata_of(writer.ref)).fragments[0].bookie_ids[0]
        lose(cluster, victim)

        async def recovered() -> bool:
            state = (await one.metadata_of(writer.ref)).state
            return state == LedgerMetadata.CLOSED and not await one.marks()

        await until(recovered)
        assert (await one.metadata_of(writer.ref)).last_entry_id == 99
        await one.whole([writer.ref])

    on_a_cluster(tmp_path, 4, scenario)


@pytest.mark.full
def test_an_operator_has_a_bookie_leave(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, one: Client) -> None:
        refs = await one.closed_ledgers()
        result = await asyncio.to_thread(admin, cluster, "bookies", "decommission", "bookie-2")
        assert result.returncode == 0, result.stderr
        assert "ledgers moved" in result.stdout
        assert "bookie-2 is decommissioned" in result.stdout
        assert await one.cookie("bookie-2") is None
        assert "bookie-2" not in await one.named(refs)
        assert one.registry.bookies["bookie-2"].read_only
        await one.whole(refs)
        leaving = cluster.bookies[1]
        await asyncio.to_thread(leaving.stop)
        await one.whole(refs)
        leaving.launch()
        ended = await asyncio.to_thread(lambda: leaving._process.wait(30) if leaving._process else None)
        assert ended == 1, "its data is nobody's any more"
        assert "decommissioned" in leaving.log_tail()

    on_a_cluster(tmp_path, 4, scenario)


@pytest.mark.full
def test_the_scrub_mends_bytes_that_rot(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, one: Client) -> None:
        refs = await one.closed_ledgers()
        bookie = cluster.bookies[0]
        await asyncio.to_thread(bookie.stop)
        flipped = 0
        for path in bookie.data_dir.rglob("*.seg"):
            data = bytearray(path.read_bytes())
            for ref in refs[:5]:
                at = data.find(payload(ref.id, 55))
                if at >= 0:
                    data[at + 100] ^= 0x40
                    flipped += 1
            path.write_bytes(data)
        assert flipped >= 5
        bookie.settings["localScrubInterval"] = "1"
        await asyncio.to_thread(bookie.start)
        await eventually(lambda: bookie.bookie_id in one.registry.bookies)

        async def mended() -> bool:
            return not [each for ref in refs for each in await one.lacking(ref)]

        await until(mended)
        await one.whole(refs)
        assert metric(cluster, "magnetar_scrub_findings_total") >= 5
        assert "the scrub found entries" in bookie.log_path.read_text()

    on_a_cluster(tmp_path, 3, scenario)


@pytest.mark.full
def test_bookies_replace_a_lost_one_over_mutual_tls(tmp_path: Path) -> None:
    """Re-replication reads and writes with the certificate of a bookie, and nothing else is admitted."""
    authority = Authority("services")
    trust = tmp_path / "ca.pem"
    trust.write_bytes(authority.certificate)
    pairs = {
        service: authority.issue(
            service, ips=["127.0.0.1"], uris=[f"spiffe://{CLUSTER_NAME}/{service}"]
        ).write(tmp_path, service)
        for service in ("bookie", "broker")
    }
    settings = {
        "tlsCertificatePath": str(pairs["bookie"][0]),
        "tlsKeyStore": str(pairs["bookie"][1]),
        "tlsTrustStore": str(trust),
        "tlsClientAuthentication": "true",
        "bookkeeperTLSClientAuthentication": "true",
    }

    async def scenario(cluster: Cluster, one: Client) -> None:
        refs = (await one.closed_ledgers())[:10]
        victim = cluster.bookies[0].bookie_id
        assert victim in await one.named(refs)
        lose(cluster, victim)

        async def recovered() -> bool:
            return victim not in await one.named(refs) and not await one.marks()

        await until(recovered)
        await one.whole(refs)
        assert metric(cluster, "magnetar_service_refused_callers_total") == 0

    broker = CredentialFiles(trust_certs=trust, certificate=pairs["broker"][0], key=pairs["broker"][1])
    on_a_cluster(tmp_path / "cluster", 4, scenario, settings, broker)
