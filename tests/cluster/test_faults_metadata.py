"""etcd that dies or stands still while bookies are written, alone and together with a bookie."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.load import Gaps, Load
from tests.cluster.processes import Cluster
from tests.cluster.test_faults_bookies import QUICK, under_load


@pytest.mark.full
@pytest.mark.parametrize("bookies", [3, pytest.param(4, marks=pytest.mark.nightly)])
def test_open_ledgers_are_written_and_read_on_without_etcd_even_when_a_bookie_dies_too(
    tmp_path: Path, bookies: int
) -> None:
    """Killed for longer than the sessions of the bookies, which are there again without doing anything."""

    async def scenario(cluster: Cluster, load: Load, gaps: Gaps) -> None:
        await load.needs_no_metadata()
        since = asyncio.get_running_loop().time()
        await asyncio.to_thread(cluster.etcd.kill)
        await load.confirms()
        await asyncio.to_thread(cluster.bookies[0].kill)
        await load.confirms()
        load.measure(gaps, since)
        await asyncio.to_thread(cluster.etcd.start)
        await asyncio.to_thread(cluster.bookies[0].start)
        ledgers = len(load.ledgers)
        await load.until(lambda: len(load.ledgers) > ledgers, "new ledgers are made")
        await load.confirms()

    cluster = Cluster(tmp_path, bookies=bookies, bookie_settings=QUICK)
    under_load(cluster, f"kill -9 of etcd, then of one of {bookies} bookies", scenario)


@pytest.mark.full
def test_etcd_stands_still_for_longer_than_sessions_and_writing_and_reading_go_on(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, load: Load, gaps: Gaps) -> None:
        await load.needs_no_metadata()
        since = asyncio.get_running_loop().time()
        await asyncio.to_thread(cluster.etcd.pause)
        await asyncio.sleep(3)
        await load.confirms()
        load.measure(gaps, since)
        cluster.etcd.resume()
        ledgers = len(load.ledgers)
        await load.until(lambda: len(load.ledgers) > ledgers, "new ledgers are made")
        await load.confirms()

    cluster = Cluster(tmp_path, bookies=3, bookie_settings=QUICK)
    under_load(cluster, "SIGSTOP of etcd", scenario)
