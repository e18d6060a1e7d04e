"""How long a coordinator with open transactions, and a topic with aborted ones, need to serve again."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Final

from bench.brokers import ApachePulsar, Broker, Magnetar, first_acknowledgement
from bench.connection import Connection, Refused
from bench.target import Target, new_topic
from bench.transactions.program import program

SERVING: Final = "kill -9 to the first plain message acknowledged, s"
FIRST_END: Final = "kill -9 to the first END answered, s"
MORE: Final = "END after the plain message, s"
PRODUCER: Final = "unloaded topic to a transactional producer, s"
FIRST_MESSAGE: Final = "unloaded topic to the message after the aborted ones, s"

WAIT_S_MAX: Final = 120.0
RETRY_S: Final = 0.01


def coordinator(broker: Broker, transactions: int) -> dict[str, float]:
    """Leave transactions open, each with one message, kill the broker, and end the last one.

    Raises TimeoutError when its END is not answered within WAIT_S_MAX.
    """
    first_acknowledgement(broker)
    topic = new_topic()
    with program(broker.target) as client:
        words, _ = client.run("open", topic, transactions)
    most, least = map(int, words)
    assert isinstance(broker, Magnetar | ApachePulsar)
    (broker.server if isinstance(broker, Magnetar) else broker).kill()
    began = time.perf_counter()
    serving = first_acknowledgement(broker)

    def end() -> None:
        with closing(Connection(broker.target.service_url)) as connection:
            connection.connect_coordinator(most)
            connection.commit(most, least)

    _until_answered(end)
    ended = time.perf_counter() - began
    return {SERVING: serving, FIRST_END: ended, MORE: ended - serving}


def _until_answered(ask: Callable[[], None]) -> None:
    deadline = time.perf_counter() + WAIT_S_MAX
    while True:
        try:
            ask()
        except (ConnectionError, Refused, TimeoutError) as refused:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"no answer within {WAIT_S_MAX:g} s: {refused}") from refused
            time.sleep(RETRY_S)
        else:
            return


def aborted(target: Target, transactions: int, loads: int) -> list[dict[str, float]]:
    """Abort transactions of one message each in one topic, and unload it `loads` times."""
    topic = new_topic()
    with closing(Connection(target.service_url)) as keeper:
        keeper.subscribe(topic)
    with program(target) as client:
        client.run("abort", topic, transactions)
    return [_load(target, topic) for _ in range(loads)]


def _load(target: Target, topic: str) -> dict[str, float]:
    found: dict[str, float] = {}

    def produce() -> None:
        with closing(Connection(target.service_url)) as connection:
            connection.open_transactional_producer(topic)

    def consume() -> None:
        with closing(Connection(target.service_url)) as connection:
            connection.subscribe(topic)
            connection.first_message()

    for name, ask in ((PRODUCER, produce), (FIRST_MESSAGE, consume)):
        url = f"{target.http_url}/admin/v2/{topic.replace('://', '/')}/unload"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60):
            began = time.perf_counter()
        _until_answered(ask)
        found[name] = time.perf_counter() - began
    return found
