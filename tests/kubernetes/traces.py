"""What a node leaves at places of the machine that no configuration moves elsewhere.

containerd's shims, runc, the CNI plugins' library and the kubelet note their containers there. Who is told to
stop a container takes its notes away, but a node is stopped with its pods running. Others may use the same
places: what goes is known by the node's directory, which it names, or by the ids of containers in that;
directories go once they are empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from pathlib import Path
from typing import Final

BUNDLES: Final = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
"""Below a node's directory: one for each container that was not told to stop."""
SHIM_SOCKETS: Final = Path("/run/containerd/s")
RUNC_STATE: Final = Path("/run/containerd/runc/k8s.io")
CNI_RESULTS: Final = Path("/var/lib/cni/results")
CONTAINER_LOGS: Final = Path("/var/log/containers")
"""Where every kubelet makes links to the logs of containers, whatever it is configured to."""
KUBELET_SOCKET: Final = Path("/var/lib/kubelet/device-plugins/kubelet.sock")


def forget(directory: Path) -> None:
    """Take away what the node of this directory left, once nothing of it runs any more."""
    for bundle in (directory / BUNDLES).glob("*"):
        address = bundle / "address"
        if address.exists():
            Path(address.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)
        shutil.rmtree(RUNC_STATE / bundle.name, ignore_errors=True)
    for result in CNI_RESULTS.glob("*"):
        if f"{directory}/" in result.read_text():  # where the network namespace of the pod was
            result.unlink()
    for link in CONTAINER_LOGS.glob("*"):
        if link.is_symlink() and os.readlink(link).startswith(f"{directory}/"):
            link.unlink()
    if KUBELET_SOCKET.exists() and nobody_listens(KUBELET_SOCKET):
        KUBELET_SOCKET.unlink()
    for left, parents in (
        (RUNC_STATE, 2), (SHIM_SOCKETS, 1), (CNI_RESULTS, 1), (CONTAINER_LOGS, 0), (KUBELET_SOCKET.parent, 1)
    ):  # fmt: skip
        for path in (left, *left.parents[:parents]):
            with contextlib.suppress(OSError):  # somebody's still, or not there
                path.rmdir()


def nobody_listens(path: Path) -> bool:
    """Whether a socket is what a process left that has ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False
