"""Where a node runs: a network namespace, and the processes in it, all known by one directory.

Nothing of the machine's own network is touched, and nothing gets out of the namespace. What a node leaves
behind when whoever started it was killed is found by these two, and ended: processes by the namespace that
they are in, mounts and links by the directory that they name.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.integration.harness import gone, launched, spawn
from tests.kubernetes.traces import forget

NODE: Final = "node1"
NODE_ADDRESS: Final = "10.99.0.1"
NODE_SUBNET: Final = "10.99.0.0/24"
PODS: Final = "10.98.0.0/16"
PODS_OF_NODE: Final = "10.98.0.0/24"
SERVICES: Final = "10.97.0.0/16"
API_ADDRESS: Final = "10.97.0.1"
DNS_ADDRESS: Final = "10.97.0.10"

STOP_SECONDS_MAX: Final = 20.0
COMMAND_SECONDS_MAX: Final = 60.0
LOG_TAIL_BYTES: Final = 6_000
CGROUPS: Final = Path("/sys/fs/cgroup")
POD_CGROUP: Final = "kubepods"
MACHINE_SETTINGS: Final = (
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
)
"""The kubelet sets them, for the whole machine."""


class NodePlace:
    """The namespace `magnetar-node-<pid>` and a directory; made by `make`, gone after `clear`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace = f"magnetar-node-{os.getpid()}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def make(self) -> None:
        """A bridge carries the node's address; pods get a bridge of their own from the CNI plugin."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log").mkdir()
        (self.directory / "namespace").write_text(self.namespace)
        run(["ip", "netns", "add", self.namespace])
        for command in (
            "ip link set lo up",
            "ip link add node0 type bridge",
            f"ip addr add {NODE_ADDRESS}/{NODE_SUBNET.partition('/')[2]} dev node0",
            "ip link set node0 up",
            f"ip route add default via {NODE_ADDRESS} dev node0",  # services need a route; nothing leaves
            "sysctl -qw net.ipv4.ip_forward=1",
        ):
            run([*self.inside(), *command.split()])
        with contextlib.suppress(AssertionError):  # not where bridges do not ask iptables at all
            run([*self.inside(), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"])

    def inside(self, *, names: bool = False) -> list[str]:
        """What goes before a command so that it runs on the node, with the cluster's names if asked for.

        `nsenter` and not `ip netns exec`, which hides the control groups.
        """
        prefix = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        if names:
            resolver = str(self.directory / "resolv.conf")
            script = f'mount --bind {shlex.quote(resolver)} /etc/resolv.conf && exec "$@"'
            prefix += ["unshare", "--mount", "sh", "-c", script, "sh"]
        return prefix

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a process on the node; it is killed when this one ends."""
        log = NodeLog(self.directory / "log" / f"{name}.log")
        launched[log.log_path] = log
        with log.log_path.open("ab") as file:
            self._processes[name] = spawn(
                [*self.inside(), *command], file, self.directory, environment=environment
            )

    def assert_running(self) -> None:
        """Fails with the log of what has ended by itself."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = NodeLog(self.directory / "log" / f"{name}.log")
                raise AssertionError(f"{name} ended with status {process.returncode}\n{log.log_tail()}")

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL when that is not heard."""
        process = self._processes.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def clear(self) -> None:
        """Kill everything that is on the node, and take namespace, mounts and settings back."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()
        clear(self.directory)


class NodeLog:
    """What one of the node's processes printed."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path

    def log_tail(self) -> str:
        """The end of it."""
        text = self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"--- end of {self.log_path}\n{text}"


def clear(directory: Path) -> None:
    """End and undo whatever the node of this directory has left, whoever started it. The directory stays."""
    restore_machine_settings(directory)
    noted = directory / "namespace"
    namespace = Path("/run/netns", noted.read_text()) if noted.exists() else None
    if namespace is not None:
        _kill(_processes_in(namespace))
    for mount in sorted(_mounts_under(directory), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, timeout=COMMAND_SECONDS_MAX)
    if namespace is not None and namespace.exists():
        run(["ip", "netns", "delete", namespace.name])
    for controller in _pod_cgroups():
        for group, _, _ in os.walk(controller, topdown=False):
            with contextlib.suppress(OSError):  # somebody's still
                os.rmdir(group)
    forget(directory)


def pods_of_others() -> list[int]:
    """Processes of pods on this machine: there must be none when a node starts."""
    found = []
    for controller in _pod_cgroups():
        for path in controller.glob("**/cgroup.procs"):
            found += [int(pid) for pid in path.read_text().split()]
    return sorted(set(found))


def note_machine_settings(directory: Path) -> None:
    """Before a kubelet starts."""
    found = [f"{name}={run(['sysctl', '-n', name]).strip()}" for name in MACHINE_SETTINGS]
    (directory / "sysctl.before").write_text("\n".join(found) + "\n")


def restore_machine_settings(directory: Path) -> None:
    """After it has ended."""
    if (noted := directory / "sysctl.before").exists():
        run(["sysctl", "-q", "-p", str(noted)])


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    directory: Path | None = None,
    seconds_max: float = COMMAND_SECONDS_MAX,
) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=directory,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
    )
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def _pod_cgroups() -> list[Path]:
    """One for each controller, or the only one (cgroup v2)."""
    return [path for pattern in (POD_CGROUP, f"*/{POD_CGROUP}") for path in CGROUPS.glob(pattern)]


def _processes_in(namespace: Path) -> list[int]:
    """Those on the node's network, and their descendants: pods have networks of their own."""
    try:
        network = namespace.stat().st_ino
    except FileNotFoundError:
        return []
    children: dict[int, list[int]] = {}
    waiting, found = [], []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
            if (path / "ns/net").stat().st_ino == network:
                waiting.append(int(path.name))
        except OSError:  # it has ended, or is nobody's but the kernel's
            continue
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.append(pid)
            waiting += children.get(pid, [])
    return found


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _mounts_under(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines]
    return [point for point in points if point.startswith(f"{directory}/")]
