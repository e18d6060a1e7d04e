"""Scenarios in which the topic moves or its broker dies under traffic."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pulsar

from tests.clients.python.harness import Scene, expect, expect_equal, until

COUNT = 300

RECOVERS_S = 120
"""Seconds until traffic recovered from a disruption: the library doubles its pauses meanwhile."""

STUCK_S = 15
"""Seconds without a message after which a consumer is replaced."""


class _Traffic:
    """One producer that sends numbers one at a time, one consumer that acknowledges them, each in a thread.

    The last 100 are not sent before `release`, so that the traffic does not end before its disruption.
    """

    def __init__(self, scene: Scene) -> None:
        self.sent: list[int] = []
        self.failed: dict[int, str] = {}
        self.received: list[int] = []
        self._scene = scene
        self._client = scene.new_client()
        self._consumer = _consumer(scene, self._client)
        self._producer = scene.new_client().create_producer(scene.topic(), send_timeout_millis=20_000)
        self._released = threading.Event()
        self._over = threading.Event()
        for work in (self._send, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def release(self) -> None:
        self._released.set()

    def tried(self) -> int:
        return len(self.sent) + len(self.failed)

    def _send(self) -> None:
        for number in range(COUNT):
            if number == COUNT - 100:
                self._released.wait()
            try:
                self._producer.send(str(number).encode())
            except pulsar.PulsarException as error:
                self.failed[number] = f"{type(error).__name__} {error}"
            else:
                self.sent.append(number)
            time.sleep(0.002)

    def _receive(self) -> None:
        idle_s = 0
        while not self._over.is_set():
            try:
                message: Any = self._consumer.receive(timeout_millis=1000)
            except pulsar.PulsarException as error:
                if not isinstance(error, pulsar.Timeout):
                    time.sleep(1)  # it is not open
                idle_s += 1
                if idle_s % STUCK_S == 0:
                    self._subscribe_again()
                continue
            idle_s = 0
            self.received.append(int(message.data()))
            try:
                self._consumer.acknowledge(message)
            except pulsar.PulsarException:
                continue  # not connected at the moment: the message will come again

    def _subscribe_again(self) -> None:
        """Replace a consumer that may be stuck after a refusal, see `_consumer`; what it had comes again.

        Its client goes, too: in 3.1.0 a consumer that is closed while it is connecting opens all the same
        (the log has "Closed consumer" before "Created consumer"), and keeps the subscription busy.
        """
        with contextlib.suppress(pulsar.PulsarException):
            self._client.close()
        self._client = self._scene.new_client()
        while not self._over.is_set():
            try:
                self._consumer = _consumer(self._scene, self._client)
            except pulsar.PulsarException:
                time.sleep(1)
            else:
                return

    def wait(self, seconds: float) -> None:
        """Wait until every number was tried and what was stored arrived; then the consumer stops."""
        try:
            until(lambda: self.tried() == COUNT, f"{COUNT} sends have ended", seconds)
            until(lambda: set(self.sent) <= set(self.received), "every stored message arrives", seconds)
        finally:
            self._over.set()


def _consumer(scene: Scene, client: Any) -> Any:
    """Subscribe, and once more after a timeout.

    Other programs move the same bundle meanwhile. The library's C++ core does not try again when a broker
    that no longer owns the topic refuses to subscribe: it takes itself for connected
    (https://github.com/apache/pulsar-client-cpp/pull/577).
    """
    try:
        return scene.consumer(client=client)
    except pulsar.Timeout:
        return scene.consumer(client=client)


def moved(scene: Scene) -> None:
    traffic = _Traffic(scene)
    for count in (50, 120):
        until(lambda count=count: traffic.tried() >= count, f"{count} sends have ended", 20)  # type: ignore[misc]
        scene.ask("move", scene.topic())
    traffic.release()
    traffic.wait(RECOVERS_S)
    expect_equal(traffic.failed, {}, "failed sends")
    expect_equal(list(dict.fromkeys(traffic.received)), list(range(COUNT)), "order of the first deliveries")


def killed(scene: Scene) -> None:
    traffic = _Traffic(scene)
    until(lambda: traffic.tried() >= 100, "100 sends have ended", 20)
    scene.ask("kill", scene.topic())
    traffic.release()
    traffic.wait(RECOVERS_S)
    late = [number for number in traffic.failed if number >= COUNT - 50]
    expect(not late, f"sends fail long after the kill: {late} {traffic.failed}")
