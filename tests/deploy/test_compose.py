"""docker-compose.yml with a real Docker daemon: a client outside, lost containers, and data that stays."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from tests.deploy.compose_cluster import SERVICES, ComposeCluster, compose_cluster
from tests.deploy.compose_load import WORK, Load, new_client, read_kept
from tests.integration.harness import eventually, magnetar_command

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

TOPICS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[ComposeCluster]:
    with compose_cluster("magnetar-test") as found:
        began = time.monotonic()
        client = new_client(found.service_url)
        client.create_producer("persistent://public/default/first").send(b"first")
        first_s = found.healthy_after_s + time.monotonic() - began
        client.close()
        print(
            f"compose: after `up` was called all were healthy in {found.healthy_after_s:.1f} s, and a first "
            f"message was confirmed in {first_s:.1f} s"
        )
        yield found


@pytest.fixture
def client(cluster: ComposeCluster) -> Iterator[pulsar.Client]:
    found = new_client(cluster.service_url)
    yield found
    found.close()


def admin(cluster: ComposeCluster, *arguments: str) -> str:
    """What `magnetar admin` outside of the cluster's network prints."""
    done = subprocess.run(
        [*magnetar_command(), "admin", "--admin-url", cluster.http_url, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(cluster: ComposeCluster, path: str, **query: str) -> Any:
    """`data` of an answer of Prometheus."""
    url = f"{cluster.prometheus_url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]


def test_a_client_outside_publishes_consumes_and_administers_through_one_door(
    cluster: ComposeCluster, client: pulsar.Client
) -> None:
    topic = "persistent://public/default/outside"
    admin(cluster, "topics", "create-partitioned-topic", topic, "--partitions", "4")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = {b"%d" % number for number in range(100)}
    for payload in sorted(sent):
        producer.send(payload)
    received = set()
    for _ in sent:
        message = consumer.receive(60_000)
        received.add(message.data())
        consumer.acknowledge(message)
    assert received == sent
    brokers = json.loads(admin(cluster, "brokers", "list", "--json"))
    assert set(map(str, brokers)) == {"broker-1:8080", "broker-2:8080"}
    # Partitions are on both brokers, so calls about them are carried to both.
    for number in range(4):
        stats = json.loads(admin(cluster, "topics", "stats", f"{topic}-partition-{number}", "--json"))
        assert stats["msgInCounter"] == 25


def test_a_client_inside_reaches_the_same_topics(cluster: ComposeCluster, client: pulsar.Client) -> None:
    topic = "persistent://public/default/inside"
    consumer = client.subscribe(topic, "s")
    cluster.run_tools("produce", topic, "-m", "from inside")
    assert consumer.receive(60_000).data() == b"from inside"
    assert "bookie-3" in cluster.run_tools("admin", "bookies", "list-bookies")


def test_the_console_shows_the_cluster(cluster: ComposeCluster) -> None:
    address = cluster.compose.run("port", "console", "8090").strip()
    with urllib.request.urlopen(f"http://{address}/tenants", timeout=60) as page:
        assert b"public" in page.read()


def test_containers_have_no_more_than_they_need(cluster: ComposeCluster) -> None:
    containers = cluster.compose.containers()
    assert set(containers) == set(SERVICES)
    for service, identity in containers.items():
        (found,) = json.loads(cluster.docker.run("inspect", identity))
        host = found["HostConfig"]
        assert host["Memory"] > 0, service
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        for bindings in (host["PortBindings"] or {}).values():
            assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}, service
        if found["Config"]["Image"].startswith("magnetar/"):
            assert found["Config"]["User"] == "10001:10001", service


def test_prometheus_scrapes_everything_and_takes_the_rules(cluster: ComposeCluster) -> None:
    def up() -> dict[str, str]:
        return {
            one["metric"]["instance"]: one["value"][1]
            for one in asked(cluster, "query", query="up")["result"]
        }

    targets = {
        "etcd:2379", "discovery:8080", "console:8090", "127.0.0.1:9090",
        "broker-1:8080", "broker-2:8080", "bookie-1:8000", "bookie-2:8000", "bookie-3:8000",
    }  # fmt: skip
    eventually(lambda: up() == dict.fromkeys(targets, "1"), "all are scraped", 120.0)
    registered = asked(cluster, "query", query="sum by (cluster, job) (magnetar_broker_registered)")["result"]
    assert [one["metric"] for one in registered] == [{"cluster": "magnetar", "job": "broker"}]
    assert registered[0]["value"][1] == "2"

    def rules() -> list[dict[str, Any]]:
        return [rule for group in asked(cluster, "rules")["groups"] for rule in group["rules"]]

    eventually(lambda: all(rule["health"] == "ok" for rule in rules()), "all rules are evaluated", 120.0)
    assert any(rule["name"] == "MagnetarBookieDown" for rule in rules())
    alerts = asked(cluster, "alerts")["alerts"]
    firing = [alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"]
    assert not [name for name in firing if name.endswith("Down")], firing


def test_nothing_confirmed_is_lost_with_a_bookie_or_a_broker_and_all_of_it_outlives_down_and_up(
    cluster: ComposeCluster,
) -> None:
    client = new_client(cluster.service_url)
    topics = [f"persistent://public/default/load-{number}" for number in range(TOPICS)]
    with Load.running(client, topics) as load:
        cluster.kill("bookie-2")
        print(f"compose: a bookie is killed: {load.goes_on('without a bookie'):.1f} s")
        cluster.start()
        load.goes_on("with the bookie again")
        cluster.kill("broker-1")
        print(f"compose: a broker is killed: {load.goes_on('without a broker'):.1f} s")
        cluster.start()
        load.goes_on("with the broker again")
    confirmed = load.confirmed
    client.close()

    began = time.monotonic()
    cluster.compose.down()
    down_s = time.monotonic() - began
    assert cluster.compose.containers() == {}
    cluster.start()
    print(f"compose: {confirmed} confirmed; down {down_s:.1f} s, up again {cluster.healthy_after_s:.1f} s")

    client = new_client(cluster.service_url)
    for line in load.lines:
        read_kept(client, line)
        consumer = client.subscribe(line.topic, WORK)
        client.create_producer(line.topic).send(b"new")
        # Everything before it was acknowledged, and the cluster stopped in good order.
        assert consumer.receive(60_000).data() == b"new"
    client.close()
