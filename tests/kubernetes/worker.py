"""What makes a control plane a node that runs pods: containerd, kubelet, proxy, name server and volumes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.node_place import (
    DNS_ADDRESS,
    NODE,
    NODE_ADDRESS,
    PODS_OF_NODE,
    note_machine_settings,
    restore_machine_settings,
    run,
)
from tests.kubernetes.programs import CNI_PLUGINS, PAUSE_IMAGE

VOLUMES: Final = 12
VOLUME_CAPACITY: Final = "10Gi"
IMPORT_SECONDS_MAX: Final = 600.0
DOMAINS: Final = ("svc.cluster.local", "cluster.local")


class Worker:
    """Started on a control plane that answers. Claims of volumes are bound to directories of the node."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._place = plane.place
        self._state = plane.state

    def start(self, namespace: str) -> None:
        """Until the node is Ready. The names of services in `namespace` need no domain, as in its pods."""
        self.write_files(namespace)
        self._start_containerd()
        self.import_image(self._plane.programs / "images/pause.tar")
        note_machine_settings(self._state)
        self._start_kubelet()
        self._plane.until(self._ready, "the node is Ready")
        self._start_names()
        self._make_volumes()

    def stop(self) -> None:
        """Pods are not told: whoever wants them to end in good order deletes them before."""
        for name in ("coredns", "kubelet", "kube-proxy", "containerd"):
            self._place.stop(name)
        restore_machine_settings(self._state)

    def write_files(self, namespace: str) -> None:
        """The configuration of everything here."""
        for name in ("run", "cni", "manifests", "pod-logs", "volumes"):
            (self._state / name).mkdir()
        search = " ".join((f"{namespace}.{DOMAINS[0]}", *DOMAINS))
        names = f"nameserver {NODE_ADDRESS}\nsearch {search}\noptions ndots:5\n"
        (self._state / "resolv.conf").write_text(names)
        (self._state / "resolv-node.conf").write_text(f"nameserver {NODE_ADDRESS}\n")
        write = self._plane.write_configuration
        write("containerd.toml", pause_image=PAUSE_IMAGE, cni_plugins=CNI_PLUGINS)
        network = write("pod-network.conflist", pods_of_node=PODS_OF_NODE)
        network.rename(self._state / "cni" / network.name)
        write("kubelet.yaml", dns_address=DNS_ADDRESS)
        write("kube-proxy.yaml")
        write("Corefile", node_address=NODE_ADDRESS)

    def import_image(self, archive: Path) -> None:
        """Take what `docker save` wrote."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """What containerd's own command prints about the images and containers of pods."""
        socket = str(self._state / "run/containerd.sock")
        command = [*self._place.inside(), "ctr", "--address", socket, "--namespace", "k8s.io", *arguments]
        return run(command, environment=self._plane.environment, seconds_max=IMPORT_SECONDS_MAX)

    def _start_containerd(self) -> None:
        command = ["containerd", "--config", f"{self._state}/containerd.toml"]
        self._place.start("containerd", command, self._plane.environment)
        self._plane.until(self._containerd_answers, "containerd answers")

    def _containerd_answers(self) -> bool:
        try:
            self.ctr("version")
        except AssertionError:
            return False
        return True

    def _start_kubelet(self) -> None:
        self._start(
            "kubelet",
            f"--config={self._state}/kubelet.yaml",
            f"--kubeconfig={self._state}/kubeconfig/kubelet",
            f"--hostname-override={NODE}",
            f"--node-ip={NODE_ADDRESS}",
            f"--root-dir={self._state}/kubelet",
            f"--cert-dir={self._state}/kubelet/pki",
        )
        self._start("kube-proxy", f"--config={self._state}/kube-proxy.yaml")

    def _ready(self) -> bool:
        condition = "condition=Ready"
        return self._plane.kubectl_succeeds("wait", f"--for={condition}", f"node/{NODE}", "--timeout=1s")

    def _start_names(self) -> None:
        self._start("coredns", "-conf", f"{self._state}/Corefile")
        self._apply(
            [
                self._plane.configuration(
                    "dns-service.yaml", dns_address=DNS_ADDRESS, node_address=NODE_ADDRESS
                )
            ]
        )

    def _make_volumes(self) -> None:
        objects = [self._plane.configuration("storage-class.yaml")]
        for number in range(VOLUMES):
            (self._state / "volumes" / str(number)).mkdir()
            objects.append(self._plane.configuration("volume.yaml", number=number, capacity=VOLUME_CAPACITY))
        self._apply(objects)

    def _apply(self, objects: Iterable[str]) -> None:
        self._plane.kubectl("apply", "-f", "-", given="\n---\n".join(objects))

    def _start(self, name: str, *arguments: str) -> None:
        self._place.start(name, [str(self._plane.programs / name), *arguments], self._plane.environment)
