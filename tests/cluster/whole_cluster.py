"""A cluster with everything: etcd, three bookies, three brokers and two discoveries, as real processes.

One serves a module's tests (the fixture `whole_cluster`): starting it takes seconds. A test that kills or
pauses leaves that to `mend`, which is called before each test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.cluster.discovery_process import DiscoveryProcess
from tests.cluster.processes import BrokerProcess, Cluster
from tests.integration.harness import Endpoint, MagnetarProcess, eventually
from tests.integration.rest import Rest

SESSION_TIMEOUT_MS = 3_000
SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_MS)}
"""A broker that was killed is missed this soon."""


class WholeCluster(Cluster):
    """What `Cluster` has, its brokers started with it, and discoveries."""

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        brokers: int = 3,
        discoveries: int = 2,
        broker_settings: Mapping[str, str] | None = None,
        bookie_settings: Mapping[str, str] | None = None,
        etcd_fsync: bool = False,
    ) -> None:
        super().__init__(directory, bookies=bookies, bookie_settings=bookie_settings, etcd_fsync=etcd_fsync)
        for _ in range(brokers):
            self.broker({**SHORT_SESSION, **(broker_settings or {})})
        self.discoveries = [
            DiscoveryProcess(directory, f"discovery-{number + 1}", self.etcd.url)
            for number in range(discoveries)
        ]

    @staticmethod
    @contextlib.contextmanager
    def serving(
        directory: Path,
        *,
        bookies: int = 3,
        brokers: int = 3,
        discoveries: int = 2,
        broker_settings: Mapping[str, str] | None = None,
        bookie_settings: Mapping[str, str] | None = None,
        etcd_fsync: bool = False,
    ) -> Iterator[WholeCluster]:
        """All of it, which serves; killed at the end."""
        cluster = WholeCluster(
            directory,
            bookies=bookies,
            brokers=brokers,
            discoveries=discoveries,
            broker_settings=broker_settings,
            bookie_settings=bookie_settings,
            etcd_fsync=etcd_fsync,
        )
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()

    @property
    def endpoint(self) -> Endpoint:
        """What clients are given: every discovery, and HTTP of the first."""
        urls = [one.endpoint.service_url.removeprefix("pulsar://") for one in self.discoveries]
        first = self.discoveries[0].endpoint
        return Endpoint(f"pulsar://{','.join(urls)}", first.http_url, first.cluster)

    @property
    def processes(self) -> list[MagnetarProcess]:
        """All but etcd."""
        return [*self.bookies, *self.brokers, *self.discoveries]

    def start(self) -> None:
        """Start everything; returns when all of it serves and each broker knows of all."""
        self.etcd.start()
        self.mend()

    def mend(self) -> None:
        """All but etcd run, serve, and are known to the others, whatever was killed or paused before."""
        for kind in (self.bookies, self.brokers, self.discoveries):  # all at once would wait for each other
            for one in kind:
                if one.running:
                    one.resume()
                else:
                    one.launch()
            for one in kind:
                one.wait_until_healthy()
        up = sorted(broker_id(one) for one in self.brokers)
        for broker in self.brokers:
            eventually(partial(knows, broker, up), f"{broker.name} knows of {up}")

    def kill(self) -> None:
        """SIGKILL to every process, the front door first."""
        for one in self.discoveries:
            one.kill()
        super().kill()

    def by_id(self, identity: str) -> BrokerProcess:
        """The broker that admin calls name so."""
        return next(one for one in self.brokers if broker_id(one) == identity)

    def by_url(self, service_url: str) -> BrokerProcess:
        """The broker that lookups answer with."""
        return next(one for one in self.brokers if one.endpoint.service_url == service_url)

    def owner_of(self, topic: str) -> BrokerProcess:
        """The broker that serves a topic, which is assigned where it was not."""
        found = ""

        def looked_up() -> bool:
            nonlocal found
            found = next((url for one in self.brokers if one.running and (url := one.where(topic))), "")
            return bool(found)

        eventually(looked_up, f"somebody says who serves {topic}")
        return self.by_url(found)


def broker_id(broker: BrokerProcess) -> str:
    """What others and operators know a broker by."""
    return broker.endpoint.http_url.removeprefix("http://")


def knows(broker: BrokerProcess, brokers: list[str]) -> bool:
    """Whether a broker says that these are up, in the order of their names.

    One that has lost its session begins anew, and its port may be between two owners for a moment.
    """
    try:
        reply = Rest(broker.endpoint).call("GET", "/brokers")
    except OSError:
        return False
    return reply.status == 200 and bool(reply.json == brokers)
