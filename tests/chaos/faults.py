"""What is done to a cluster, and how it is undone.

A fault is struck and healed from a thread: starting a process takes seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.chaos.chaos_cluster import ChaosCluster
from tests.cluster.whole_cluster import SESSION_TIMEOUT_MS, broker_id
from tests.etcd_server import EtcdServer
from tests.integration.harness import MagnetarProcess
from tests.integration.rest import Rest

LEASE_S = SESSION_TIMEOUT_MS / 1000
MISSED_S = LEASE_S + 1.5
"""A broker that says nothing is missed after this time: etcd looks for leases that ended twice a second."""
BOOKIE_MISSED_S = 10.0


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that has been struck."""

    target: str
    heal: Callable[[], None]


Strike = Callable[[Any, random.Random], Struck]
"""Of the cluster that the run is over: those here of a ChaosCluster."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    strike: Strike
    lasts_s: float
    cured_s: float
    """After so many seconds the rest of the cluster has to serve everything, healed or not."""
    untouched: bool = False
    """Whether no topic may lose its owner."""


def kill_broker(cluster: ChaosCluster, rng: random.Random) -> Struck:
    leader = leader_of(cluster)
    return _killed(rng.choice([one for one in cluster.used_brokers if one is not leader] or cluster.brokers))


def kill_leader(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _killed(leader_of(cluster))


def kill_bookie(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _killed(rng.choice(cluster.bookies))


def kill_discovery(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _killed(rng.choice(cluster.discoveries))


def pause_broker(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _paused(rng.choice(cluster.used_brokers))


def pause_bookie(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _paused(rng.choice(cluster.bookies))


def kill_etcd_leader(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _etcd_killed(cluster.members.leader)


def kill_etcd_follower(cluster: ChaosCluster, rng: random.Random) -> Struck:
    leader = cluster.members.leader
    return _etcd_killed(rng.choice([one for one in cluster.members.members if one is not leader]))


def stop_etcd(cluster: ChaosCluster, rng: random.Random) -> Struck:
    cluster.etcd.kill()
    return Struck("all members", cluster.etcd.start)


def cut_broker_from_etcd(cluster: ChaosCluster, rng: random.Random) -> Struck:
    members = [one.name for one in cluster.members.members]
    return _cut(cluster, rng.choice(cluster.used_brokers).name, *members)


def cut_broker_from_bookie(cluster: ChaosCluster, rng: random.Random) -> Struck:
    return _cut(cluster, rng.choice(cluster.used_brokers).name, rng.choice(cluster.bookies).name)


def cut_broker_from_broker(cluster: ChaosCluster, rng: random.Random) -> Struck:
    one, other = rng.sample(cluster.brokers, 2)
    return _cut(cluster, one.name, other.name)


def leader_of(cluster: ChaosCluster) -> MagnetarProcess:
    """The broker that leads, as any of them says."""
    for broker in cluster.brokers:
        if broker.running:
            found = Rest(broker.endpoint).get("/brokers/leaderBroker")
            return next(one for one in cluster.brokers if broker_id(one) == found["brokerId"])
    raise AssertionError("no broker runs")


def two(one: Strike, other: Strike) -> Strike:
    """Both at the same time; healed in the opposite order."""

    def strike(cluster: ChaosCluster, rng: random.Random) -> Struck:
        first, second = one(cluster, rng), other(cluster, rng)

        def heal() -> None:
            second.heal()
            first.heal()

        return Struck(f"{first.target}, {second.target}", heal)

    return strike


def faults(pause_s: float, etcd_s: float) -> list[Fault]:
    """All kinds but partitions."""
    return [
        Fault("kill -9 of a broker", kill_broker, MISSED_S + 3.0, MISSED_S),
        Fault("kill -9 of the leading broker", kill_leader, MISSED_S + 3.0, MISSED_S),
        Fault("kill -9 of a broker, which starts again at once", kill_broker, 0.0, MISSED_S),
        Fault("kill -9 of a bookie", kill_bookie, 5.0, BOOKIE_MISSED_S, untouched=True),
        Fault("kill -9 of a discovery", kill_discovery, 3.0, 0.0, untouched=True),
        Fault("kill -9 of a follower of etcd", kill_etcd_follower, 5.0, 0.0, untouched=True),
        Fault("kill -9 of the leader of etcd", kill_etcd_leader, 5.0, 0.0, untouched=True),
        Fault(f"SIGSTOP of a broker for {pause_s:g} s", pause_broker, pause_s, MISSED_S),
        Fault(f"SIGSTOP of a bookie for {pause_s:g} s", pause_bookie, pause_s, BOOKIE_MISSED_S, True),
        Fault(f"etcd stopped for {etcd_s:g} s", stop_etcd, etcd_s, 0.0, untouched=True),
    ]


def pairs(pause_s: float) -> list[Fault]:
    """Two at once, which leave a quorum of everything."""
    return [
        Fault("kill -9 of a broker and a bookie", two(kill_broker, kill_bookie), 8.0, BOOKIE_MISSED_S),
        Fault(
            "kill -9 of the leading broker and the leader of etcd",
            two(kill_leader, kill_etcd_leader),
            MISSED_S + 3.0,
            # A new leader of etcd gives every session its time anew.
            MISSED_S + 3.0,
        ),
        Fault(
            f"SIGSTOP of a bookie for {pause_s:g} s, kill -9 of a broker",
            two(pause_bookie, kill_broker),
            pause_s,
            BOOKIE_MISSED_S,
        ),
    ]


def partitions(lasts_s: float) -> list[Fault]:
    """Those that need a network of one's own."""
    return [
        Fault("a broker cut off from etcd", cut_broker_from_etcd, lasts_s, MISSED_S),
        Fault("a broker cut off from a bookie", cut_broker_from_bookie, lasts_s, BOOKIE_MISSED_S, True),
        Fault("two brokers cut off from each other", cut_broker_from_broker, lasts_s, 0.0, untouched=True),
    ]


def _cut(cluster: ChaosCluster, one: str, *others: str) -> Struck:
    cluster.cut(one, *others)

    def heal() -> None:
        cluster.heal()
        time.sleep(LEASE_S)  # who was missed hears of it now, and what follows from that is of this fault

    return Struck(f"{one} - {', '.join(others)}", heal)


def _etcd_killed(member: EtcdServer) -> Struck:
    member.kill()
    return Struck(member.name, member.start)


def _killed(process: MagnetarProcess) -> Struck:
    process.kill()
    return Struck(process.name, process.start)


def _paused(process: MagnetarProcess) -> Struck:
    process.pause()
    return Struck(process.name, partial(_resume, process))


def _resume(process: MagnetarProcess) -> None:
    process.resume()
    process.wait_until_healthy()
