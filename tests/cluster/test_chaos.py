"""Faults on a whole cluster under traffic: seconds of what `make chaos` does for minutes.

Bounds are those of a machine that has much else to do: what is promised of time is for `make chaos`.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.chaos.chaos import Load, Outcome, run
from tests.chaos.chaos_cluster import ChaosCluster
from tests.chaos.faults import LEASE_S, Fault, faults, pairs, partitions
from tests.chaos.network import why_impossible
from tests.clients.programs import CannotFetch
from tests.integration.harness import ROOT, temporary_directory
from tests.transactions.bank import BANK

TOPICS = 20
PAUSE_S = LEASE_S + 3.0
ETCD_S = LEASE_S + 5.0
IDLE_S_MAX = 30.0

pytestmark = pytest.mark.timeout(900)


def struck(chosen: Sequence[Fault], seed: int, *, own_network: bool = False) -> Outcome:
    """Fails with everything that was broken."""
    directory = temporary_directory()
    workers = bank_workers()
    load = Load(seed, 0.0, TOPICS, idle_s_max=IDLE_S_MAX, library_topics=2, quiet=False, bank_workers=workers)
    with ChaosCluster.up(directory, partitions=own_network) as cluster:
        outcome = run(cluster, load, chosen, print)
        logs = [one.log_tail()[-2_000:] for one in cluster.brokers] if outcome.violations else []
    if outcome.violations:
        told = "\n".join(outcome.violations[:20])
        pytest.fail("\n".join([told, *logs, f"kept for a look: {directory}"]))
    shutil.rmtree(directory, ignore_errors=True)
    assert len(outcome.struck) == len(chosen)
    assert not workers or outcome.counts["bank: committed"] > 0
    assert all(counts["confirmed"] > 0 for counts in outcome.by_kind.values())
    assert all(counts["owners"] > counts["topics"] for counts in outcome.by_kind.values()) or own_network
    return outcome


def bank_workers() -> int:
    """Returns how many clients move balances in transactions: none without Java."""
    try:
        BANK.build()
    except CannotFetch:
        return 0
    return 2


@pytest.mark.full
def test_every_kind_of_process_is_killed_and_stopped_and_nothing_confirmed_is_lost_or_reordered() -> None:
    outcome = struck([*faults(PAUSE_S, ETCD_S), *pairs(PAUSE_S)[:1]], seed=1)
    assert outcome.counts["left a silent broker"] > 0
    assert all(counts["once"] > 0 for counts in outcome.by_kind.values()), "duplicates are looked for"


@pytest.mark.full
def test_brokers_that_are_cut_off_lose_nothing_and_reorder_nothing() -> None:
    if reason := why_impossible():
        pytest.skip(reason)
    struck(partitions(PAUSE_S), seed=2, own_network=True)


@pytest.mark.full
def test_a_run_that_is_terminated_leaves_no_namespace() -> None:
    if reason := why_impossible():
        pytest.skip(reason)
    command = [sys.executable, "-u", "-m", "tests.chaos", "--minutes=1", "--topics=1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the cluster serves" in line:
                break
        assert f"magnetar-{process.pid}-broker-1" in namespaces()
        process.terminate()
        process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert f"magnetar-{process.pid}-" not in namespaces()


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
