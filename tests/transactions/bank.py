"""The bank: a program of the Java client that moves balances between topics in transactions (`java/`)."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.clients.programs import Source, java_program
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest
from tests.transactions.history import History, read_history

BANK: Final = Source(
    "Bank",
    "org.apache.pulsar:pulsar-client",
    Path(__file__).parent / "java",
    java_program("4.0.8", "BankProgram"),
)
OPEN_SECONDS_MAX: Final = 90.0
CLOSE_SECONDS_MAX: Final = 300.0
BRANCHES: Final = ("shared", "batched", "keyed", "ordered")
SUBSCRIPTION: Final = "bank"
CLOCK_ERROR_S: Final = 0.5
"""How early a coordinator may end a transaction: it counts from before its answer."""


class BankFailed(Exception):
    """The program ended, or does not answer; the message has its last lines."""


class Bank:
    """A running program; `close` ends it and returns its history."""

    def __init__(
        self,
        endpoint: Endpoint,
        prefix: str,
        directory: Path,
        *,
        seed: int,
        workers: int = 6,
        accounts: int = 40,
        progress: Callable[[str], None] = print,
    ) -> None:
        self.prefix = prefix
        self._endpoint = endpoint
        self._progress = progress
        self._path = directory / f"bank-{seed}.jsonl"
        self._said: list[str] = []
        self._open, self._closed = threading.Event(), threading.Event()
        command = [*BANK.build().command, endpoint.service_url, prefix, str(self._path), str(seed)]
        command += [str(workers), str(accounts)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def topics(self) -> list[str]:
        return [f"{self.prefix}-{branch}" for branch in BRANCHES]

    def wait_until_open(self) -> None:
        """Returns once every account is there and workers run. Raises BankFailed."""
        if not self._open.wait(OPEN_SECONDS_MAX):
            self.kill()
            raise self._failure("the bank did not open")

    def quiet(self) -> None:
        """Records that the last fault is over."""
        self._tell("quiet")

    def close(self) -> History:
        """Ends all transfers; returns the history with what was found then. Raises BankFailed."""
        self._tell("stop")
        if not self._closed.wait(CLOSE_SECONDS_MAX):
            self.kill()
            raise self._failure("the bank did not close")
        self._process.wait(OPEN_SECONDS_MAX)
        with self._path.open(encoding="utf-8") as lines:
            history = read_history(lines)
        history.clock_error_s = CLOCK_ERROR_S
        rest = Rest(self._endpoint)
        history.left = [
            left if left.topic.endswith("-batched") else replace(left, backlog=backlog(rest, left.topic))
            for left in history.left
        ]
        return history

    def kill(self) -> None:
        """Ends the program now; idempotent."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("the bank ended by itself") from None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.strip())
            if line.strip() == "open":
                self._open.set()
            elif line.strip() == "closed":
                self._closed.set()
            else:
                self._progress(f"bank: {line.strip()}")

    def _failure(self, what: str) -> BankFailed:
        return BankFailed("\n".join([what, *self._said[-20:]]))


def backlog(rest: Rest, topic: str) -> int:
    """Returns how many messages the bank's subscription has not acknowledged, as the broker counts them."""
    path = f"/{topic.replace('://', '/')}/stats?getPreciseBacklog=true"
    return int(rest.get(path)["subscriptions"][SUBSCRIPTION]["msgBacklog"])
