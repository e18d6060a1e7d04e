"""Screen output: progress, addresses, commands to try, and events."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from tools.local_cluster.plan import CLUSTER_NAME, KINDS, Plan
from tools.local_cluster.process import Process

_PLURALS: Final = {
    "etcd": "etcd",
    "bookie": "bookies",
    "broker": "brokers",
    "discovery": "discoveries",
    "console": "console",
}
_BOLD, _RED, _GREEN, _DIM, _OFF = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


class Screen:
    """Writes to a terminal, or plain lines to anything else."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty() and os.environ.get("TERM", "") != "dumb"
        self._colored = self._live and not os.environ.get("NO_COLOR")
        self._began = time.monotonic()
        self._drawn = False

    def progress(self, processes: Sequence[Process]) -> None:
        """How far starting is; one line that is drawn again and again on a terminal."""
        if not self._live:
            return
        total = Counter(one.member.kind for one in processes)
        ready = Counter(one.member.kind for one in processes if one.ready)
        parts = [
            f"{_PLURALS[kind]} {self._in(_GREEN, f'{ready[kind]}/{total[kind]}', ready[kind] == total[kind])}"
            for kind in KINDS
            if total[kind]
        ]
        self._out.write(f"\r\x1b[K  starting   {'   '.join(parts)}   {self._seconds():.0f} s")
        self._out.flush()
        self._drawn = True

    def started(self, process: Process) -> None:
        """One process serves, said line by line where nothing can be drawn."""
        if not self._live:
            self.say(f"{process.member.name} is ready ({self._seconds():.1f} s)")

    def say(self, text: str) -> None:
        """One line."""
        self._clear()
        print(text, file=self._out, flush=True)

    def happened(self, text: str, log: Path, end: Sequence[str]) -> None:
        """Something that went wrong, with the end of a log."""
        self._clear()
        lines = [f"{_clock()}  {self._in(_RED, text)}; the end of {_shown(log)}:"]
        lines += [f"    {line}" for line in end] or ["    (nothing)"]
        print("\n".join(lines), file=self._out, flush=True)

    def event(self, text: str) -> None:
        """Something that happened while the cluster runs."""
        self.say(f"{_clock()}  {text}")

    def overview(
        self, plan: Plan, processes: Sequence[Process], data_dir: Path, *, context_hint: str = ""
    ) -> None:
        """Where everything is, and what to try. `context_hint` names the context that was written."""
        rows = [("process", "listens at", "metrics", "pid")]
        for one in processes:
            member = one.member
            rows.append((member.name, member.reached_at, f"{member.http_url}/metrics", str(one.pid)))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        table[0] = self._in(_DIM, table[0])
        a_broker = next(one for one in processes if one.member.kind == "broker")
        here = _shown(Path(sys.executable).parent / "magnetar")
        others = len(plan.of("broker")) > 1
        follows = "the others take its topics" if others else "clients wait until it is back"
        addresses = [
            f"export MAGNETAR_SERVICE_URL={plan.service_url}",
            f"export MAGNETAR_ADMIN_URL={plan.admin_url}",
        ]
        exports = [
            *([] if plan.is_where_commands_look else addresses),
            f"export MAGNETAR_CLUSTER_NAME={CLUSTER_NAME}",
            f"export MAGNETAR_METADATA_STORE_URL={plan.metadata_url}",
        ]
        lines = [
            "",
            f"  {self._in(_BOLD, 'The cluster is ready')} ({self._seconds():.1f} s)",
            "",
            f"  clients    {self._in(_BOLD, plan.service_url)}",
            f"  admin      {self._in(_BOLD, plan.admin_url)}",
            *([f"  console    {self._in(_BOLD, plan.console_url)}"] if plan.console_url else []),
            f"  data       {_shown(data_dir)}   (logs: {_shown(data_dir / 'logs')}/PROCESS.log)",
            "",
            *(f"  {line}" for line in table),
            "",
            "  Try, in another terminal:",
            "",
            *([f"    {context_hint}"] if context_hint else []),
            *(f"    {line}" for line in exports),
            f"    {here} produce greetings -m hello -n 10",
            f"    {here} consume greetings -s me -p Earliest -n 10",
            f"    {here} admin brokers list local",
            f"    {here} admin bookies list",
            f"    {here} admin topics lookup greetings",
            f"    {here} doctor --cluster-only",
            f"    kill -9 {a_broker.pid}   # {a_broker.member.name}: {follows}",
            "",
            "  Ctrl-C stops all of it; the data stays.",
            "",
        ]
        self._clear()
        print("\n".join(lines), file=self._out, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._drawn = False

    def _in(self, color: str, text: str, wanted: bool = True) -> str:
        return f"{color}{text}{_OFF}" if self._colored and wanted else text

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _shown(path: Path) -> str:
    """The command as typed from the current directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
