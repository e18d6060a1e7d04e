"""etcd, API server, controllers and scheduler: what knows objects, and refuses wrong ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Final

from tests.kubernetes.certificates import Authority
from tests.kubernetes.node_place import (
    API_ADDRESS,
    COMMAND_SECONDS_MAX,
    NODE,
    NODE_ADDRESS,
    PODS,
    SERVICES,
    NodePlace,
    run,
)
from tests.kubernetes.programs import SOURCES, environment

READY_SECONDS_MAX: Final = 180.0
USERS: Final = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "kube-proxy": "/CN=system:kube-proxy",
    "coredns": "/O=system:masters/CN=coredns",
}
"""Who calls the API server."""
API_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")


class ControlPlane:
    """Started on a place that is there; stopped with it."""

    def __init__(self, place: NodePlace, programs: Path) -> None:
        self.place = place
        self.programs = programs
        self.state = place.directory
        self.environment: Mapping[str, str] = {
            **environment(programs),
            "KUBECONFIG": str(self.state / "kubeconfig/admin"),
            "KUBECACHEDIR": str(self.state / "cache/kubectl"),
            "HELM_CACHE_HOME": str(self.state / "cache/helm"),
            "HELM_CONFIG_HOME": str(self.state / "helm/config"),
            "HELM_DATA_HOME": str(self.state / "helm/data"),
        }
        """Of the node's processes, kubectl and helm."""

    def start(self) -> None:
        """Until the API server answers and the namespace `default` can be used."""
        self._make_certificates()
        self._start_etcd()
        self._start_api_server()
        self.until(lambda: self.kubectl_succeeds("get", "--raw", "/readyz"), "the API server answers")
        self._start_controllers()
        self.until(
            lambda: self.kubectl_succeeds("get", "serviceaccount", "default"),
            "the controllers made the default service account",
        )

    def stop(self) -> None:
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.place.stop(name)

    def kubectl(
        self, *arguments: str, given: str | None = None, seconds_max: float = COMMAND_SECONDS_MAX
    ) -> str:
        """What kubectl prints; it must succeed."""
        command = [*self.place.inside(), str(self.programs / "kubectl"), *arguments]
        return run(command, environment=self.environment, given=given, seconds_max=seconds_max)

    def kubectl_succeeds(self, *arguments: str) -> bool:
        return self.try_kubectl(*arguments).returncode == 0

    def try_kubectl(
        self, *arguments: str, given: str | None = None, seconds_max: float = COMMAND_SECONDS_MAX
    ) -> subprocess.CompletedProcess[str]:
        """As `kubectl`, whatever comes of it."""
        return subprocess.run(
            [*self.place.inside(), str(self.programs / "kubectl"), *arguments],
            env=self.environment,
            input=given or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )

    def until(self, condition: Callable[[], bool], what: str, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Poll; fails at once when one of the node's processes has ended."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            self.place.assert_running()
            assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}"
            time.sleep(0.2)

    def configuration(self, template: str, **values: object) -> str:
        """One of the files in node/config, filled in."""
        text = (SOURCES / "config" / template).read_text()
        return Template(text).substitute({"state": self.state, "node": NODE, "pods": PODS} | values)

    def write_configuration(self, template: str, **values: object) -> Path:
        """The same as a file of the node."""
        path = self.state / template
        path.write_text(self.configuration(template, **values))
        return path

    def _make_certificates(self) -> None:
        authority = Authority(self.state / "pki")
        names = [f"DNS:{name}" for name in ("localhost", *API_NAMES, f"{API_NAMES[-1]}.cluster.local")]
        addresses = [f"IP:{address}" for address in ("127.0.0.1", NODE_ADDRESS, API_ADDRESS)]
        authority.issue("kube-apiserver", "/CN=kube-apiserver", [*addresses, *names])
        authority.key_pair("service-accounts")
        (self.state / "kubeconfig").mkdir()
        for user, subject in USERS.items():
            served = [f"IP:{NODE_ADDRESS}", f"DNS:{NODE}"] if user == "kubelet" else []
            certificate, key = authority.issue(user, subject, served)
            text = self.configuration(
                "kubeconfig.yaml", authority=authority.certificate, certificate=certificate, key=key
            )
            path = self.state / "kubeconfig" / user
            path.touch(0o600)
            path.write_text(text)

    def _start_etcd(self) -> None:
        self._start(
            "etcd",
            f"--data-dir={self.state}/etcd",
            "--unsafe-no-fsync",  # nobody wants this data when the machine has lost its power
            "--log-level=warn",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )

    def _start_api_server(self) -> None:
        pki = self.state / "pki"
        self._start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={NODE_ADDRESS}",
            "--secure-port=6443",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={pki}/kube-apiserver.crt",
            f"--tls-private-key-file={pki}/kube-apiserver.key",
            f"--client-ca-file={pki}/authority.crt",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            f"--kubelet-certificate-authority={pki}/authority.crt",
            "--kubelet-preferred-address-types=InternalIP",  # logs and exec must not look up the node's name
            f"--service-account-key-file={pki}/service-accounts.pub",
            f"--service-account-signing-key-file={pki}/service-accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
        )

    def _start_controllers(self) -> None:
        pki = self.state / "pki"
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.state}/kubeconfig/kube-controller-manager",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki}/service-accounts.key",
            f"--root-ca-file={pki}/authority.crt",
            f"--cluster-signing-cert-file={pki}/authority.crt",
            f"--cluster-signing-key-file={pki}/authority.key",
            "--allocate-node-cidrs",
            f"--cluster-cidr={PODS}",
            "--leader-elect=false",
        )
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self.state}/kubeconfig/kube-scheduler",
            "--leader-elect=false",
        )

    def _start(self, name: str, *arguments: str) -> None:
        self.place.start(name, [str(self.programs / name), *arguments], self.environment)
