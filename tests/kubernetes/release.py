"""A release of the chart on a node: helm's verbs, each noted with its time, and what is there then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.integration.harness import Endpoint
from tests.kubernetes.node_place import run
from tests.kubernetes.pods_under_load import (
    COMPONENT,
    INSTANCE,
    RESULT,
    Plan,
    PodFault,
    Report,
    read_report,
)
from tests.kubernetes.record import Record
from tests.kubernetes.single_node import SingleNode

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = "helm/magnetar"
SMALL: Final = f"{CHART}/values-small.yaml"
RELEASE: Final = "magnetar"
NAMESPACE: Final = "magnetar"
WAIT_S: Final = 300
"""What helm waits for pods; they take seconds on a machine of their own."""
LOAD_SECONDS_MAX: Final = 1_500.0


class Release:
    """`magnetar` in the namespace of that name. Commands are run at the root of the repository, as typed."""

    def __init__(self, node: SingleNode, helm: Path, record: Record, values: Mapping[str, str]) -> None:
        self.node = node
        self.record = record
        self._helm = helm
        self._values = dict(values)
        """What every install and upgrade of this run sets, beside the values file."""

    # -- helm

    def rendered(self) -> str:
        """What an install would make."""
        return self._run(["helm", "template", RELEASE, CHART, *self._chosen({})], WAIT_S)

    def install(self, title: str) -> None:
        self.helm(title, "install", RELEASE, CHART, *self._chosen({}), *_WAIT)

    def upgrade_command(self, values: Mapping[str, str]) -> list[str]:
        """What `under_load` may be given: helm is on its PATH."""
        return ["helm", "upgrade", RELEASE, CHART, "--namespace", NAMESPACE, *self._chosen(values), *_WAIT]

    def rollback_command(self, revision: int) -> list[str]:
        """To one that there was."""
        return ["helm", "rollback", RELEASE, str(revision), "--namespace", NAMESPACE, *_WAIT]

    def helm(self, title: str, verb: str, *arguments: str) -> str:
        """Run and note it; it must succeed. What it printed is returned."""
        command = ["helm", verb, *arguments, "--namespace", NAMESPACE]
        began = time.monotonic()
        try:
            said = self._run(command, WAIT_S + 60.0)
        except (AssertionError, subprocess.TimeoutExpired):
            print(self.describe())
            raise
        self.record.note(title, time.monotonic() - began, command, said)
        return said

    def _chosen(self, values: Mapping[str, str]) -> list[str]:
        settings = [f"{name}={value}" for name, value in {**self._values, **values}.items()]
        return ["--values", SMALL, *(part for one in settings for part in ("--set", one))]

    # -- what is there

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """In the release's namespace; it must succeed."""
        return self.node.plane.kubectl("--namespace", NAMESPACE, *arguments, given=given)

    def noted(self, title: str, *arguments: str) -> str:
        """A call of kubectl that belongs into the record."""
        began = time.monotonic()
        said = self.kubectl(*arguments)
        command = ["kubectl", "--namespace", NAMESPACE, *arguments]
        self.record.note(title, time.monotonic() - began, command, said)
        return said

    def objects(self, kind: str, component: str = "") -> list[dict[str, Any]]:
        """The release's, as the API server has them."""
        selector = f"{INSTANCE}={RELEASE}" + (f",{COMPONENT}={component}" if component else "")
        said = self.kubectl("get", kind, "--selector", selector, "--output", "json")
        found: list[dict[str, Any]] = json.loads(said)["items"]
        return found

    def names(self, kind: str, component: str = "") -> list[str]:
        return [str(one["metadata"]["name"]) for one in self.objects(kind, component)]

    def the_only(self, kind: str, component: str) -> str:
        """The name of the one object of this kind that the component has."""
        (name,) = self.names(kind, component)
        return name

    def service_address(self) -> Endpoint:
        """How clients reach the cluster: discovery's service, by the address that Kubernetes gave it."""
        services = [
            one for one in self.objects("services", "discovery") if one["spec"]["clusterIP"] != "None"
        ]
        (service,) = services
        ports = {one["name"]: one["port"] for one in service["spec"]["ports"]}
        host = service["spec"]["clusterIP"]
        return Endpoint(f"pulsar://{host}:{ports['pulsar']}", f"http://{host}:{ports['http']}", RELEASE)

    def describe(self) -> str:
        """What somebody wants to know when pods do not get ready."""
        parts = [self.kubectl("get", "pods,pvc,jobs", "--output", "wide")]
        for pod in self.objects("pods"):
            name, statuses = pod["metadata"]["name"], pod["status"].get("containerStatuses", ())
            if not statuses or not all(one["ready"] for one in statuses):
                parts.append(self.kubectl("describe", "pod", name)[-3_000:])
                logs = self.node.plane.try_kubectl(
                    "--namespace", NAMESPACE, "logs", name, "--all-containers", "--tail=30"
                )
                parts.append(logs.stdout + logs.stderr)
        return "\n".join(parts)

    # -- traffic

    def under_load(
        self, faults: Sequence[PodFault], *, seed: int, topics: int = 12, library_topics: int = 2
    ) -> Report:
        """The chaos workload in a process on the node, with these faults, one after the other."""
        endpoint = self.service_address()
        directory = self.node.directory / f"load-{seed}"
        directory.mkdir()
        plan = Plan(
            RELEASE,
            NAMESPACE,
            endpoint.service_url,
            endpoint.http_url,
            str(directory),
            seed,
            topics,
            library_topics,
            tuple(faults),
        )
        (directory / "plan.json").write_text(json.dumps(asdict(plan)))
        said = self.inside(
            [sys.executable, "-m", "tests.kubernetes.pods_under_load", str(directory / "plan.json")],
            LOAD_SECONDS_MAX,
        )
        report = read_report(next(line for line in said.splitlines() if line.startswith(RESULT)))
        for fault, told in zip(faults, report.faults, strict=False):
            title = f"{fault.name} ({told.target}), until all pods are ready"
            self.record.note(title, told.lasted_s, fault.command)
        return report

    def inside(self, command: Sequence[str], seconds_max: float) -> str:
        """What a program of the tests prints that runs on the node and knows the cluster's names."""
        place = self.node.plane.place
        return run(
            [*place.inside(names=True), *command],
            environment=self.environment,
            directory=ROOT,
            seconds_max=seconds_max,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """With kubectl and helm on the PATH."""
        found = self.node.plane.environment
        return {**found, "PATH": f"{self._helm.parent}:{found['PATH']}", "PYTHONPATH": str(ROOT)}

    def _run(self, command: Sequence[str], seconds_max: float) -> str:
        return run(
            [*self.node.plane.place.inside(), *command],
            environment=self.environment,
            directory=ROOT,
            seconds_max=seconds_max,
        )


_WAIT: Final = ("--wait", f"--timeout={WAIT_S}s")
