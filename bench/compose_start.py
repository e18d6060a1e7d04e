"""`python -m bench.compose_start`: from `docker-compose up` on empty volumes to the first confirmed message.

Images are there before it begins. A client outside of the containers' network tries from the first moment on,
as a user would. Each round begins and ends with nothing; its second start finds the data of the first.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from statistics import median

import pulsar
from magnetar.testing.free_ports import free_ports

from bench.target import report
from tools.compose import Compose, ComposeFailed, have_images
from tools.deploy_setup import compose_command
from tools.images.docker import Docker, DockerFailed, DockerUnavailable
from tools.images.stand_ins import NoStandIn
from tools.images.targets import NotPinned
from tools.images.wheels import NoWheels

PROJECT = "magnetar-bench"
TOPIC = "persistent://public/default/first"
TRY_S = 5
SECONDS_MAX = 600.0


def first_message(service_url: str, failed: threading.Event) -> None:
    """Publish one message, retrying until a broker confirms it. Raises ComposeFailed."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline and not failed.is_set():
        client = pulsar.Client(
            service_url,
            operation_timeout_seconds=TRY_S,
            logger=pulsar.FileLogger(
                pulsar.LoggerLevel.Error, os.devnull
            ),  # Retried until the cluster is up.
        )
        try:
            client.create_producer(TOPIC, send_timeout_millis=TRY_S * 1000).send(b"first")
            return
        except pulsar.PulsarException:
            time.sleep(0.1)
        finally:
            client.close()
    raise ComposeFailed("no broker confirmed a message")


def start(compose: Compose, service_url: str) -> dict[str, float]:
    """Seconds of one start."""
    failed = threading.Event()
    said: list[ComposeFailed] = []
    began = time.monotonic()
    all_healthy_s = 0.0

    def up() -> None:
        nonlocal all_healthy_s
        try:
            compose.up()
            all_healthy_s = time.monotonic() - began
        except ComposeFailed as error:
            said.append(error)
            failed.set()

    starting = threading.Thread(target=up)
    starting.start()
    try:
        first_message(service_url, failed)
        first_s = time.monotonic() - began
    finally:
        starting.join()
    if said:
        raise said[0]
    return {"first message s": first_s, "all healthy s": all_healthy_s}


def stop(compose: Compose, *, volumes: bool) -> float:
    """Seconds of one `down`."""
    began = time.monotonic()
    compose.down(volumes=volumes)
    return time.monotonic() - began


def measure(compose: Compose, service_url: str) -> dict[str, float]:
    """One round: a start on nothing, a stop, a start on what was there."""
    compose.down(volumes=True)
    try:
        fresh = start(compose, service_url)
        down_s = stop(compose, volumes=False)
        again = start(compose, service_url)
    finally:
        compose.down(volumes=True)
    return {
        **{f"empty: {key}": value for key, value in fresh.items()},
        "down s": down_s,
        **{f"again: {key}": value for key, value in again.items()},
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the medians are reported (default 3)")
    options = parser.parse_args(argv)
    program = compose_command()
    if program is None:
        sys.exit("compose start: neither docker compose nor docker-compose is there")
    try:
        service, http, prometheus = free_ports(3)
        settings = {
            "MAGNETAR_PORT": str(service),
            "MAGNETAR_HTTP_PORT": str(http),
            "PROMETHEUS_PORT": str(prometheus),
        }
        compose = Compose(Docker(), tuple(program), PROJECT, settings)
        have_images(compose.docker, compose.images())
        rounds = [measure(compose, f"pulsar://127.0.0.1:{service}") for _ in range(options.rounds)]
    except (ComposeFailed, DockerFailed, DockerUnavailable, NoStandIn, NotPinned, NoWheels) as error:
        sys.exit(f"compose start: {error}")
    report("compose start", {key: median(one[key] for one in rounds) for key in rounds[0]})


if __name__ == "__main__":
    main()
