"""One bookie by itself as a real process, looked at through its HTTP pages.

with OneBookie.serving(tmp_path, etcd.url) as bookie:
    ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster.processes import SMALL_DISKS, BookieProcess
from tests.integration.harness import STOP_SECONDS_MAX, page_at


class OneBookie(BookieProcess):
    """A bookie that takes a disk which is nearly full, unless its settings say otherwise."""

    def __init__(
        self, directory: Path, metadata_uri: str, settings: Mapping[str, str] | None = None, number: int = 1
    ) -> None:
        roomy = {
            "magnetarLogFreeSpaceHeadroomBytes": "0",
            "diskUsageThreshold": "1",
            "diskUsageLwmThreshold": "1",
        }
        super().__init__(directory, number, metadata_uri, {**SMALL_DISKS, **roomy, **(settings or {})})

    @classmethod
    @contextlib.contextmanager
    def serving(
        cls, directory: Path, metadata_uri: str, settings: Mapping[str, str] | None = None
    ) -> Iterator[OneBookie]:
        """A bookie that serves, killed at the end."""
        bookie = cls(directory, metadata_uri, settings)
        try:
            bookie.start()
            yield bookie
        finally:
            bookie.kill()

    def wait_for_end(self) -> int:
        """The exit status of a process that ends by itself."""
        assert self._process is not None, "the bookie was never started"
        return self._process.wait(STOP_SECONDS_MAX)

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of an HTTP page; status 0 when nobody answers."""
        return page_at(f"{self.http_url}{path}")
