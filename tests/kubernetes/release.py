"""A release of the chart in a cluster: helm's verbs, each noted with its time, and what is there then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.integration.harness import Endpoint, eventually, page_at
from tests.kubernetes.kube_cluster import KubeCluster
from tests.kubernetes.pods_under_load import (
    COMPONENT,
    INSTANCE,
    RESULT,
    Plan,
    PodFault,
    Report,
    read_report,
)
from tests.kubernetes.port_forward import forwarded
from tests.kubernetes.record import Record

CHART: Final = "helm/magnetar"
SMALL: Final = f"{CHART}/values-small.yaml"
SECURE: Final = f"{CHART}/values-secure.yaml"
RELEASE: Final = "magnetar"
WAIT_S: Final = 300
"""What helm waits for pods; they take seconds on a machine of their own."""
LOAD_SECONDS_MAX: Final = 1_500.0
REACHED_SECONDS_MAX: Final = 60.0


class Release:
    """`magnetar` in the tests' namespace. Commands are run at the root of the repository, as typed."""

    def __init__(
        self,
        cluster: KubeCluster,
        record: Record,
        values: Mapping[str, str],
        directory: Path,
        files: Sequence[str] = (SMALL,),
    ) -> None:
        """`values` are set over those of `files`; `directory` holds what workloads write."""
        self.cluster = cluster
        self.directory = directory
        self.endpoint = Endpoint("", "", RELEASE)
        """How the tests reach discovery's service; set once it is forwarded."""
        self.record = record
        self._files = tuple(files)
        self._values = dict(values)
        """What every install and upgrade of this run sets, beside the values files."""

    # -- helm

    def rendered(self) -> str:
        """What an install would make."""
        return self.run(["helm", "template", RELEASE, CHART, *self._chosen({})], WAIT_S)

    def install(self, title: str) -> None:
        self.helm(title, "install", RELEASE, CHART, *self._chosen({}), *_WAIT)

    def upgrade_command(self, values: Mapping[str, str]) -> list[str]:
        """What `under_load` may be given: helm is on its PATH."""
        return [
            "helm",
            "upgrade",
            RELEASE,
            CHART,
            "--namespace",
            self.cluster.namespace,
            *self._chosen(values),
            *_WAIT,
        ]

    def rollback_command(self, revision: int) -> list[str]:
        """To one that there was."""
        return ["helm", "rollback", RELEASE, str(revision), "--namespace", self.cluster.namespace, *_WAIT]

    def helm(self, title: str, verb: str, *arguments: str) -> str:
        """Run and note it; it must succeed. What it printed is returned."""
        command = ["helm", verb, *arguments, "--namespace", self.cluster.namespace]
        began = time.monotonic()
        try:
            said = self.run(command, WAIT_S + 60.0)
        except (AssertionError, subprocess.TimeoutExpired):
            print(self.describe())
            raise
        self.record.note(title, time.monotonic() - began, command, said)
        return said

    def _chosen(self, values: Mapping[str, str]) -> list[str]:
        settings = [f"{name}={value}" for name, value in {**self._values, **values}.items()]
        files = (part for one in self._files for part in ("--values", one))
        return [*files, *(part for one in settings for part in ("--set", one))]

    # -- what is there

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """In the release's namespace; it must succeed."""
        return self.cluster.kubectl(*arguments, given=given)

    def noted(self, title: str, *arguments: str) -> str:
        """A call of kubectl that belongs into the record."""
        began = time.monotonic()
        said = self.kubectl(*arguments)
        command = ["kubectl", "--namespace", self.cluster.namespace, *arguments]
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

    def service(self) -> tuple[str, list[int]]:
        """Return discovery's service and its ports for clients and for HTTP."""
        services = [
            one for one in self.objects("services", "discovery") if one["spec"]["clusterIP"] != "None"
        ]
        (service,) = services
        ports = {one["name"]: one["port"] for one in service["spec"]["ports"]}
        return str(service["metadata"]["name"]), [ports["pulsar"], ports["http"]]

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Keep discovery's service reachable from here for as long as the block runs."""
        name, ports = self.service()
        kubectl = ["kubectl", "--namespace", self.cluster.namespace, "port-forward", f"service/{name}"]
        with forwarded(kubectl, self.cluster.environment, ports) as (pulsar, http):
            self.endpoint = Endpoint(f"pulsar://127.0.0.1:{pulsar}", f"http://127.0.0.1:{http}", RELEASE)
            ready = f"{self.endpoint.http_url}/readyz"
            eventually(lambda: page_at(ready)[0] == 200, f"{ready} answers", REACHED_SECONDS_MAX)
            yield

    def describe(self) -> str:
        """What somebody wants to know when pods do not get ready."""
        parts = [self.kubectl("get", "pods,pvc,jobs", "--output", "wide")]
        for pod in self.objects("pods"):
            name, statuses = pod["metadata"]["name"], pod["status"].get("containerStatuses", ())
            if not statuses or not all(one["ready"] for one in statuses):
                parts.append(self.kubectl("describe", "pod", name)[-3_000:])
                logs = self.cluster.try_kubectl("logs", name, "--all-containers", "--tail=30")
                parts.append(logs.stdout + logs.stderr)
        return "\n".join(parts)

    # -- traffic

    def under_load(
        self, faults: Sequence[PodFault], *, seed: int, topics: int = 12, library_topics: int = 2
    ) -> Report:
        """The chaos workload in a process of its own, with these faults, one after the other."""
        directory = self.directory / f"load-{seed}"
        directory.mkdir()
        plan = Plan(
            RELEASE,
            self.cluster.namespace,
            self.endpoint.service_url,
            self.endpoint.http_url,
            str(directory),
            seed,
            topics,
            library_topics,
            tuple(faults),
        )
        (directory / "plan.json").write_text(json.dumps(asdict(plan)))
        said = self.run(
            [sys.executable, "-m", "tests.kubernetes.pods_under_load", str(directory / "plan.json")],
            LOAD_SECONDS_MAX,
        )
        report = read_report(next(line for line in said.splitlines() if line.startswith(RESULT)))
        for fault, told in zip(faults, report.faults, strict=False):
            title = f"{fault.name} ({told.target}), until all pods are ready"
            self.record.note(title, told.lasted_s, fault.command)
        return report

    def run(self, command: Sequence[str], seconds_max: float) -> str:
        """What a program of the tests or helm prints; it must succeed."""
        return self.cluster.run(command, seconds_max=seconds_max)


_WAIT: Final = ("--wait", f"--timeout={WAIT_S}s")
