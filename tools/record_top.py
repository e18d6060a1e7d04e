"""Record a session of `magnetar top` over a standalone under load: top.cast and two pictures in docs/images.

    .venv/bin/python -m tools.record_top

The command runs in a pseudo-terminal of 110 x 24 characters and gets the keys of KEYS; what it prints, with
its times, is the recording (asciinema's format v2). The pictures are Textual's own, of the same screens.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from magnetar.cli.admin.target import Target
from magnetar.cli.top.admin_source import read_explanation, read_sample
from magnetar.cli.top.live_table import question_of
from magnetar.cli.top.screen import ExplanationScreen, TopApp
from magnetar.testing.standalone_process import StandaloneProcess

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
COLUMNS: Final = 110
LINES: Final = 24
BYTES_MAX: Final = 250_000
"""Longest recording that is kept, in bytes."""

KEYS: Final = (
    (3.5, ""),
    (1.5, "2"),
    (2.0, "e"),
    (2.5, "\x1b"),
    (1.0, "3"),
    (2.5, "1"),
    (1.5, "\r"),
    (1.5, "q"),
)
"""Seconds to wait, and the key that is pressed then."""

MAGNETAR: Final = str(Path(sys.executable).parent / "magnetar")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, under_load(Path(directory)) as server:
        events = record([MAGNETAR, "top", "--admin-url", server.admin_url, "--interval", "3"])
        header = {"version": 2, "width": COLUMNS, "height": LINES, "title": "magnetar top"}
        lines = [json.dumps(header), *(json.dumps(event) for event in events)]
        text = "\n".join(lines) + "\n"
        if len(text) > BYTES_MAX:
            sys.exit(f"the recording has {len(text)} bytes, more than {BYTES_MAX}: press fewer keys")
        (IMAGES / "top.cast").write_text(text, encoding="utf-8")
        asyncio.run(take_pictures(server.admin_url))


@contextmanager
def under_load(directory: Path) -> Iterator[StandaloneProcess]:
    """A standalone with publishers and consumers of several topics, one of them without a consumer."""
    server = StandaloneProcess(directory)
    clients: list[subprocess.Popen[bytes]] = []

    def client(*arguments: str) -> None:
        environment = {**os.environ, "MAGNETAR_SERVICE_URL": server.service_url}
        clients.append(
            subprocess.Popen(
                [MAGNETAR, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    try:
        server.start()
        for topic, rate in (("orders", "900"), ("payments", "300"), ("audit", "40")):
            client("perf", "consume", topic, "-ss", "billing", "-sp", "Earliest", "-time", "120")
            client("perf", "produce", topic, "-r", rate, "-s", "512", "-time", "120")
        reader = ["consume", "orders", "-s", "archive", "-p", "Earliest", "-n", "1"]
        subprocess.run(
            [MAGNETAR, *reader],
            env={**os.environ, "MAGNETAR_SERVICE_URL": server.service_url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        time.sleep(8)
        yield server
    finally:
        for each in clients:
            each.kill()
            each.wait()
        server.close()


def record(command: list[str]) -> list[tuple[float, str, str]]:
    """Runs a command in a pseudo-terminal while keys are pressed; returns what it printed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LINES": str(LINES),
            "COLUMNS": str(COLUMNS),
        }
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, events = time.monotonic(), []
    remaining = list(KEYS)
    due = began + remaining[0][0]
    pending = b""
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        if ready:
            try:
                data = os.read(terminal, 65_536)
            except OSError:  # Linux: the other end is closed.
                break
            if not data:
                break
            pending += data
            text = pending.decode(errors="ignore")
            pending = b"" if pending.decode(errors="replace") == text else pending
            if not pending:
                events.append((round(time.monotonic() - began, 3), "o", text))
        if remaining and time.monotonic() >= due:
            os.write(terminal, remaining.pop(0)[1].encode())
            due = time.monotonic() + (remaining[0][0] if remaining else 0)
        if time.monotonic() - began > 90:
            os.kill(pid, 9)
            break
    os.close(terminal)
    os.waitpid(pid, 0)
    return events


async def take_pictures(admin_url: str) -> None:
    """Saves the table and an explanation as SVG."""
    target = Target("", "", "json", admin_url, timeout_s=5.0)
    app = TopApp(
        lambda question: read_sample(target, question),
        lambda question, row: read_explanation(target, question, row),
        question_of("topics"),
        interval_s=1.0,
        source="http://localhost:8080",
    )
    async with app.run_test(size=(COLUMNS, LINES)) as pilot:
        await asyncio.sleep(3)
        (IMAGES / "top.svg").write_text(picture(app), encoding="utf-8")
        await pilot.press("2")
        await asyncio.sleep(2)
        await pilot.press("e")
        for _ in range(100):
            if isinstance(app.screen, ExplanationScreen):
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        (IMAGES / "top-explain.svg").write_text(picture(app), encoding="utf-8")


def picture(app: TopApp) -> str:
    """Returns the screen as SVG, in a font of the reader's machine: none is loaded from elsewhere."""
    text = re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(), flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    main()
