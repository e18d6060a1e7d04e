"""Heartbeats of the running attempts: without them another job takes over their ledgers.

One thread repeats Begin for each attempt periodically. A refused attempt is over: another attempt has its
ledger, or the ledger was deleted, and the objects it still writes are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_errors import may_pass
from magnetar.common.offload.offload_pb2 import Ledger

log = get_logger(__name__)

EVERY_S: Final = 60.0


class Beginning(Protocol):
    """Begins an attempt at a ledger, or confirms that it is alive."""

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger: ...


@dataclass(slots=True, eq=False)
class Beating:
    """One attempt under way."""

    ledger: Ledger
    attempt: bytes
    lost: str = ""
    """Reason why the attempt is over; empty while it is running."""


class Heartbeats:
    """Heartbeats of all attempts of a job. `beat` does one round; `start` and `close` run a thread."""

    def __init__(self, service: Beginning, every_s: float = EVERY_S) -> None:
        self._service = service
        self._every_s = every_s
        self._beating: set[Beating] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def of(self, ledger: Ledger, attempt: bytes) -> Iterator[Beating]:
        """Send heartbeats for the attempt until the end of the block."""
        beating = Beating(ledger, attempt)
        with self._lock:
            self._beating.add(beating)
        try:
            yield beating
        finally:
            with self._lock:
                self._beating.discard(beating)

    def beat(self) -> None:
        """Send one heartbeat for each attempt."""
        with self._lock:
            alive = [each for each in self._beating if not each.lost]
        for each in alive:
            with self._lock:
                if each not in self._beating:
                    continue  # ended while the others were asked: another attempt may have come and gone
            ledger = each.ledger
            try:
                self._service.begin(ledger.topic, ledger.creation_id, ledger.ledger_id, each.attempt)
            except MagnetarError as error:
                if may_pass(error):
                    log.info("no broker accepted a heartbeat", ledger=ledger.ledger_id, reason=str(error))
                    continue
                each.lost = str(error)

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self.beat()
            except Exception:
                log.exception("heartbeat failed")
