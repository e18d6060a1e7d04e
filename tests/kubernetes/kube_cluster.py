"""The Kubernetes cluster of the chart's tests: the one that KUBECONFIG names, or one made by kind.

How images get in is one setting: KUBERNETES_LOAD is a command that is called with the path of an archive as
`docker save` writes it, for example `ctr --namespace k8s.io images import`. Without it a cluster of
KUBECONFIG pulls what the chart names, and one of kind is given the archive by `kind load image-archive`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.deploy_setup import helm_program

LOAD_VARIABLE: Final = "KUBERNETES_LOAD"
COMMAND_SECONDS_MAX: Final = 60.0
CREATE_SECONDS_MAX: Final = 600.0
"""For kind: the first time it pulls the image of a node."""
LOAD_SECONDS_MAX: Final = 600.0
ROOT: Final = Path(__file__).resolve().parents[2]


class KubeCluster:
    """A cluster that answers, and a namespace of its own in it."""

    def __init__(self, kubeconfig: str, load: Sequence[str]) -> None:
        """`load` is the command that brings an archive of images in; empty where the cluster pulls them."""
        helm = helm_program()
        path = os.pathsep.join([*([str(helm.parent)] if helm else []), os.environ.get("PATH", os.defpath)])
        self.environment: Mapping[str, str] = {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path}
        """For kubectl, helm and everything else that calls the cluster."""
        self.namespace = f"magnetar-test-{uuid.uuid4().hex[:8]}"
        self._load = tuple(load)

    @property
    def loads_images(self) -> bool:
        """Whether images of this tree get into the cluster; else it pulls what the chart names."""
        return bool(self._load)

    def load_images(self, archive: Path) -> None:
        """Bring the images of an archive into the cluster."""
        self.run([*self._load, str(archive)], seconds_max=LOAD_SECONDS_MAX)

    def kubectl(
        self, *arguments: str, given: str | None = None, seconds_max: float = COMMAND_SECONDS_MAX
    ) -> str:
        """Return what kubectl prints, called for the namespace. Raises AssertionError where it fails."""
        return _checked(self.try_kubectl(*arguments, given=given, seconds_max=seconds_max))

    def try_kubectl(
        self, *arguments: str, given: str | None = None, seconds_max: float = COMMAND_SECONDS_MAX
    ) -> subprocess.CompletedProcess[str]:
        """Call kubectl as `kubectl` does and return its outcome, failures included."""
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        return _call(command, self.environment, seconds_max, given)

    def run(self, command: Sequence[str], *, seconds_max: float = COMMAND_SECONDS_MAX) -> str:
        """Return what a command prints that calls the cluster. Raises AssertionError where it fails."""
        return _checked(_call(command, self.environment, seconds_max))

    def until(self, condition: Callable[[], bool], what: str, seconds_max: float) -> None:
        """Poll until `condition` holds; fails with `what` after `seconds_max`."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}"
            time.sleep(0.2)


def why_no_cluster() -> str:
    """Return why there is no cluster for these tests; empty where there is one."""
    if shutil.which("kubectl") is None:
        return "there is no kubectl on the PATH"
    if os.environ.get("KUBECONFIG"):
        answer = _call(["kubectl", "get", "--raw", "/readyz"], os.environ, COMMAND_SECONDS_MAX)
        return "" if answer.returncode == 0 else f"the cluster of KUBECONFIG: {answer.stderr.strip()[-300:]}"
    if shutil.which("kind") is None:
        return "KUBECONFIG names no Kubernetes cluster, and there is no kind on the PATH to make one"
    answer = _call(["kind", "get", "clusters"], os.environ, COMMAND_SECONDS_MAX)
    return "" if answer.returncode == 0 else f"kind: {answer.stderr.strip()[-300:]}"


@contextmanager
def kube_cluster() -> Iterator[KubeCluster]:
    """Yield the cluster with a new namespace, which is deleted at the end with all it holds.

    A cluster made by kind is deleted as a whole. Call it only where `why_no_cluster` has no reason.
    """
    load = shlex.split(os.environ.get(LOAD_VARIABLE, ""))
    if kubeconfig := os.environ.get("KUBECONFIG"):
        with _in_namespace(KubeCluster(kubeconfig, load)) as cluster:
            yield cluster
        return
    name = f"magnetar-test-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as directory:
        made = f"{directory}/kubeconfig"
        try:
            create = ["kind", "create", "cluster", "--name", name, "--kubeconfig", made, "--wait", "180s"]
            _checked(_call(create, os.environ, CREATE_SECONDS_MAX))
            load = load or ["kind", "load", "image-archive", "--name", name]
            with _in_namespace(KubeCluster(made, load)) as cluster:
                yield cluster
        finally:
            _call(["kind", "delete", "cluster", "--name", name], os.environ, CREATE_SECONDS_MAX)


@contextmanager
def _in_namespace(cluster: KubeCluster) -> Iterator[KubeCluster]:
    cluster.kubectl("create", "namespace", cluster.namespace)
    try:
        cluster.until(
            lambda: cluster.try_kubectl("get", "serviceaccount", "default").returncode == 0,
            "the namespace has its default service account",
            COMMAND_SECONDS_MAX,
        )
        yield cluster
    finally:
        cluster.try_kubectl("delete", "namespace", cluster.namespace, "--wait=false")


def _call(
    command: Sequence[str], environment: Mapping[str, str], seconds_max: float, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        input=given or "",
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
    )


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{shlex.join(done.args)}: {done.stdout}{done.stderr}"
    return done.stdout
