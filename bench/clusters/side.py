"""One of both clusters: all its processes, what they cost together, and how it is restarted and mended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from bench.clusters.processes import Process
from bench.clusters.quorums import BOOKIES
from bench.connection import Connection, Refused
from bench.frames import FIRST_SEQUENCE_ID, SendTemplate
from bench.target import Target, new_topic
from tests.integration.harness import Endpoint

SERVING_SECONDS_MAX: Final = 180.0


class BrokerOf(Process, Protocol):
    """A broker of a cluster."""

    @property
    def endpoint(self) -> Endpoint: ...


class Side:
    """A cluster under measurement, on empty directories at first."""

    def __init__(
        self,
        name: str,
        directory: Path,
        metadata: Process,
        bookies: Sequence[Process],
        brokers: Sequence[BrokerOf],
        set_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`set_up` is called once, when the metadata store answers. Bookies beyond BOOKIES are spare ones."""
        self.name = name
        self.directory = directory
        self.metadata = metadata
        self.bookies = bookies[:BOOKIES]
        self.spare_bookies = bookies[BOOKIES:]
        self.brokers = brokers
        self._set_up = set_up

    @property
    def processes(self) -> list[Process]:
        return [self.metadata, *self.bookies, *self.spare_bookies, *self.brokers]

    @property
    def target(self) -> Target:
        """The first broker, with the costs of all processes that run."""
        pids = [one.pid for one in self.processes if one.running]
        endpoint = self.brokers[0].endpoint
        return Target(endpoint.service_url, endpoint.http_url, pids[0], more_pids=tuple(pids[1:]))

    @property
    def service_url(self) -> str:
        """Every broker, for a client that reconnects."""
        hosts = [one.endpoint.service_url.removeprefix("pulsar://") for one in self.brokers]
        return f"pulsar://{','.join(hosts)}"

    def start(self, say: Callable[[str], None]) -> None:
        """Return when the first broker has acknowledged a message. Raises RuntimeError with a log's end."""
        say(f"{self.name}: metadata store")
        self.metadata.launch()
        self.metadata.wait_until_healthy()
        self._set_up()
        self.serve(say)

    def serve(self, say: Callable[[str], None]) -> None:
        """All bookies and the first broker run and serve, whatever ran before."""
        say(f"{self.name}: {len(self.bookies)} bookies")
        for bookie in self.bookies:
            if not bookie.running:
                bookie.launch()
        for bookie in self.bookies:
            bookie.wait_until_healthy()
        say(f"{self.name}: broker")
        if not self.brokers[0].running:
            self.brokers[0].launch()
        self.brokers[0].wait_until_healthy()
        for other in (*self.brokers[1:], *self.spare_bookies):
            other.stop()
        self._await_acknowledgement()

    def add_broker(self) -> None:
        """Start the second one as well."""
        for broker in self.brokers:
            if not broker.running:
                broker.launch()
        for broker in self.brokers:
            broker.wait_until_healthy()

    def add_spare_bookies(self) -> None:
        """Start the bookies that can replace a killed one."""
        for bookie in self.spare_bookies:
            bookie.launch()
        for bookie in self.spare_bookies:
            bookie.wait_until_healthy()

    def restart_cold(self, say: Callable[[str], None]) -> None:
        """Stop brokers and bookies, let the page cache go of their files, and start them again."""
        say(f"{self.name}: stopping brokers and bookies")
        for broker in self.brokers:
            broker.stop()
        for bookie in (*self.bookies, *self.spare_bookies):
            bookie.stop()
        let_go_of_pages(self.directory)
        self.serve(say)

    def check(self) -> None:
        """Raises RuntimeError with the end of its log when a process that has to run has ended."""
        for one in (self.metadata, *self.bookies, self.brokers[0]):
            if not one.running:
                raise RuntimeError(f"{self.name}: {one.name} has ended\n{one.log_tail()}")

    def remove(self) -> None:
        """End every process and remove all data; idempotent."""
        for one in reversed(self.processes):
            one.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _await_acknowledgement(self) -> None:
        """A broker that answers may not serve topics yet, nor know of enough bookies."""
        deadline = time.monotonic() + SERVING_SECONDS_MAX
        frame = SendTemplate(100).burst(FIRST_SEQUENCE_ID, 1)
        while True:
            try:
                connection = Connection(self.brokers[0].endpoint.service_url)
                connection.open_producer(new_topic())
                connection.send_and_await_receipt(frame)
            except (OSError, Refused) as refused:
                self.check()
                if time.monotonic() > deadline:
                    tails = "\n".join(one.log_tail() for one in self.brokers[:1])
                    raise RuntimeError(f"{self.name} acknowledges nothing: {refused}\n{tails}") from refused
                time.sleep(0.5)
                continue
            connection.close()
            return


def let_go_of_pages(directory: Path) -> None:
    """Write every file out and drop it from the page cache, which needs no privileges for one's own files."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
