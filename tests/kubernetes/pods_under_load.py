"""The workload of `make chaos` over a release of the chart, whose pods are deleted under it.

Runs as `python -m tests.kubernetes.pods_under_load PLAN`; the plan is JSON (`Plan`). All clients go through
discovery, which carries their connections. Prints what it does, and at the end, on one line, what came of it
(`Report`).
"""

from __future__ import annotations

import json
import os
import random
import signal
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
    """Whose pod; the chart's label."""
    crash: bool = False
    """SIGKILL to the pod's process, which the kubelet starts again in its place; else the pod is deleted.

    Where pods run on another machine, the pod is deleted without the time to end in good order.
    """
    command: tuple[str, ...] = ()
    """What is done in place of that."""


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
    lasted_s: float
    """From the strike until all pods were ready again."""


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

    def chosen(self, component: str, rng: random.Random) -> dict[str, Any]:
        """One pod, rather a broker's that serves topics."""
        pods = sorted(self.pods(component), key=_name)
        return rng.choice([pod for pod in pods if _name(pod) in self.used_pods()] or pods)

    def delete(self, pod: dict[str, Any]) -> None:
        """It ends in good order, and is gone when this returns."""
        self._kubectl("delete", "pod", _name(pod), "--wait=true")

    def crash(self, pod: dict[str, Any]) -> None:
        """Kill its process; another one runs in the same pod when this returns."""
        process = _process_of(pod["metadata"]["uid"])
        if process is None:
            self._kubectl("delete", "pod", _name(pod), "--grace-period=0", "--force")
            return
        restarts = _restarts(pod)
        os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while all(_name(one) != _name(pod) or _restarts(one) == restarts for one in self.pods()):
            assert time.monotonic() < deadline, f"{_name(pod)} was not started again"
            time.sleep(0.2)

    def until_ready(self, count: int) -> None:
        """Until so many pods are there, all of them ready and none about to go."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            pods = self.pods()
            if len(pods) == count and all(map(_ready, pods)):
                return
            assert time.monotonic() < deadline, f"not all ready: {[*map(_name, pods)]}"
            time.sleep(0.2)

    def _kubectl(self, *arguments: str) -> str:
        return _run("kubectl", "--namespace", self._plan.namespace, *arguments)


def strike_of(fault: PodFault) -> Strike:
    """For the workload: struck when this returns, healed when all pods are ready again."""

    def strike(cluster: DeployedCluster, rng: random.Random) -> Struck:
        began, count = time.monotonic(), len(cluster.pods())
        target = "the release"
        if fault.command:
            _run(*fault.command)
        else:
            pod = cluster.chosen(fault.component, rng)
            target = _name(pod)
            (cluster.crash if fault.crash else cluster.delete)(pod)

        def heal() -> None:
            cluster.until_ready(count)
            cluster.lasted.append(time.monotonic() - began)

        return Struck(target, heal)

    return strike


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def _process_of(uid: str) -> int | None:
    """Find the process of a pod that runs our command; None where the node is another machine.

    Control groups of pods have their ids in their names, with dashes or with underscores.
    """
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                any(name in (path / "cgroup").read_text() for name in names)
                and b"magnetar" in (path / "cmdline").read_bytes()
            ):
                found.append(int(path.name))
        except OSError:  # it has ended
            continue
    return min(found, default=None)


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
