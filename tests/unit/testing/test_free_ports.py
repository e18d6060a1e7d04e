"""A port that was given to a process is given to no other, also while no process listens there."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing

from magnetar.testing.free_ports import PORT_MIN, first_outgoing_port, free_ports, free_run, release, take

TAKES = "import sys; from magnetar.testing.free_ports import take; sys.exit(not take(int(sys.argv[1])))"


def another_process_takes(port: int) -> bool:
    return subprocess.run([sys.executable, "-c", TAKES, str(port)], check=False).returncode == 0


def test_a_port_is_given_once_in_this_process_and_to_no_other() -> None:
    port, other = free_ports(2)
    assert port != other
    assert PORT_MIN <= port < first_outgoing_port()
    assert not take(port)
    assert not another_process_takes(port)


def test_a_process_that_ended_leaves_its_ports() -> None:
    port = next(port for port in range(PORT_MIN, PORT_MIN + 1_000) if another_process_takes(port))
    assert another_process_takes(port)


def test_a_run_is_given_whole() -> None:
    first = free_run(3)
    assert not any(map(take, range(first, first + 3)))


def test_port_in_use_is_not_given() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        assert not take(listening.getsockname()[1])


def test_a_released_port_is_given_again_here_and_to_another_process() -> None:
    (port,) = free_ports(1)
    release([port])
    assert another_process_takes(port)
    assert take(port)
    release([port, port])
    assert take(port)
