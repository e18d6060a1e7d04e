"""One process of the cluster: started with its log, asked whether it serves, told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from typing import Final

from tools.local_cluster.plan import HOST, Member

LOG_LINES: Final = 15
"""Lines of a log's end, shown when its process dies."""

LOG_TAIL_BYTES: Final = 16_384
ANSWER_SECONDS_MAX: Final = 5.0
POLL_S: Final = 0.1

_START: Final = "--- start:"


class Process:
    """A member of the cluster, which may be started again after it has ended."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.ready = False
        """Whether it has served since its last start."""
        self.starts = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def launch(self) -> None:
        """Start it. Raises OSError."""
        member = self.member
        self.ready = False
        self.starts += 1
        environment = {
            k: v for k, v in os.environ.items() if not k.upper().startswith(("MAGNETAR_", "ETCD_"))
        }
        with member.log.open("ab") as log:
            log.write(f"{_START} {' '.join(member.command)}\n".encode())
            log.flush()
            self._process = await asyncio.create_subprocess_exec(
                *_bound_to_us(member.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, in order
            )

    async def until_ready(self) -> bool:
        """Return once it serves; False when it has ended before."""
        while self.running:
            if await answers(self.member.http_port, "/health" if self.member.kind == "etcd" else "/readyz"):
                self.ready = True
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def wait(self) -> int:
        """Its exit status, once it has ended; below 0 is a signal."""
        assert self._process is not None, "it was started"
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.running:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def log_end(self) -> list[str]:
        """The last lines that it printed."""
        try:
            with self.member.log.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if not line.startswith(_START)][-LOG_LINES:]


def how_it_ended(status: int) -> str:
    """In words."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


async def answers(port: int, path: str) -> bool:
    """Whether GET `path` at this port is answered with 200."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return b" 200 " in status


def _bound_to_us(command: Sequence[str]) -> list[str]:
    """It gets SIGKILL when this process is gone, however that ended; where there is `setpriv`."""
    setpriv = shutil.which("setpriv")
    return [*((setpriv, "--pdeathsig", "KILL") if setpriv else ()), *command]
