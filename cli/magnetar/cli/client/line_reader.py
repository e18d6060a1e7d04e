"""Lines of files and of standard input as messages, read while they are published."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import BinaryIO, Final

import click

CHUNK_BYTES: Final = 65_536
QUEUED_CHUNKS: Final = 16
"""Chunks that are read ahead; the reader waits when there are so many."""

LINE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Longest line in bytes: more than the largest message that a broker can be configured to accept."""


async def lines_of(files: Sequence[BinaryIO], stopped: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Yields the lines of files, without their ends, until the last one ends or `stopped` is set.

    A thread reads, and does not hold up the end of the process: input from a terminal may never come.
    Raises ClickException for a line above `LINE_BYTES_MAX`, and OSError.
    """
    loop = asyncio.get_running_loop()
    arrived: deque[bytes | OSError | None] = deque()
    changed = asyncio.Event()
    slots = threading.Semaphore(QUEUED_CHUNKS)
    has_ended = threading.Event()

    def arrive(item: bytes | OSError | None) -> None:
        arrived.append(item)
        changed.set()

    def hand_over(item: bytes | OSError | None) -> bool:
        slots.acquire()
        if has_ended.is_set():
            return False
        try:
            loop.call_soon_threadsafe(arrive, item)
        except RuntimeError:  # The loop is closed.
            return False
        return True

    def read() -> None:
        try:
            for file in files:
                while data := _some(file):
                    if not hand_over(data):
                        return
                if not hand_over(b""):  # The last line of a file ends with it.
                    return
            hand_over(None)
        except OSError as error:
            hand_over(error)
        except ValueError:
            hand_over(None)  # The file was closed, since the command ends.

    threading.Thread(target=read, name="lines", daemon=True).start()
    stopping = asyncio.ensure_future(stopped.wait())
    stopping.add_done_callback(lambda _: changed.set())
    rest: list[bytes] = []
    rest_bytes = 0
    try:
        while True:
            while not arrived and not stopped.is_set():
                changed.clear()
                await changed.wait()
            if stopped.is_set():
                return
            item = arrived.popleft()
            slots.release()
            if isinstance(item, OSError):
                raise item
            if item and b"\n" not in item:
                rest.append(item)
                rest_bytes += len(item)
                if rest_bytes > LINE_BYTES_MAX:
                    raise click.ClickException(
                        f"a line has more than {LINE_BYTES_MAX} bytes; send the file without --lines"
                    )
                continue
            *lines, last = b"".join([*rest, item or b""]).split(b"\n")
            if not item and last:
                lines.append(last)
                last = b""
            rest, rest_bytes = [last], len(last)
            for line in lines:
                yield line
            if item is None:
                return
    finally:
        has_ended.set()
        slots.release()
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)


def _some(file: BinaryIO) -> bytes:
    """Returns what can be read now, without waiting for a full chunk; empty at the end."""
    read_some = getattr(file, "read1", None) or file.read
    data: bytes = read_some(CHUNK_BYTES)
    return data
