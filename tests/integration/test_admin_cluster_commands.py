"""The groups of `magnetar admin` about the cluster, as an operator or a script uses them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main

from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

SERVER_SETTINGS: dict[str, str] = {}
"""A server of its own: tests see all clusters and all dynamic settings."""

Asked = Callable[[str], Any]


@pytest.fixture
def completed(endpoint: Endpoint) -> Callable[[str], Result]:
    """Runs a command line in this process."""

    def act(line: str) -> Result:
        arguments = ["admin", "--admin-url", endpoint.http_url, *shlex.split(line)]
        return CliRunner().invoke(main, arguments)

    return act


@pytest.fixture
def asked(completed: Callable[[str], Result]) -> Asked:
    """Runs a command line, which has to succeed; returns the JSON that it printed, None for nothing."""

    def act(line: str) -> Any:
        done = completed(line)
        assert done.exit_code == 0, (line, done.output)
        return json.loads(done.stdout) if done.stdout else None

    return act


def test_clusters_are_made_changed_and_forgotten(asked: Asked, tmp_path: Path) -> None:
    asked(
        "clusters create c2 --url http://c2:8080 --broker-url pulsar://c2:6650 --tls-enable "
        "--auth-plugin token --listener-name outside"
    )
    assert asked("clusters list") == ["c2", "standalone"]
    made = asked("clusters get c2")
    assert made["serviceUrl"] == "http://c2:8080"
    assert made["brokerClientTlsEnabled"] is True
    assert made["listenerName"] == "outside"
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"serviceUrl": "http://f:1", "brokerServiceUrl": "pulsar://f:2"}))
    asked(f"clusters update c2 --cluster-config-file {config} --url http://c2b:8080")
    changed = asked("clusters get c2")
    assert (changed["serviceUrl"], changed["brokerServiceUrl"]) == ("http://c2b:8080", "pulsar://f:2")
    asked("clusters update-peer-clusters c2 --peer-clusters standalone")
    assert asked("clusters get-peer-clusters c2") == ["standalone"]
    asked("clusters update-cluster-migration c2 --service-url http://c3:1 --broker-url pulsar://c3:2")
    assert asked("clusters get-cluster-migration c2")["migratedClusterUrl"] == {
        "serviceUrl": "http://c3:1",
        "brokerServiceUrl": "pulsar://c3:2",
        "empty": False,
    }
    asked("clusters delete c2")
    assert asked("clusters list") == ["standalone"]


def test_failure_domains(asked: Asked) -> None:
    asked("clusters create-failure-domain standalone --domain-name d1 --broker-list b1,b2")
    asked("clusters update-failure-domain standalone --domain-name d1 --broker-list b1")
    assert asked("clusters get-failure-domain standalone --domain-name d1") == {"brokers": ["b1"]}
    assert asked("clusters list-failure-domains standalone") == {"d1": {"brokers": ["b1"]}}
    asked("clusters delete-failure-domain standalone --domain-name d1")
    assert asked("clusters list-failure-domains standalone") == {}


def test_isolation_policies(asked: Asked) -> None:
    asked(
        "ns-isolation-policy set standalone p1 --namespaces 'a/.*,b/.*' --primary 'b1.*' --secondary 'b2.*' "
        "--auto-failover-policy-type min_available "
        "--auto-failover-policy-params min_limit=1,usage_threshold=80 --unload-scope none"
    )
    policy = {
        "namespaces": ["a/.*", "b/.*"],
        "primary": ["b1.*"],
        "secondary": ["b2.*"],
        "auto_failover_policy": {
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
            "policy_type": "min_available",
        },
        "unload_scope": "none",
    }
    assert asked("ns-isolation-policy get standalone p1") == policy
    assert asked("ns-isolation-policy list standalone") == {"p1": policy}
    assert len(asked("ns-isolation-policy brokers standalone")) == 1
    assert asked("ns-isolation-policy broker standalone --broker b1:8080")["policyName"] == "p1"
    asked("ns-isolation-policy delete standalone p1")
    assert asked("ns-isolation-policy list standalone") == {}


def test_brokers_and_their_settings(asked: Asked, completed: Callable[[str], Result], rest: Rest) -> None:
    host = rest.endpoint.http_url.removeprefix("http://")
    assert asked("brokers list") == asked("brokers list standalone") == [host]
    assert asked("brokers leader-broker")["brokerId"] == host
    assert isinstance(asked(f"brokers namespaces standalone --url {host}"), dict)
    key = "maxConcurrentTopicLoadRequest"
    assert key in asked("brokers list-dynamic-config")
    asked(f"brokers update-dynamic-config --config {key} --value 77")
    assert asked("brokers get-all-dynamic-config") == {key: "77"}
    assert asked("brokers get-runtime-config")[key] == "77"
    asked(f"brokers delete-dynamic-config --config {key}")
    assert asked("brokers get-all-dynamic-config") == {}
    assert asked("brokers get-internal-config")["metadataStoreUrl"].startswith("sqlite:")
    assert asked("brokers healthcheck --topic-version V2") == "ok"
    assert asked("brokers version") == version("magnetar-broker")
    asked("brokers backlog-quota-check")
    refused = completed("brokers update-dynamic-config --config clusterName --value x")
    assert (refused.exit_code, "non-dynamic" in refused.output) == (1, True)


def test_broker_stats(asked: Asked) -> None:
    assert isinstance(asked("broker-stats topics -i"), dict)
    assert asked("broker-stats load-report")["loadReportType"] == "LocalBrokerData"
    assert asked("broker-stats monitoring-metrics")[0]["dimensions"] == {}
    assert asked("broker-stats mbeans") == []
    assert asked("broker-stats allocator-stats default")["usedHeapMemory"] > 0


def test_racks_of_bookies(asked: Asked, completed: Callable[[str], Result]) -> None:
    asked("bookies set-bookie-rack -b b1:3181 -r /r1 -hn b1 -g fast")
    assert asked("bookies get-bookie-rack -b b1:3181") == {"rack": "/r1", "hostname": "b1"}
    assert asked("bookies racks-placement") == {"fast": {"b1:3181": {"rack": "/r1", "hostname": "b1"}}}
    asked("bookies delete-bookie-rack -b b1:3181")
    assert asked("bookies racks-placement") == {}
    assert asked("bookies list-bookies") == {"bookies": []}
    assert completed("bookies set-bookie-rack -b b1:3181 -r /").exit_code == 2


def test_resource_quotas(asked: Asked, completed: Callable[[str], Result], namespace: str) -> None:
    default = asked("resource-quotas get")
    bundle = f"-n {namespace} -b 0x00000000_0x40000000"
    asked(f"resource-quotas set {bundle} -mi 1 -mo 2 -bi 3 -bo 4 -mem 5.5 -d")
    assert asked(f"resource-quotas get {bundle}") == {
        "msgRateIn": 1.0,
        "msgRateOut": 2.0,
        "bandwidthIn": 3.0,
        "bandwidthOut": 4.0,
        "memory": 5.5,
        "dynamic": True,
    }
    assert asked("resource-quotas get") == default
    asked(f"resource-quotas reset-namespace-bundle-quota {bundle}")
    assert asked(f"resource-quotas get {bundle}") == default
    half = completed(f"resource-quotas get -n {namespace}")
    assert (half.exit_code, "given together" in half.output) == (2, True)


def test_brokers_of_namespaces_are_shown(
    asked: Asked, completed: Callable[[str], Result], namespace: str
) -> None:
    tenant = namespace.partition("/")[0]
    asked(f"namespaces set-clusters {namespace} -c standalone")
    assert asked(f"namespaces get-clusters {namespace}") == ["standalone"]
    asked(f"namespaces set-allowed-clusters {namespace} -c standalone")
    assert asked(f"namespaces get-allowed-clusters {namespace}") == ["standalone"]
    asked(f"namespaces set-anti-affinity-group {namespace} -g g1")
    assert "g1" in completed(f"namespaces get-anti-affinity-group {namespace}").output
    listed = f"namespaces get-anti-affinity-namespaces -p {tenant} -c standalone -g g1"
    assert asked(listed) == [namespace]
    asked(f"namespaces delete-anti-affinity-group {namespace}")
    assert asked(f"namespaces get-anti-affinity-group {namespace}") is None
    asked(f"namespaces set-bookie-affinity-group {namespace} -pg fast -sg slow")
    assert asked(f"namespaces get-bookie-affinity-group {namespace}") == {
        "bookkeeperAffinityGroupPrimary": "fast",
        "bookkeeperAffinityGroupSecondary": "slow",
    }
    asked(f"namespaces delete-bookie-affinity-group {namespace}")
    asked(f"namespaces update-migration-state {namespace}")
    refused = completed(f"namespaces update-migration-state {namespace} --migrated")
    assert (refused.exit_code, "migration of clients" in refused.output) == (1, True)
