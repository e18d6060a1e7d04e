"""Network namespaces: each process at an address of its own, any two of which can be cut off from each other.

What is cut is lost silently, in both directions, also for connections that are there. Needs root and Linux.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

from tests.integration.harness import Place


def why_impossible() -> str:
    """Why there can be no namespaces here; "" where there can."""
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip` (iproute2)"
    name = f"magnetar-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces need root: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


class Network:
    """A bridge, and a namespace for each name. This process reaches all of them, whatever is cut."""

    def __init__(self) -> None:
        self._number = os.getpid()
        self._bridge = f"mgt{self._number}"
        self._subnet = f"10.{64 + (self._number >> 8) % 64}.{self._number % 256}"
        self._places: dict[str, Place] = {}
        self._cut: list[tuple[str, str]] = []

    @staticmethod
    @contextlib.contextmanager
    def made() -> Iterator[Network]:
        """Gone at the end, after the processes in it."""
        network = Network()
        _ip("link", "add", network._bridge, "type", "bridge")
        try:
            _ip("addr", "add", f"{network._subnet}.1/24", "dev", network._bridge)
            _ip("link", "set", network._bridge, "up")
            with _let_through(network._bridge):
                yield network
        finally:
            for name in network._places:
                _ip("netns", "del", network._namespace(name))
            _ip("link", "del", network._bridge)

    def place(self, name: str) -> Place:
        """Where the process of that name runs; made the first time."""
        if name not in self._places:
            number = len(self._places) + 2
            namespace, outside = self._namespace(name), f"{self._bridge}-{number}"
            address = f"{self._subnet}.{number}"
            self._places[name] = Place(address, ("ip", "netns", "exec", namespace))
            _ip("netns", "add", namespace)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", outside, "master", self._bridge, "up")
            for arguments in (
                ("link", "set", "lo", "up"),
                ("addr", "add", f"{address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
            ):
                _ip("-netns", namespace, *arguments)
        return self._places[name]

    def cut(self, one: str, *others: str) -> None:
        """Nothing gets from the one to the others or back, until `heal`."""
        for other in others:
            for here, there in ((one, other), (other, one)):
                self._route("add", here, there)
                self._cut.append((here, there))

    def heal(self) -> None:
        """Everything gets everywhere."""
        while self._cut:
            self._route("del", *self._cut.pop())

    def _route(self, verb: str, here: str, there: str) -> None:
        address = self._places[there].address
        _ip("-netns", self._namespace(here), "route", verb, "blackhole", f"{address}/32")

    def _namespace(self, name: str) -> str:
        return f"magnetar-{self._number}-{name}"


@contextlib.contextmanager
def _let_through(bridge: str) -> Iterator[None]:
    """Let a bridge through where bridges ask iptables, whose policy a Docker daemon sets to drop."""
    iptables = shutil.which("iptables")
    if iptables is None:
        yield
        return
    rule = ("FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT")
    subprocess.run([iptables, "--wait", "--insert", *rule], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([iptables, "--wait", "--delete", *rule], check=True, capture_output=True)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
