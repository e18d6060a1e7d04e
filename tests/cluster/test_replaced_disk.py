"""A bookie's disk is lost and replaced by an empty one, as docs/operations.md says, while clients go on."""

from __future__ import annotations

import asyncio
import shutil
import urllib.request
from typing import Final

import pytest
from magnetar.bookie.autorecovery.entry_copier import sound_until
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger.ledger_store import LedgerRef

from tests.cluster.conftest import NewCluster
from tests.cluster.ledger_client import KEYS, LedgerClient
from tests.cluster.processes import BookieProcess
from tests.cluster.test_backup_and_restore import BROKER, OLD, client_of, publish, read_all
from tests.cluster.test_faults_bookies import QUICK
from tests.integration.harness import eventually

ACCEPT: Final = "magnetarBookieAcceptEmptyDirectory"


def metric(bookie: BookieProcess, name: str) -> float:
    with urllib.request.urlopen(f"{bookie.http_url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def lacking(url: str, bookie_id: str) -> list[int]:
    """Closed ledgers of which a bookie does not give all that metadata says it has."""
    found = []
    async with LedgerClient.connected(url) as client:
        for item in (await client.metadata.children(KEYS.ledgers_prefix)).items:
            value = decode(LedgerMetadata, item.value)
            named = [bookie for fragment in value.fragments for bookie in fragment.bookie_ids]
            if value.state != LedgerMetadata.CLOSED or bookie_id not in named or len(value.fragments) > 1:
                continue
            ref, at = LedgerRef(value.ref.id, value.ref.key), 0
            while at <= value.last_entry_id:
                answer = await client.clients.client(bookie_id).read(ref, at, value.last_entry_id, 1 << 20)
                following, _ = sound_until(ref, answer.records, at)
                if following == at:
                    found.append(ref.id)
                    break
                at = following
    return found


@pytest.mark.full
def test_an_empty_disk_is_taken_only_when_told_and_filled_up_by_its_peers(new_cluster: NewCluster) -> None:
    cluster = new_cluster(bookies=3, bookie_settings=QUICK)
    broker = cluster.broker(BROKER)
    broker.start()
    victim = cluster.bookies[1]
    with client_of(broker.endpoint) as client:
        confirmed = publish(client, OLD, 0, 149)  # three closed ledgers, and an open one
        victim.kill()
        shutil.rmtree(victim.data_dir)
        confirmed += publish(client, OLD, 150, 199)

        victim.launch()
        eventually(lambda: not victim.running, "an empty directory is refused")
        assert ACCEPT in victim.log_tail()

        victim.settings[ACCEPT] = "true"
        victim.start()
        del victim.settings[ACCEPT]
        confirmed += publish(client, OLD, 200, 249)
        eventually(
            lambda: asyncio.run(lacking(cluster.etcd.url, victim.bookie_id)) == [],
            "its peers have filled it up",
            90.0,
        )
        assert read_all(client, OLD) == confirmed
    victim.restart()
    broker.restart()  # which closes what was open, and recovers nothing from memory
    eventually(
        lambda: metric(victim, "magnetar_autorecovery_ledgers_in_doubt") == 0, "it is in no doubt", 90.0
    )
    cluster.bookies[0].kill()
    with client_of(broker.endpoint) as client:
        assert read_all(client, OLD) == confirmed
