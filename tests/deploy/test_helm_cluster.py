"""The chart: who reaches whom, who may do what, and which settings services get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from magnetar.common.config.loader import Loaded, load

from tests.deploy.chart import (
    BARE,
    COMPONENT,
    EVERYTHING,
    EXTERNAL,
    NAMESPACE,
    RELEASE,
    SERVICES,
    Rendered,
    labels_of,
    named,
    pod_template,
    render,
    selects,
)
from tests.deploy.chart_pods import environment_of
from tests.deploy.chart_secrets import MOUNTS, write_secrets
from tests.etcd_server import EtcdServer
from tools.chart.schema import SERVICES as CONFIGS

pytestmark = pytest.mark.usefixtures("helm_is_there")

# -- addresses


def test_every_service_reaches_the_pods_that_it_is_for(rendered: Rendered) -> None:
    workloads = [one for one in rendered.objects if one["kind"] in ("StatefulSet", "Deployment")]
    services = rendered.of("Service")
    assert len(services) >= 4
    for service in services:
        spec = service["spec"]
        (reached,) = (one for one in workloads if selects({"matchLabels": spec["selector"]}, labels_of(one)))
        assert reached["metadata"]["labels"][COMPONENT] == service["metadata"]["labels"][COMPONENT]
        (container,) = pod_template(reached)["spec"]["containers"]
        there = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["targetPort"]: port["port"] for port in spec["ports"]}.items() <= there.items()
    for one in rendered.of("StatefulSet"):
        (governing,) = (each for each in services if each["metadata"]["name"] == one["spec"]["serviceName"])
        assert governing["spec"]["clusterIP"] == "None"
        assert governing["spec"]["publishNotReadyAddresses"] is True, "who drains has to be reached"


def test_clients_get_the_kind_of_service_that_was_asked_for() -> None:
    service = render(EVERYTHING).only("Service", "discovery")["spec"]
    assert service["type"] == "LoadBalancer"
    assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert service["externalTrafficPolicy"] == "Local"
    assert named(service["ports"])["pulsar"]["nodePort"] == 30650
    assert "nodePort" not in named(service["ports"])["http"]
    assert render().only("Service", "discovery")["spec"]["type"] == "ClusterIP"


def allowed(rendered: Rendered, source: str, target: str, port: int) -> bool:
    """Whether the network policies let a pod of the release with this label reach the port."""
    labels = {
        "app.kubernetes.io/name": "magnetar",
        "app.kubernetes.io/instance": RELEASE,
        COMPONENT: source,
    }
    rules = rendered.only("NetworkPolicy", target)["spec"]["ingress"]
    for rule in rules:
        if port not in [each["port"] for each in rule["ports"]]:
            continue
        if "from" not in rule:
            return True
        if any(selects(peer["podSelector"], labels) for peer in rule["from"] if "podSelector" in peer):
            return True
    return False


def test_unauthenticated_ports_are_reached_from_the_cluster_alone() -> None:
    chart = render()
    reach = {
        ("etcd", 2379): {
            "bookie",
            "broker",
            "discovery",
            "tools",
            "backup",
            "bookie-check",
            "etcd-users",
        },
        ("etcd", 2380): {"etcd"},
        ("bookie", 3181): {"bookie", "broker", "offload", "tools"},
        ("broker", 6750): {"broker", "discovery", "offload", "tools"},
    }
    everybody = {"etcd", "discovery", "offload", "test", "somebody"}.union(*reach.values())
    for (target, port), sources in reach.items():
        assert {source for source in everybody if allowed(chart, source, target, port)} == sources
    for target, port in (
        ("broker", 6650),
        ("broker", 8080),
        ("discovery", 6650),
        ("bookie", 8000),
        ("etcd", 2381),
    ):
        assert allowed(chart, "somebody", target, port)
    for target in ("etcd", "bookie", "broker", "discovery"):
        assert selects(
            chart.only("NetworkPolicy", target)["spec"]["podSelector"], labels_of(chart.workload(target))
        )
    closed = render(EVERYTHING)
    assert not allowed(closed, "somebody", "broker", 6650)
    for target in ("broker", "discovery"):
        let_in = [
            source
            for rule in closed.only("NetworkPolicy", target)["spec"]["ingress"]
            if 8080 in [each["port"] for each in rule["ports"]]
            for source in rule["from"]
        ]
        assert EVERYTHING["networkPolicy.metricsFrom"][0] in let_in, "Prometheus, which is no client"
    assert allowed(closed, "discovery", "broker", 6650)
    assert allowed(closed, "test", "discovery", 6650)
    assert not render(BARE).of("NetworkPolicy")


# -- rights


def test_nothing_may_do_anything_but_bookies_look_at_nodes() -> None:
    chart = render()
    assert not chart.of("Role")
    role, binding = chart.only("ClusterRole"), chart.only("ClusterRoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "magnetar-bookie", "namespace": NAMESPACE}
    ]
    pod = chart.pod("bookie")
    assert pod["serviceAccountName"] == "magnetar-bookie"
    (token,) = (volume["name"] for volume in pod["volumes"] if "projected" in volume)
    holders = [
        container["name"]
        for container in [*pod["initContainers"], *pod["containers"]]
        if token in named(container["volumeMounts"])
    ]
    assert holders == ["rack"], "the bookie itself has no token"
    for values in ({"bookie.rackFrom": "node"}, {"rbac.create": False}, BARE):
        assert not render(values).of("ClusterRole")
    (shared,) = render({"serviceAccounts.create": False}).only("ClusterRoleBinding")["subjects"]
    assert shared == {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}


def test_each_component_has_an_account_of_its_own() -> None:
    chart = render(EVERYTHING)
    for component in ("etcd", "bookie", "broker", "discovery", "offload"):
        account = chart.pod(component)["serviceAccountName"]
        made = chart.only("ServiceAccount", component)["metadata"]
        assert account == made["name"]
        # By annotations clouds give rights on an object store, which nobody else has to do with.
        assert ("annotations" in made) is (component in ("broker", "offload"))
    for _, pod in render(BARE).pods():
        assert pod["serviceAccountName"] == "default"


@pytest.mark.parametrize("source", ["zone", "node", "pod", "none"])
def test_a_bookie_learns_its_rack_as_told(source: str) -> None:
    pod = render({"bookie.rackFrom": source}).pod("bookie")
    (container,) = pod["containers"]
    told = named(container["env"]).get("MAGNETAR_MAGNETAR_BOOKIE_RACK", {}).get("value")
    expected = {"node": "/default-region/$(NODE_NAME)", "pod": "/default-region/$(POD_NAME)"}
    assert told == expected.get(source)
    assert ("--config=/run/rack/rack.conf" in container["args"]) is (source == "zone")
    assert ("rack" in named(pod["initContainers"])) is (source == "zone")
    scripts = render({"bookie.rackFrom": source}).only("ConfigMap", "scripts")["data"]
    assert ("rack_of_node.py" in scripts) is (source == "zone")


# -- settings


@pytest.mark.parametrize("component", SERVICES)
def test_services_take_the_settings_that_they_are_given(
    rendered: Rendered, component: str, tmp_path: Path
) -> None:
    """By the loader that they use: a key or a value it refuses would be a pod that does not start."""
    write_secrets(tmp_path / "secrets", component)
    file = tmp_path / f"{component}.conf"
    file.write_text(rendered.settings(component).replace(MOUNTS, str(tmp_path / "secrets")))
    environment = environment_of(rendered.container(component), f"magnetar-{component}-0")
    loaded: Loaded[Any] = load(CONFIGS[component], files=[file], environ=environment)
    problems = [each for each in loaded.value.problems() if "no such file" not in each]
    assert problems == []
    assert loaded.ignored_keys == ()
    given = {key for key, origin in loaded.origins.items() if origin != "default"}
    assert "clusterName" in given
    assert f"--config=/etc/magnetar/{component}.conf" in rendered.container(component)["args"]


def test_a_pod_is_known_by_a_name_that_stays() -> None:
    chart = render()
    for component, key in (
        ("bookie", "MAGNETAR_ADVERTISED_ADDRESS"),
        ("broker", "MAGNETAR_ADVERTISED_ADDRESS"),
    ):
        told = environment_of(chart.container(component), f"magnetar-{component}-1")
        service = chart.workload(component)["spec"]["serviceName"]
        assert told[key] == f"magnetar-{component}-1.{service}.{NAMESPACE}.svc.cluster.local"
    assert (
        environment_of(chart.container("bookie"), "magnetar-bookie-1")["MAGNETAR_BOOKIE_ID"]
        == "magnetar-bookie-1"
    )


def test_values_arrive_as_they_were_written() -> None:
    given = {
        "maxMessageSize": 5242880,
        "magnetarQuorumPendingBytesMax": 268435456,
        "loadBalancerCPUResourceWeight": 0.5,
        "brokerDeduplicationEnabled": True,
        "subscriptionTypesEnabled": ["Shared", "Failover"],
        "advertisedListeners": "a\\b",
    }
    lines = render({"broker.config": given}).settings("broker").splitlines()
    assert {
        "maxMessageSize=5242880",
        "magnetarQuorumPendingBytesMax=268435456",
        "loadBalancerCPUResourceWeight=0.5",
        "brokerDeduplicationEnabled=true",
        "subscriptionTypesEnabled=Shared,Failover",
        "advertisedListeners=a\\\\b",
        "clusterName=magnetar",
    } <= set(lines)
    command = render({"etcd.quotaBackendBytes": 8589934592}).container("etcd")["command"]
    assert "--quota-backend-bytes=8589934592" in command


def test_a_setting_restarts_the_pods_that_read_it_and_no_others() -> None:
    def checksums(values: Mapping[str, Any]) -> dict[str, str]:
        chart = render(values)
        return {
            component: pod_template(chart.workload(component))["metadata"]["annotations"][
                "checksum/configuration"
            ]
            for component in SERVICES
        }

    before = checksums({})
    for component, key, value in (
        ("bookie", "gcWaitTime", 1000),
        ("broker", "maxMessageSize", 1000000),
        ("discovery", "keepAliveIntervalSeconds", 7),
    ):
        after = checksums({f"{component}.config": {key: value}})
        assert {name for name in SERVICES if after[name] != before[name]} == {component}


def test_etcd_is_bundled_or_external() -> None:
    own = render()
    command = own.container("etcd")["command"]
    members = [f"magnetar-etcd-{n}.magnetar-etcd.{NAMESPACE}.svc.cluster.local" for n in range(3)]
    assert f"metadataStoreUrl=etcd:{','.join(f'{member}:2379' for member in members)}" in own.settings(
        "broker"
    )
    (initial,) = (each for each in command if each.startswith("--initial-cluster="))
    assert initial.partition("=")[2] == ",".join(
        f"magnetar-etcd-{n}=http://{member}:2380" for n, member in enumerate(members)
    )
    assert f"--advertise-client-urls=http://$(POD_NAME).{members[0].partition('.')[2]}:2379" in command
    other = render(EXTERNAL)
    assert not [one for one in other.objects if one["metadata"]["labels"][COMPONENT] == "etcd"]
    for component, key in (
        ("bookie", "metadataServiceUri"),
        ("broker", "metadataStoreUrl"),
        ("discovery", "metadataStoreUrl"),
    ):
        assert f"{key}=etcd:a.example.com:2379,10.0.0.2:2379" in other.settings(component).splitlines()


def test_no_member_of_etcd_is_restarted_for_what_a_restart_does_not_mend(tmp_path: Path) -> None:
    """Every member's /health tells of an alarm, such as a full quota, until somebody has made room in it."""
    container = render().container("etcd")
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    with EtcdServer.running(tmp_path) as etcd:

        def ask(path: str, body: bytes | None = None) -> tuple[int, str]:
            try:
                with urlopen(f"http://{etcd.endpoint}{path}", body, timeout=60) as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as refused:
                return refused.code, refused.read().decode()

        status, said = ask("/v3/cluster/member/list", b"{}")
        assert status == 200, said
        member = json.loads(said)["members"][0]["ID"]
        for alarm in ("NOSPACE", "CORRUPT"):
            raised = {"action": "ACTIVATE", "memberID": member, "alarm": alarm}
            status, said = ask("/v3/maintenance/alarm", json.dumps(raised).encode())
            assert status == 200, said
        assert ask("/health?serializable=true")[0] == 503, "what a probe without exceptions would see"
        for probe in ("livenessProbe", "startupProbe"):
            path = container[probe]["httpGet"]["path"]
            assert "serializable=true" in path, "a member without a leader answers it"
            assert ask(path)[0] == 200, probe


def test_etcd_listens_where_pods_have_their_addresses() -> None:
    for address, host in (("0.0.0.0", "0.0.0.0"), ("::", "[::]")):
        command = render({"bindAddress": address}).container("etcd")["command"]
        for kind, port in (("client", 2379), ("peer", 2380), ("metrics", 2381)):
            assert f"--listen-{kind}-urls=http://{host}:{port}" in command
