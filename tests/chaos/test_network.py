"""What is cut is cut, in both directions and for connections that are there; what is healed is whole."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.chaos.network import Network, why_impossible
from tests.integration.harness import Place

SECONDS = 0.5
ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
while True:
    line, _ = server.accept()
    while data := line.recv(100):
        line.sendall(data)
"""
ASK = """
import socket, sys
line = socket.create_connection((sys.argv[1], 7), 5)
for _ in sys.stdin:
    line.settimeout(float(sys.argv[2]))
    try:
        line.sendall(b"x")
        print("heard" if line.recv(1) else "ended", flush=True)
    except TimeoutError:
        print("silent", flush=True)
"""


@contextlib.contextmanager
def running(place: Place, code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of Python, killed at the end whatever happened: a failed test waits for none."""
    command = [*place.prefix, sys.executable, "-u", "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def asks(asker: subprocess.Popen[str]) -> str:
    assert asker.stdin is not None
    assert asker.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it could not connect
        asker.stdin.write("\n")
        asker.stdin.flush()
    return asker.stdout.readline().strip()


def test_cut_peer_is_silent_until_healed_and_others_stay_connected() -> None:
    if reason := why_impossible():
        pytest.skip(reason)
    with Network.made() as network:
        address = network.place("server").address
        with running(network.place("server"), ECHO, address):
            eventually_listens(network, address)
            with running(network.place("one"), ASK, address, str(SECONDS)) as one:
                assert asks(one) == "heard"
                network.cut("server", "one")
                assert asks(one) == "silent", "though the connection was there"
                network.heal()
                assert asks(one) == "heard"


def eventually_listens(network: Network, address: str) -> None:
    for _ in range(20):
        with running(network.place("other"), ASK, address, "10") as other:
            if asks(other) == "heard":
                return
    raise AssertionError("the server does not listen")
