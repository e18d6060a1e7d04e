"""A process that asked a broker can start Java, which takes a fork."""

from __future__ import annotations

import subprocess
import sys

FORKS = """
import magnetar.spark
import subprocess
from concurrent.futures import ThreadPoolExecutor
import grpc

server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    grpc.channel_ready_future(channel).result(timeout=60)
    for _ in range(300):
        done = subprocess.run(["true"], preexec_fn=lambda: None)
        assert done.returncode == 0, done
server.stop(None).wait()
"""


def test_starting_a_process_does_not_fail_for_grpcs_threads() -> None:
    """As PySpark does it: with something to be done in the child before it is another program."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Bad file descriptor" not in done.stderr
