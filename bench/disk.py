"""`python -m bench.disk`: what one small sync costs, without any broker; no latency can be below it."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import percentile

SYNCS: Final = 2_000
FILE_BYTES: Final = 64 << 20
SIZES: Final = (4096, 8192)


def sync_ms(directory: Path, size: int) -> list[float]:
    """Milliseconds of each write and fdatasync of `size` bytes into blocks that were written before."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fsync(descriptor)
        for number in range(SYNCS):
            data = os.urandom(size)
            started = time.perf_counter()
            os.pwrite(descriptor, data, number * size % FILE_BYTES)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - started) * 1e3)
    return times


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    directory = parser.parse_args(argv).directory
    for size in SIZES:
        times = sync_ms(directory, size)
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"write and sync of {size} B: p50 {p50:.3f} ms, p99 {p99:.3f} ms")


if __name__ == "__main__":
    main()
