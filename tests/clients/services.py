"""Services that the client matrix runs against, and what programs may ask of them (`catalogue.Verb`).

A standalone, a cluster (two brokers over three bookies and etcd, clients enter by discovery), and Apache
Pulsar.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from magnetar.common.naming.topic_name import TopicName

from bench.brokers import ApachePulsar, first_acknowledgement
from tests.clients.catalogue import Verb
from tests.cluster.whole_cluster import SHORT_SESSION, WholeCluster, broker_id
from tests.integration.harness import Endpoint, StandaloneServer, eventually, page_at
from tests.integration.rest import Rest

SETTINGS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "subscriptionExpiryCheckIntervalInMinutes": "1",
    "transactionCoordinatorEnabled": "true",
}
APPLIED_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. `kill` gets the topics that programs care for, `move` one topic."""

    name: str
    endpoint: Endpoint
    kill: Callable[[Iterable[str]], None]
    move: Callable[[str], None]

    def do(self, verb: Verb, arguments: list[str]) -> str:
        """Do what a program asks for, but for Verb.KILL; returns the value that it is answered with."""
        rest = Rest(self.endpoint)
        topic, *more = arguments
        path = _path(topic)
        match verb:
            case Verb.PARTITION:
                body = int(more[0])
                exists = rest.call("GET", f"{path}/partitions").json.get("partitions", 0) > 0
                rest.do("POST" if exists else "PUT", f"{path}/partitions", body)
            case Verb.TERMINATE:
                reply = rest.call("POST", f"{path}/terminate")
                assert reply.status == 200, reply
            case Verb.DEDUPLICATE:
                rest.call("PUT", path)
                rest.do("POST", f"{path}/deduplicationEnabled", True)
                eventually(
                    lambda: rest.get(f"{path}/stats").get("deduplicationStatus") == "Enabled",
                    f"deduplication is applied to {topic}",
                    APPLIED_SECONDS_MAX,
                )
            case Verb.ENFORCE:
                rest.do("POST", f"{path}/schemaValidationEnforced", True)
            case Verb.COMPACT:
                rest.do("PUT", f"{path}/compaction")
                eventually(lambda: _compacted(rest, path), f"{topic} is compacted", APPLIED_SECONDS_MAX)
            case Verb.BACKLOG:
                return str(_backlog(rest, path, more[0]))
            case Verb.MOVE:
                self.move(topic)
            case Verb.KILL:
                raise AssertionError("a kill serves all programs at once: see matrix.py")
        return ""


def _path(topic: str) -> str:
    return f"/{topic.replace('://', '/')}"


def _compacted(rest: Rest, path: str) -> bool:
    found = rest.get(f"{path}/compaction")
    assert found["status"] != "ERROR", found
    return bool(found["status"] == "SUCCESS")


def _backlog(rest: Rest, path: str, subscription: str) -> int:
    """Returns the entries that a subscription has not acknowledged, once the topic is served again."""
    replies: list[Any] = []

    def told() -> bool:
        for name in ("stats", "partitioned-stats"):
            replies.append(rest.call("GET", f"{path}/{name}"))
            if replies[-1].status == 200:
                return True
        return False

    eventually(told, f"statistics of {path}", APPLIED_SECONDS_MAX)
    found: dict[str, Any] = replies[-1].json["subscriptions"][subscription]
    return int(found["msgBacklog"])


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[Service]:
    """`magnetar standalone`; killed at the end."""
    server = StandaloneServer(directory, SETTINGS)
    server.start()
    rest = Rest(server.endpoint)
    try:
        yield Service(
            "standalone",
            server.endpoint,
            kill=lambda _: server.kill_and_start(),
            move=lambda topic: rest.do("PUT", f"{_path(topic)}/unload"),
        )
    finally:
        server.kill()


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Service]:
    """`magnetar broker` twice over three bookies, behind `magnetar discovery`; killed at the end."""
    settings = {**SETTINGS, **SHORT_SESSION}
    with WholeCluster.serving(directory, brokers=2, discoveries=1, broker_settings=settings) as whole:

        def kill(topics: Iterable[str]) -> None:
            serving = {broker.name: broker for broker in map(whole.owner_of, topics)}
            for broker in serving.values():
                broker.kill()
            for broker in serving.values():
                broker.launch()
            for broker in serving.values():
                broker.wait_until_healthy()

        def moved(topic: str) -> bool:
            owner = whole.owner_of(topic)
            other = next(broker for broker in whole.brokers if broker is not owner)
            name = TopicName.parse(topic)
            status, bundle = page_at(f"{owner.endpoint.http_url}/lookup/v2/topic{_path(topic)}/bundle")
            assert status == 200, bundle
            bundle = bundle.strip().strip('"')
            path = f"/namespaces/{name.namespace}/{bundle}/unload?destinationBroker={broker_id(other)}"
            reply = Rest(owner.endpoint).call("PUT", path)
            # 412, 503: another program had the bundle moved meanwhile, or is having it moved.
            assert reply.status in {204, 412, 503}, reply
            return reply.status == 204

        def move(topic: str) -> None:
            eventually(lambda: moved(topic), f"{topic} moves to the other broker")

        yield Service("cluster", whole.endpoint, kill, move)


@contextlib.contextmanager
def apache_pulsar(jars: Path) -> Iterator[Service]:
    """Apache Pulsar standalone on the settings of bench/anchor; a kill starts it again on the same data."""
    broker = ApachePulsar(jars)
    try:
        first_acknowledgement(broker)
        endpoint = broker.endpoint
        rest = Rest(endpoint)

        def kill(_: Iterable[str]) -> None:
            broker.kill()
            broker.launch()
            eventually(
                lambda: page_at(f"{endpoint.http_url}/admin/v2/brokers/health")[0] == 200,
                "Apache Pulsar is healthy after its kill",
                120.0,
            )

        yield Service("Apache Pulsar", endpoint, kill, lambda topic: rest.do("PUT", f"{_path(topic)}/unload"))
    finally:
        broker.stop()
