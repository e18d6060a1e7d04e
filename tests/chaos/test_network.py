"""What is cut is cut, in both directions and for connections that are there; what is healed is whole."""

from __future__ import annotations

import subprocess
import sys

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
line = socket.create_connection((sys.argv[1], 7), 10)
for _ in sys.stdin:
    line.settimeout(float(sys.argv[2]))
    try:
        line.sendall(b"x")
        print("heard" if line.recv(1) else "ended", flush=True)
    except TimeoutError:
        print("silent", flush=True)
"""


def python(place: Place, code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [*place.prefix, sys.executable, "-u", "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asks(asker: subprocess.Popen[str]) -> str:
    assert asker.stdin is not None
    assert asker.stdout is not None
    asker.stdin.write("\n")
    asker.stdin.flush()
    return asker.stdout.readline().strip()


def test_what_is_cut_is_silent_until_it_is_healed_and_others_hear_each_other() -> None:
    if reason := why_impossible():
        pytest.skip(reason)
    with Network.made() as network:
        server = python(network.place("server"), ECHO, network.place("server").address)
        with server:
            address = network.place("server").address
            eventually_listens(network, address)
            one = python(network.place("one"), ASK, address, str(SECONDS))
            assert asks(one) == "heard"
            network.cut("server", "one")
            assert asks(one) == "silent", "though the connection was there"
            network.heal()
            assert asks(one) == "heard"
            one.kill()
            one.communicate()
            server.kill()
            server.communicate()


def eventually_listens(network: Network, address: str) -> None:
    for _ in range(100):
        other = python(network.place("other"), ASK, address, "10")
        answer = asks(other) if other.poll() is None else ""
        other.kill()
        other.communicate()
        if answer == "heard":
            return
    raise AssertionError("the server does not listen")
