"""Heartbeats of the running attempts: without them another job takes over their ledgers.

One thread asks Begin once more for each, from time to time. An attempt that is refused is over: somebody took
its ledger, or the ledger is gone, and what it still writes nobody will read.
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
    """The reason why it is over; empty while it lives."""


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
        """The attempt lives until the end of the block."""
        beating = Beating(ledger, attempt)
        with self._lock:
            self._beating.add(beating)
        try:
            yield beating
        finally:
            with self._lock:
                self._beating.discard(beating)

    def beat(self) -> None:
        """One sign of life of each."""
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
                    log.info("nobody hears that an attempt lives", ledger=ledger.ledger_id, reason=str(error))
                    continue
                each.lost = str(error)

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self.beat()
            except Exception:
                log.exception("a sign of life could not be given")
