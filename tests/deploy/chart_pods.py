"""Pods of the rendered chart as containers: what a kubelet makes of them, as far as one Docker daemon can.

No Kubernetes is needed for it, so it runs where a node cannot: commands, arguments, environment, settings,
users, limits and probes are the chart's; names of pods and services are aliases on a network.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tests.deploy.chart import NAMESPACE, Object, Rendered, labels_of, pod_template, selects
from tests.deploy.chart_secrets import SECRETS
from tests.deploy.containers import Container
from tools.images.docker import Docker, DockerFailed

NODE: Final = "node-1"
INIT_SECONDS_MAX: Final = 120.0
JOB_SECONDS_MAX: Final = 240.0


@dataclass(frozen=True, slots=True)
class Pod:
    """One that runs."""

    name: str
    host: str
    """By which others know it."""
    spec: Object
    container: Container


@dataclass(slots=True)
class ChartPods:
    """The pods of a release, and the network that they share."""

    docker: Docker
    chart: Rendered
    directory: Path
    """For files of ConfigMaps."""
    network: str
    pods: dict[str, Pod] = field(default_factory=dict)

    def start(self, component: str) -> list[Pod]:
        """Start all pods of a component, init containers first, and wait for none of them."""
        workload = self.chart.workload(component)
        spec = pod_template(workload)["spec"]
        services = [
            one
            for one in self.chart.of("Service")
            if selects({"matchLabels": one["spec"]["selector"]}, labels_of(workload))
        ]
        started = []
        for number in range(workload["spec"]["replicas"]):
            name = f"{workload['metadata']['name']}-{number}"
            aliases = [name]
            for service in services:
                of_service = f"{service['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
                aliases += [f"{name}.{of_service}", of_service, service["metadata"]["name"]]
            for container in spec.get("initContainers", ()):
                self._run(spec, container, name)
            (container,) = spec["containers"]
            whole = f"{self.network}-{name}"
            names = [part for alias in aliases for part in ("--network-alias", alias)]
            pod = Pod(name, aliases[min(1, len(aliases) - 1)], spec, Container(self.docker, whole))
            self.pods[name] = pod
            self.docker.run("run", "--detach", "--name", whole, *names, *self._options(spec, container, name))
            started.append(pod)
        return started

    def of(self, component: str) -> list[Pod]:
        prefix = self.chart.workload(component)["metadata"]["name"]
        return [pod for name, pod in self.pods.items() if name.rpartition("-")[0] == prefix]

    def run_to_its_end(self, pod: Object) -> str:
        """What the one container of a pod prints that ends by itself. Raises DockerFailed if it fails."""
        (container,) = pod["spec"]["containers"]
        return self._run(pod["spec"], container, pod["metadata"]["name"], JOB_SECONDS_MAX)

    def address(self, pod: Pod, path: str, port: str) -> str:
        """The URL of a page as a probe names it."""
        (container,) = pod.spec["containers"]
        (number,) = (each["containerPort"] for each in container["ports"] if each["name"] == port)
        return f"http://{pod.host}:{number}{path}"

    def ask(self, urls: Sequence[str]) -> None:
        """`GET` all of them, from a container beside the pods. Raises DockerFailed unless all are 200."""
        code = "import sys, urllib.request as r; [r.urlopen(url, timeout=20).read() for url in sys.argv[1:]]"
        image = self.chart.container("broker")["image"]
        self.docker.run(
            *("run", "--rm", "--network", self.network, "--entrypoint", "python3", image, "-c", code, *urls),
            merged=True,
        )

    def remove(self) -> None:
        for pod in self.pods.values():
            with contextlib.suppress(DockerFailed):
                self.docker.run("rm", "--force", "--volumes", pod.container.name)
        self.docker.run("network", "rm", self.network)

    def _run(self, spec: Object, container: Object, name: str, timeout: float = INIT_SECONDS_MAX) -> str:
        options = self._options(spec, container, name)
        return self.docker.run("run", "--rm", *options, merged=True, timeout=timeout)

    def _options(self, spec: Object, container: Object, pod_name: str) -> list[str]:
        """From the network to the last argument of the command."""
        context, own = spec["securityContext"], container["securityContext"]
        assert own["readOnlyRootFilesystem"]
        user = f"{context['runAsUser']}:{context['runAsGroup']}"
        found = ["--network", self.network, "--user", user, "--read-only"]
        found += [part for each in own["capabilities"]["drop"] for part in ("--cap-drop", each)]
        found += [
            "--security-opt",
            "no-new-privileges",
            "--memory",
            _bytes(container["resources"]["limits"]["memory"]),
        ]
        environment = environment_of(container, pod_name)
        for key, value in environment.items():
            found += ["--env", f"{key}={value}"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            found += self._mount(mount, volumes.get(mount["name"]), user)
        command = [_expanded(each, environment) for each in container.get("command", ())]
        arguments = [_expanded(each, environment) for each in container.get("args", ())]
        entry = ["--entrypoint", command[0]] if command else []
        return [*found, *entry, container["image"], *command[1:], *arguments]

    def _mount(self, mount: Object, volume: Object | None, user: str) -> list[str]:
        if volume is not None and "configMap" in volume:
            directory = self.directory / volume["configMap"]["name"]
            if not directory.exists():
                (found,) = (
                    one for one in self.chart.of("ConfigMap") if one["metadata"]["name"] == directory.name
                )
                directory.mkdir(mode=0o755)
                for name, text in found["data"].items():
                    (directory / name).write_text(text)
                    (directory / name).chmod(0o644)
            return ["--volume", f"{directory}:{mount['mountPath']}:ro"]
        if volume is not None and "secret" in volume:
            return ["--volume", f"{self._secret(volume['secret'])}:{mount['mountPath']}:ro"]
        owner, _, group = user.partition(":")
        # What a claim gives with fsGroup, and what an empty directory is: writable by the group.
        return ["--tmpfs", f"{mount['mountPath']}:uid={owner},gid={group},mode=0770"]

    def _secret(self, secret: Object) -> Path:
        """Return the directory of a secret, which `chart_secrets` wrote; with items a copy of these alone."""
        whole = self.directory / SECRETS / str(secret["secretName"])
        keys = [str(item["key"]) for item in secret.get("items", ())]
        if not keys:
            return whole
        part = whole.with_name(f"{whole.name}-{'-'.join(keys)}")
        part.mkdir(exist_ok=True)
        for key in keys:
            shutil.copy(whole / key, part / key)
        return part


def environment_of(container: Object, pod_name: str) -> dict[str, str]:
    """As the kubelet makes it, with what a pod is told about itself."""
    told: dict[str, str] = {}
    of_pod = {"metadata.name": pod_name, "spec.nodeName": NODE}
    for entry in container.get("env", ()):
        source: Any = entry.get("valueFrom")
        text = entry["value"] if source is None else of_pod[source["fieldRef"]["fieldPath"]]
        told[entry["name"]] = _expanded(text, told)
    return told


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """With $(NAME) replaced; what is not known stays."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), text)


def _bytes(quantity: str) -> str:
    """As Docker writes it."""
    return quantity.replace("Mi", "m").replace("Gi", "g")


@contextlib.contextmanager
def chart_pods(docker: Docker, chart: Rendered, directory: Path) -> Iterator[ChartPods]:
    """A network for the pods of a chart; all of it is gone afterwards."""
    network = f"magnetar-chart-{uuid4().hex[:8]}"
    docker.run("network", "create", network)
    found = ChartPods(docker, chart, directory, network)
    try:
        yield found
    finally:
        found.remove()
