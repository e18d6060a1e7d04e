"""A broker over bookies, killed and killed again, and bookies with it: clients keep what they were promised.

The clients and the comparison are those of the standalone's kill test (tests/faults/test_kills.py); here
every kill of the broker takes a bookie with it, which is missing at the next start.
"""

from __future__ import annotations

import random
import statistics
import time
import uuid
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import BrokerProcess, Cluster
from tests.cluster.test_faults_bookies import GAP_SECONDS_MAX, QUICK
from tests.faults.test_kills import run_cycles
from tests.faults.traffic import Publisher, assert_promises_kept, keep, read_topic
from tests.integration.harness import Endpoint

SETTINGS: Final = {
    "metadataStoreSessionTimeoutMillis": "2000",
    "magnetarAddEntryTimeoutSeconds": "2",
    "bookkeeperClientTimeoutInSeconds": "2",
}


class BrokerAndBookies:
    """A broker over four bookies, one of which may be dead: to a client it looks like one server."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._broker: BrokerProcess = cluster.broker(SETTINGS)
        self._random = random.Random(seed)
        self.endpoint: Endpoint = self._broker.endpoint

    @property
    def starts(self) -> int:
        return self._broker.starts

    def start(self) -> None:
        self._broker.start()

    def launch(self) -> None:
        self._broker.launch()

    def kill(self) -> None:
        """The broker and, before or after it, a bookie; whichever was dead begins to start."""
        returning = [bookie for bookie in self._cluster.bookies if not bookie.running]
        victim = self._random.choice([bookie for bookie in self._cluster.bookies if bookie.running])
        both = [victim.kill, self._broker.kill]
        self._random.shuffle(both)
        for kill in both:
            kill()
        for bookie in returning:
            bookie.start()


def new_topic() -> str:
    return f"persistent://public/default/faults-{uuid.uuid4().hex[:8]}"


@pytest.mark.full
@pytest.mark.parametrize("cycles", [2, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.timeout(600)
def test_kills_of_the_broker_and_of_bookies_lose_nothing_and_bring_back_nothing(
    tmp_path: Path, cycles: int
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with Cluster.running(tmp_path, bookies=4, bookie_settings=QUICK) as cluster:
        run_cycles(BrokerAndBookies(cluster, seed), new_topic(), cycles, seed)


@pytest.mark.full
@pytest.mark.parametrize("bookies", [3, pytest.param(4, marks=pytest.mark.nightly)])
def test_publishing_goes_on_while_each_bookie_is_killed_in_turn(tmp_path: Path, bookies: int) -> None:
    gaps = []
    with Cluster.running(tmp_path, bookies=bookies, bookie_settings=QUICK) as cluster:
        broker, topic = cluster.broker(SETTINGS), new_topic()
        broker.start()
        keep(broker.endpoint, topic)
        publisher = Publisher(broker.endpoint, topic, "steady", in_flight=40, pause_s=0.005)
        publisher.start()
        publisher.more_receipts(100)
        for bookie in cluster.bookies:
            bookie.kill()
            gaps.append(longest_wait(publisher, 1.5))
            publisher.more_receipts(100)
            bookie.start()
            publisher.more_receipts(100)
        publisher.finish()
        assert not publisher.refused
        assert_promises_kept(publisher, read_topic(broker.endpoint, topic))
        broker.kill_and_start()
        assert_promises_kept(publisher, read_topic(broker.endpoint, topic))
    print(
        f"\nbroker over {bookies} bookies, each killed: receipts stop for p50 "
        f"{statistics.median(gaps) * 1e3:.0f} ms, maximum {max(gaps) * 1e3:.0f} ms; "
        f"{len(publisher.confirmed)} messages confirmed"
    )
    assert max(gaps) < GAP_SECONDS_MAX


def longest_wait(publisher: Publisher, seconds: float) -> float:
    """The longest time without a receipt that begins within the next so many seconds."""
    began = last = time.monotonic()
    count, longest = len(publisher.confirmed), 0.0
    while (now := time.monotonic()) < began + seconds or len(publisher.confirmed) == count:
        if len(publisher.confirmed) > count:
            count, last = len(publisher.confirmed), now
        longest = max(longest, now - last)
        assert now < began + seconds + GAP_SECONDS_MAX, "publishing stopped"
        time.sleep(0.002)
    return longest
