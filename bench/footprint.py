"""`python -m bench.footprint`: start to the first acknowledged message, and what an idle standalone costs."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from statistics import median

from bench.connection import Connection
from bench.frames import FIRST_SEQUENCE_ID, SendTemplate
from bench.target import Target, new_topic, report
from tests.integration.harness import free_ports, magnetar_command, temporary_directory

START_SECONDS_MAX = 60.0


def measure(idle_seconds: float) -> dict[str, float]:
    """One start on an empty data directory."""
    directory = temporary_directory()
    binary_port, web_port = free_ports(2)
    command = [*magnetar_command(), "standalone", "--data-dir", str(directory / "data")]
    command += ["--set", f"brokerServicePort={binary_port}", "--set", f"webServicePort={web_port}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAGNETAR_")}
    frame = SendTemplate(100).burst(FIRST_SEQUENCE_ID, 1)
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory, env=environment
    )
    try:
        where = Target(f"pulsar://127.0.0.1:{binary_port}", process.pid)
        connection = _connect(where.service_url, process)
        accepting = time.perf_counter()
        connection.open_producer(new_topic())
        connection.send_and_await_receipt(frame)
        acknowledged = time.perf_counter()
        connection.close()
        time.sleep(1)
        cpu_before, since = where.cpu_seconds(), time.perf_counter()
        time.sleep(idle_seconds)
        idle_cpu = (where.cpu_seconds() - cpu_before) / (time.perf_counter() - since)
        return {
            "start to first connection s": accepting - started,
            "start to first acknowledged message s": acknowledged - started,
            "idle RSS MB": where.rss_bytes() / 1e6,
            "idle CPU %": idle_cpu * 100,
        }
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _connect(service_url: str, process: subprocess.Popen[bytes]) -> Connection:
    deadline = time.perf_counter() + START_SECONDS_MAX
    while time.perf_counter() < deadline:
        try:
            return Connection(service_url)
        except ConnectionError:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with status {process.returncode}") from None
            time.sleep(0.002)
    raise TimeoutError(f"no connection within {START_SECONDS_MAX:g} s")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="starts; the medians are reported (default 3)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of idling watched each time")
    options = parser.parse_args(argv)
    rounds = [measure(options.idle) for _ in range(options.rounds)]
    print("footprint:")
    report("footprint", {key: median(one[key] for one in rounds) for key in rounds[0]})


if __name__ == "__main__":
    main()
