"""`python -m bench.console`: how soon the console's first page is there, and what an open console costs.

A standalone is the broker; `magnetar console` is a process of its own, whose CPU is told apart. A page is
opened as a browser does: its scripts and styles with it, then its live stream, and the parts that it asks for
again and again, as often as the page says. The broker's CPU is compared between windows with a page open and
windows without, one after the other, with idle topics and with topics in use.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlencode

import aiohttp
from magnetar.testing import standalone
from magnetar.testing.free_ports import free_ports

TOPIC: Final = "persistent://public/default/console"
START_S_MAX: Final = 60.0
SETTLE_S: Final = 2.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LINK: Final = re.compile(r'(?:src|href)="(/static/[^"]+)"')
_PART: Final = re.compile(r'hx-get="([^"]+)" hx-trigger="every (\d+)s"')
_LIVE: Final = re.compile(r'data-live="([^"]+)"')


def magnetar(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "magnetar"), *arguments]


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def running(*command: str) -> Iterator[int]:
    """A command that runs until the block ends; yields its process id."""
    process = subprocess.Popen(
        magnetar(*command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            fetched(f"{url}/readyz")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def first_page(url: str) -> tuple[float, int]:
    """Seconds and bytes of the overview with its scripts and styles, one request after the other."""
    began = time.perf_counter()
    page = fetched(url + "/")
    size = len(page) + sum(len(fetched(url + link)) for link in _LINK.findall(page.decode()))
    return time.perf_counter() - began, size


async def keep_open(url: str, path: str, seconds: float) -> None:
    """Have a page open for a time."""
    async with aiohttp.ClientSession() as session:

        async def again(part: str, every_s: int) -> None:
            while True:
                await asyncio.sleep(every_s)
                async with session.get(url + part, headers={"HX-Request": "true"}) as answer:
                    await answer.read()

        async def live(part: str) -> None:
            async with session.get(url + part, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                async for _ in answer.content:
                    pass

        async with session.get(url + path) as answer:
            page = await answer.text()
        parts = [again(html.unescape(part), int(every)) for part, every in _PART.findall(page)]
        parts += [live(html.unescape(part)) for part in _LIVE.findall(page)]
        if not parts:
            raise RuntimeError(f"{path} has no live part: nothing to measure")
        tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()


def shares(broker: int, console: int, url: str, path: str, seconds: float) -> tuple[float, float, float]:
    """Percent of a core: the broker's without and with a page open, and the console's with it."""
    before = cpu_s(broker)
    time.sleep(seconds)
    between = cpu_s(broker)
    own = cpu_s(console)
    asyncio.run(keep_open(url, path, seconds))
    scale = 100 / seconds
    return (between - before) * scale, (cpu_s(broker) - between) * scale, (cpu_s(console) - own) * scale


def measure(title: str, pids: tuple[int, int], url: str, rounds: int, seconds: float) -> None:
    """Print a row of the table for each page."""
    for name, path in (("overview", "/"), ("topic", f"/topic?{urlencode({'topic': f'{TOPIC}-0'})}")):
        asyncio.run(keep_open(url, path, SETTLE_S))  # what is imported once is not part of it
        found = [shares(*pids, url, path, seconds) for _ in range(rounds)]
        without, with_it, console = (median(column) for column in zip(*found, strict=True))
        more = sorted(after - before for before, after, _ in found)
        print(
            f"| {title} | {name} | {without:.2f} | {with_it:.2f} | {median(more):+.2f} "
            f"({more[0]:+.2f} to {more[-1]:+.2f}) | {console:.2f} |",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of windows (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="length of a window (default: %(default)s)"
    )
    parser.add_argument("--topics", type=int, default=100, help="loaded topics (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=200, help="messages a second (default: %(default)s)")
    asked = parser.parse_args(arguments)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with standalone() as broker:
        urls = ("--admin-url", broker.admin_url, "--service-url", broker.service_url)
        with running("console", *urls, "--set", f"webServicePort={port}") as console:
            wait_until_ready(url)
            cold_s, size = first_page(url)
            warm_s = median(first_page(url)[0] for _ in range(10))
            print(f"first page: {size / 1024:.0f} KiB; {cold_s * 1e3:.0f} ms the first time, ", end="")
            print(f"{warm_s * 1e3:.0f} ms after that")
            print("\n| topics | page | broker without | broker with | difference | console |")
            print("| --- | --- | --- | --- | --- | --- |", flush=True)
            pids = (broker.pid, console)
            many = ("--url", broker.service_url, "--num-topics", str(asked.topics))
            # Subscriptions, or topics without messages would be deleted as inactive.
            with running("perf", "consume", TOPIC, *many):
                time.sleep(SETTLE_S)
                subprocess.run(
                    magnetar("perf", "produce", TOPIC, *many, "--num-messages", str(asked.topics)),
                    check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
                )  # fmt: skip
                measure(f"{asked.topics} idle", pids, url, asked.rounds, asked.seconds)
                with running("perf", "produce", TOPIC, *many, "--rate", str(asked.rate), "--size", "200"):
                    time.sleep(2 * SETTLE_S)
                    title = f"{asked.topics}, {asked.rate} messages/s"
                    measure(title, pids, url, asked.rounds, asked.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
