"""Apache Pulsar's own admin clients, in Java and Go, ask a broker of a cluster that does not serve what they
ask for: they follow it to the brokers that do, with whatever they send.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pulsar
import pytest

from tests.cluster.processes import BrokerProcess
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.admin_programs import SERVER_SETTINGS, command, drive, publish_ten
from tests.integration.harness import temporary_directory

SETTINGS = {
    **SERVER_SETTINGS,
    # Nothing is killed here, and a busy machine is no reason to lose what is looked at.
    "metadataStoreSessionTimeoutMillis": "30000",
}
PATIENCE_S = 20
RUN_SECONDS_MAX = 300.0

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[WholeCluster]:
    directory = temporary_directory()
    with WholeCluster.serving(directory, brokers=2, discoveries=0, broker_settings=SETTINGS) as cluster:
        yield cluster
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize(
    ("language", "checks_min", "tenant"), [("java", 150, "java-admin"), ("go", 110, "go-admin")]
)
def test_an_admin_client_follows_to_the_brokers_that_serve_what_it_asks_for(
    cluster: WholeCluster,
    topic: str,
    language: str,
    checks_min: int,
    tenant: str,
) -> None:
    command(language)  # built before the cluster is asked for anything
    owner = cluster.owner_of(topic)
    asked = next(broker for broker in cluster.brokers if broker is not owner)
    client = pulsar.Client(owner.endpoint.service_url)
    publish_ten(client, topic)
    client.close()
    assert asked.where(topic) == owner.endpoint.service_url
    drive(language, asked.endpoint, topic, checks_min, patience_s=PATIENCE_S, run_s_max=RUN_SECONDS_MAX)
    served = {broker.name: bundles_of(broker, f"{tenant}/ns") for broker in cluster.brokers}
    assert all(served.values()), f"its namespace was on one broker alone: {served}"


def bundles_of(broker: BrokerProcess, namespace: str) -> set[str]:
    """The bundles of a namespace that the broker has ever had."""
    lines = [json.loads(line) for line in broker.log_path.read_text().splitlines() if line.startswith("{")]
    return {
        line["bundle"]
        for line in lines
        if line.get("event") == "bundle owned" and line.get("namespace") == namespace
    }
