"""A writer of one ledger as a process of its own, to be killed or stopped at any moment.

    python -m tests.cluster.writer_process METADATA_URL

prints one line of JSON for the ledger, then one for each watermark it is told, then one for its failure,
after which it goes on trying to append for as long as it lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from magnetar.common.errors import Backpressure, StorageError
from magnetar.ledger.ledger_store import LedgerListener, LedgerRef, Run
from magnetar.ledger.quorum.config import QuorumConfig

from tests.cluster.ledger_client import LedgerClient, entry_bytes
from tests.integration.harness import ROOT, eventually

ENTRIES_A_RUN: Final = 5
ENTRIES_IN_FLIGHT_MAX: Final = 200


class WriterProcess:
    """The process, as the test sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.ref = LedgerRef(-1, 0)
        self.confirmed = -1
        self.failure = ""
        self.refused = 0
        """How often an append was refused after the failure."""
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    @contextlib.contextmanager
    def writing(metadata_url: str) -> Iterator[WriterProcess]:
        """A writer at work, killed at the end."""
        command = [sys.executable, "-m", __name__, metadata_url]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        ) as process:
            try:
                yield WriterProcess(process)
            finally:
                process.kill()

    def confirms(self, entries: int) -> None:
        """Wait for that many more."""
        target = self.confirmed + entries
        eventually(lambda: self.confirmed >= target, "the writer process goes on", 60.0)

    def kill(self) -> None:
        """SIGKILL; returns when everything it had said was heard."""
        self._process.kill()
        self._reader.join(10.0)
        assert not self._reader.is_alive()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # cut by the kill: nobody was told
            if not line.startswith("{"):
                continue  # a log line
            said = json.loads(line)
            if "id" in said:
                self.ref = LedgerRef(said["id"], said["key"])
            elif "failure" in said:
                self.failure = said["failure"]
            elif "refused" in said:
                self.refused = said["refused"]
            else:
                self.confirmed = said["confirmed"]


async def write(metadata_url: str) -> None:
    def say(**what: object) -> None:
        print(json.dumps(what), flush=True)

    config = QuorumConfig(add_entry_timeout_s=2.0, replace_retry_s=0.5)
    async with LedgerClient.connected(metadata_url, config) as client:
        writer = await client.create(
            LedgerListener(
                lambda confirmed: say(confirmed=confirmed),
                lambda error, last: say(failure=type(error).__name__),
            )
        )
        say(id=writer.ref.id, key=writer.ref.key)
        position = refused = 0
        while True:
            if position - writer.last_confirmed <= ENTRIES_IN_FLIGHT_MAX:
                try:
                    writer.append(Run([entry_bytes(writer.ref, position + n) for n in range(ENTRIES_A_RUN)]))
                    position += ENTRIES_A_RUN
                except Backpressure:
                    pass
                except StorageError:
                    refused += 1
                    say(refused=refused)
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
