"""A real single-node Kubernetes: one at a time on a machine, gone at the end whatever happens.

    with SingleNode.running(namespace="magnetar") as node:
        node.plane.kubectl("get", "nodes")

Only one, because pods' control groups and some kernel settings are the machine's. What a killed run left is
cleared by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from tests.integration.harness import ROOT, temporary_directory
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.node_place import NodePlace, clear, pods_of_others
from tests.kubernetes.programs import programs
from tests.kubernetes.worker import Worker

_LOCK: Final = Path(tempfile.gettempdir()) / "magnetar-kubernetes-node"


class SingleNode:
    """A control plane and, unless it is told otherwise, a worker."""

    def __init__(self, plane: ControlPlane, worker: Worker | None) -> None:
        self.plane = plane
        self._worker = worker

    @classmethod
    @contextmanager
    def running(cls, *, namespace: str = "default", only_control_plane: bool = False) -> Iterator[Self]:
        """One that is ready; `why_no_node` or `why_no_control_plane` have said that there can be one.

        The directory with its logs stays when the block fails. Raises OSError while another one runs.
        """
        built = programs()
        assert built is not None, "make kubernetes builds the programs"
        with _only_one() as directory:
            assert not pods_of_others(), "another kubelet runs pods on this machine"
            place = NodePlace(directory)
            plane = ControlPlane(place, built)
            worker = None if only_control_plane else Worker(plane)
            try:
                place.make()
                plane.start()
                if worker is not None:
                    worker.start(namespace)
                yield cls(plane, worker)
            finally:
                try:
                    if worker is not None:
                        worker.stop()
                    plane.stop()
                finally:
                    place.clear()

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "it has a control plane only"
        return self._worker

    @property
    def directory(self) -> Path:
        return self.plane.state

    def start_inside(self, name: str, command: list[str]) -> None:
        """Start a program of these tests on the node's network; ended with the node."""
        environment = {**self.plane.environment, "PYTHONPATH": str(ROOT)}
        self.plane.place.start(name, command, environment)


@contextmanager
def _only_one() -> Iterator[Path]:
    """A new directory, named in a file that is locked; what a former run left in its own is cleared."""
    with open(os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError("another Kubernetes node of these tests runs on this machine") from None
        former, directory = lock.read().strip(), temporary_directory()
        if former and Path(former).parent == directory.parent:
            clear(Path(former))
            shutil.rmtree(former, ignore_errors=True)
        lock.seek(0)
        lock.truncate()
        lock.write(str(directory))
        lock.flush()
        yield directory
        shutil.rmtree(directory, ignore_errors=True)
        lock.seek(0)
        lock.truncate()
