"""The workload of `make chaos` over a release of the chart, whose pods are deleted under it.

Runs on the node's network with the cluster's names, as `python -m tests.kubernetes.pods_under_load PLAN`; the
plan is JSON (`Plan`). Prints what it does, and at the end, on one line, what came of it (`Report`).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.chaos.chaos import Load, Outcome, run
from tests.chaos.chaos_cluster import NAMESPACE, make_namespaces
from tests.chaos.faults import Fault, Strike, Struck
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

COMPONENT: Final = "app.kubernetes.io/component"
INSTANCE: Final = "app.kubernetes.io/instance"
RESULT: Final = "result: "
READY_SECONDS_MAX: Final = 240.0
COMMAND_SECONDS_MAX: Final = 600.0
IDLE_S_MAX: Final = 90.0
"""A bound for what hangs: on two cores everything of a cluster, its clients and Kubernetes share them."""


@dataclass(frozen=True, slots=True)
class PodFault:
    """One thing that is done to the release under load."""

    name: str
    component: str = ""
    """Whose pod is deleted; the chart's label."""
    grace_s: int | None = None
    """It is killed after so long; None leaves it the time that the chart gives it."""
    command: tuple[str, ...] = ()
    """What is done in place of deleting a pod."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does, and to what."""

    release: str
    namespace: str
    service_url: str
    http_url: str
    directory: str
    seed: int
    topics: int
    library_topics: int
    faults: tuple[PodFault, ...]


@dataclass(slots=True)
class FaultReport:
    """What one fault did; seconds."""

    name: str
    target: str
    publish_p50_s: float
    publish_max_s: float
    library_s: float
    created_s: float
    moved: int
    lasted_s: float


@dataclass(slots=True)
class Report:
    """What came of a run."""

    faults: list[FaultReport] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    confirmed: int = 0
    delivered: int = 0

    @staticmethod
    def of(outcome: Outcome, lasted: Sequence[float]) -> Report:
        faults = []
        for struck, lasted_s in zip(outcome.struck, lasted, strict=True):
            gaps = struck.publish or [0.0]
            faults.append(
                FaultReport(
                    struck.fault,
                    struck.target,
                    gaps[len(gaps) // 2],
                    gaps[-1],
                    struck.library,
                    struck.created,
                    struck.moved,
                    lasted_s,
                )
            )
        return Report(
            faults,
            outcome.violations,
            dict(outcome.counts),
            dict(outcome.refusals),
            sum(counts["confirmed"] for counts in outcome.by_kind.values()),
            sum(counts["delivered"] for counts in outcome.by_kind.values()),
        )


def read_plan(text: str) -> Plan:
    told = json.loads(text)
    faults = tuple(PodFault(**{**one, "command": tuple(one["command"])}) for one in told.pop("faults"))
    return Plan(**told, faults=faults)


def read_report(line: str) -> Report:
    told = json.loads(line.removeprefix(RESULT))
    faults = [FaultReport(**one) for one in told.pop("faults")]
    return Report(faults=faults, **told)


class DeployedCluster:
    """A release as its clients know it: by the address of its discovery, which knows all brokers."""

    def __init__(self, plan: Plan) -> None:
        self.endpoint = Endpoint(plan.service_url, plan.http_url)
        self.directory = Path(plan.directory)
        self.used: set[str] = set()
        self.lasted: list[float] = []
        """Seconds from the strike of each fault until all pods were ready again."""
        self._plan = plan

    @property
    def discoveries(self) -> list[DeployedCluster]:
        return [self]

    @property
    def brokers(self) -> list[DeployedCluster]:
        """Discovery sends what is asked of a broker on to one."""
        return [self]

    def used_pods(self) -> set[str]:
        """Names of brokers' pods: a stateful set's pod has its name in its address."""
        return {(urlsplit(url).hostname or "").partition(".")[0] for url in self.used}

    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """The release's long-running pods, as the API server has them."""
        selector = f"{INSTANCE}={self._plan.release},{COMPONENT}"
        selector += f"={component}" if component else " in (etcd,bookie,broker,discovery)"
        said = self._kubectl("get", "pods", "--selector", selector, "--output", "json")
        found: list[dict[str, Any]] = json.loads(said)["items"]
        return found

    def delete(self, component: str, grace_s: int | None, rng: random.Random) -> str:
        """Delete one pod, rather a broker's that serves topics; returns its name once it is gone."""
        names = sorted(pod["metadata"]["name"] for pod in self.pods(component))
        name = rng.choice([one for one in names if one in self.used_pods()] or names)
        how = [] if grace_s is None else [f"--grace-period={grace_s}"]
        self._kubectl("delete", "pod", name, "--wait=true", *how)
        return name

    def until_ready(self, count: int) -> None:
        """Until so many pods are there, all of them ready and none about to go."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            pods = self.pods()
            if len(pods) == count and all(map(_ready, pods)):
                return
            assert time.monotonic() < deadline, f"{[pod['metadata']['name'] for pod in pods]} are not ready"
            time.sleep(0.2)

    def _kubectl(self, *arguments: str) -> str:
        return _run("kubectl", "--namespace", self._plan.namespace, *arguments)


def strike_of(fault: PodFault) -> Strike:
    """For the workload: struck when this returns, healed when all pods are ready again."""

    def strike(cluster: DeployedCluster, rng: random.Random) -> Struck:
        began, count = time.monotonic(), len(cluster.pods())
        if fault.command:
            _run(*fault.command)
            target = "the release"
        else:
            target = cluster.delete(fault.component, fault.grace_s, rng)

        def heal() -> None:
            cluster.until_ready(count)
            cluster.lasted.append(time.monotonic() - began)

        return Struck(target, heal)

    return strike


def _ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS_MAX)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    plan = read_plan(Path(sys.argv[1]).read_text())
    cluster = DeployedCluster(plan)
    rest = Rest(cluster.endpoint)
    if NAMESPACE not in rest.get(f"/namespaces/{NAMESPACE.partition('/')[0]}"):  # by an earlier run
        make_namespaces(rest)
    load = Load(plan.seed, 0.0, plan.topics, plan.library_topics, idle_s_max=IDLE_S_MAX, quiet=False)
    faults = [Fault(one.name, strike_of(one), 0.0, 0.0) for one in plan.faults]
    outcome = run(cluster, load, faults, lambda text: print(text, flush=True))
    print(RESULT + json.dumps(asdict(Report.of(outcome, cluster.lasted))), flush=True)


if __name__ == "__main__":
    main()
