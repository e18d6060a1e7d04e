"""A ledger that nothing can decide, on real bookies: operators see it, end it, and find their decision."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from magnetar.common.errors import NotEnoughBookies
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_store import LedgerListener, Run

from tests.cluster.ledger_client import LedgerClient, entry_bytes
from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.integration.harness import magnetar_command

ENTRIES = 20


def admin(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        *magnetar_command(),
        "admin",
        "--metadata",
        cluster.etcd.url,
        "--cluster",
        CLUSTER_NAME,
        "--json",
    ]
    return subprocess.run([*command, "ledgers", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.full
def test_a_ledger_that_two_lost_bookies_leave_undecided_is_ended_by_an_operator(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with asyncio.timeout(200), LedgerClient.connected(cluster.etcd.url) as client:
            confirmed = asyncio.Event()

            def on_confirmed(last: int) -> None:
                if last == ENTRIES - 1:
                    confirmed.set()

            writer = await client.create(LedgerListener(on_confirmed, lambda error, last: None))
            for n in range(ENTRIES):
                writer.append(Run([entry_bytes(writer.ref, n)]))
            await confirmed.wait()
            ref = writer.ref
            ensemble = (await client.metadata_of(ref)).fragments[0].bookie_ids
        for bookie in cluster.bookies:
            if bookie.bookie_id in ensemble[:2]:
                await asyncio.to_thread(bookie.kill)
        async with asyncio.timeout(200), LedgerClient.connected(cluster.etcd.url) as client:
            with pytest.raises(NotEnoughBookies):
                await client.store.recover(ref)
            done = await asyncio.to_thread(admin, cluster, "stuck")
            assert done.returncode == 0, done.stderr
            [row] = json.loads(done.stdout)
            assert (row["ledger"], row["found_until"]) == (ref.id, ENTRIES - 1)
            assert sorted(row["bookies_in_doubt"]) == [
                f"{each}: does not answer" for each in sorted(ensemble[:2])
            ]
            end = ("end", str(ref.id), "--at", str(ENTRIES - 1), "--reason", "both hosts burned down")
            done = await asyncio.to_thread(admin, cluster, *end)
            assert done.returncode == 0, done.stderr
            assert "--yes" in json.loads(done.stdout)["done"]
            assert (await client.metadata_of(ref)).state == LedgerMetadata.IN_RECOVERY
            assert json.loads((await asyncio.to_thread(admin, cluster, "decisions")).stdout) == []
            done = await asyncio.to_thread(admin, cluster, *end, "--yes")
            assert done.returncode == 0, done.stderr
            assert await client.read_all(ref) == ENTRIES - 1
            [row] = json.loads((await asyncio.to_thread(admin, cluster, "decisions")).stdout)
            assert (row["ledger"], row["ended_at"]) == (ref.id, ENTRIES - 1)
            assert row["reason"] == "both hosts burned down"
            assert row["by"]
            assert json.loads((await asyncio.to_thread(admin, cluster, "stuck")).stdout) == []

    with Cluster.running(tmp_path, bookies=4) as cluster:
        asyncio.run(scenario(cluster))
