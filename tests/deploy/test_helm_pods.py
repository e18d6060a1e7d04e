"""The chart: how its pods are kept, what they may do, where they run, and what outlives them."""

from __future__ import annotations

import json
import re

import pytest
from magnetar.common.config.loader import load

from tests.deploy.chart import (
    BARE,
    COMPONENT,
    EVERYTHING,
    NAMESPACE,
    SERVICES,
    Object,
    Rendered,
    labels_of,
    named,
    refusal,
    render,
    selects,
)
from tools.chart.schema import SERVICES as CONFIGS
from tools.chart.values_file import CHART
from tools.images.targets import TARGETS, version

pytestmark = pytest.mark.usefixtures("helm_is_there")

# -- pods


def test_every_container_is_unprivileged_and_bounded(rendered: Rendered) -> None:
    """What Kubernetes calls the restricted profile, and a file system that nobody can change."""
    seen = 0
    for name, pod in rendered.pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "hostNetwork" not in pod
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            seen += 1
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
    assert seen >= 7


def test_no_service_gets_a_token_or_the_addresses_of_others(rendered: Rendered) -> None:
    """MAGNETAR_BROKER_PORT, which Kubernetes makes of a service's name, would read as a setting."""
    for _, pod in rendered.pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
    for account in rendered.of("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def etcd_of_compose() -> str:
    """The tests of compose and of the node bring this image along."""
    text = (CHART.parents[1] / "docker-compose.yml").read_text(encoding="utf-8")
    (tag,) = re.findall(r"quay\.io/coreos/etcd:\$\{ETCD_VERSION:-(\S+)\}", text)
    return f"quay.io/coreos/etcd:{tag}"


def test_images_are_those_that_are_built_with_the_tag_of_this_version(rendered: Rendered) -> None:
    ours = set()
    for _, pod in rendered.pods():
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            name, _, tag = container["image"].rpartition(":")
            if "magnetar/" in name:
                assert tag == version()
                ours.add(name.rpartition("/")[2])
            else:
                assert container["image"] == etcd_of_compose()
    assert {"bookie", "broker", "discovery", "tools"} <= ours <= TARGETS.keys()


def test_a_digest_comes_before_the_tag_and_a_registry_before_the_name() -> None:
    digest = f"sha256:{'0' * 64}"
    pod = render({"bookie.image.digest": digest, "image.registry": "r.example.com", "image.tag": "9.9.9"})
    assert pod.container("bookie")["image"] == f"r.example.com/magnetar/bookie@{digest}"
    assert pod.container("broker")["image"] == "r.example.com/magnetar/broker:9.9.9"
    assert pod.container("etcd")["image"].startswith("quay.io/")


def test_health_pages_decide_what_is_restarted_and_what_is_served(rendered: Rendered) -> None:
    for component in SERVICES:
        container = rendered.container(component)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        where = {"port": "http"} if "http" in ports else {"port": "https", "scheme": "HTTPS"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", **where}
        assert container["startupProbe"]["httpGet"] == {"path": "/livez", **where}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", **where}
        start = container["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] >= 600, (
            "on a node that pulls and starts all"
        )
        wanted = {"http": 8000 if component == "bookie" else 8080, "https": 8443}
        assert ports[where["port"]] == wanted[where["port"]]


@pytest.mark.parametrize(
    ("component", "key", "seconds", "longer"),
    [
        ("bookie", "magnetarBookieShutdownTimeoutMs", 25, 131),
        ("broker", "brokerShutdownTimeoutMs", 70, 131),
        ("discovery", "magnetarDiscoveryShutdownTimeoutMs", 30, 136),
    ],
)
def test_a_pod_gets_the_time_that_draining_may_take(
    component: str, key: str, seconds: int, longer: int
) -> None:
    default = load(CONFIGS[component]).origins
    assert key in default
    assert render().pod(component)["terminationGracePeriodSeconds"] == seconds
    for given in (120_500, "120500"):
        values = {f"{component}.config": {key: given}}
        if isinstance(given, str):
            assert "got string, want integer" in refusal(values)
        else:
            assert render(values).pod(component)["terminationGracePeriodSeconds"] == longer


def test_discovery_serves_until_no_traffic_is_routed_to_it() -> None:
    """The others are reached by their own names, and tell their clients where to go."""
    waits = {name for name, pod in render().pods() if "preStop" in json.dumps(pod)}
    assert waits == {"magnetar-discovery"}
    assert render().container("discovery")["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    at_once = render({"discovery.leaveSeconds": 0})
    assert "lifecycle" not in at_once.container("discovery")
    assert at_once.pod("discovery")["terminationGracePeriodSeconds"] == 25


def test_a_service_starts_only_when_etcd_answers() -> None:
    for component in SERVICES:
        wait = named(render().pod(component)["initContainers"])["wait-for-etcd"]
        assert wait["image"] == render().container(component)["image"]
        assert wait["command"][2] == "/opt/scripts/wait_for_etcd.py"
        assert wait["command"][3] == ",".join(
            f"magnetar-etcd-{n}.magnetar-etcd.{NAMESPACE}.svc.cluster.local:2379" for n in range(3)
        )
        assert named(wait["volumeMounts"])["scripts"]["mountPath"] == "/opt/scripts"


@pytest.mark.parametrize("component", ["bookie", "broker", "discovery", "etcd"])
def test_pods_of_a_component_keep_apart_as_told(component: str) -> None:
    hard = render({f"{component}.antiAffinity": "hard"}).pod(component)["affinity"]["podAntiAffinity"]
    (term,) = hard["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert selects(term["labelSelector"], labels_of(render().workload(component)))
    soft = render({f"{component}.antiAffinity": "soft"}).pod(component)["affinity"]["podAntiAffinity"]
    assert list(soft) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = render({f"{component}.zoneSpread": "DoNotSchedule"}).pod(component)[
        "topologySpreadConstraints"
    ]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    assert selects(spread["labelSelector"], labels_of(render().workload(component)))
    bare = render(BARE).pod(component)
    assert not {"affinity", "topologySpreadConstraints"} & bare.keys()
    own: Object = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    assert render({f"{component}.affinity": own}).pod(component)["affinity"] == own


def test_copies_are_kept_apart_by_default_where_they_are_precious() -> None:
    for component, kind in (("bookie", "required"), ("etcd", "required"), ("broker", "preferred")):
        (rule,) = render().pod(component)["affinity"]["podAntiAffinity"]
        assert rule.startswith(kind)
        assert render().pod(component)["topologySpreadConstraints"]


def test_a_small_node_takes_the_small_values() -> None:
    cores = memory = 0.0
    small = render(small=True)
    for component, count in (("etcd", 1), ("bookie", 3), ("broker", 2), ("discovery", 1)):
        assert small.workload(component)["spec"]["replicas"] == count
        wanted = small.container(component)["resources"]["requests"]
        cores += count * float(wanted["cpu"].removesuffix("m")) / 1_000
        memory += count * float(wanted["memory"].removesuffix("Mi"))
        assert "requiredDuringSchedulingIgnoredDuringExecution" not in json.dumps(small.pod(component))
    assert cores <= 1.5
    assert memory <= 2_560


def test_pods_with_the_command_line_run_where_they_are_told() -> None:
    where = {"tools.nodeSelector": {"a": "b"}, "tools.tolerations": [{"operator": "Exists"}]}
    chart = render({**EVERYTHING, **where})
    for component in ("tools", "test", "backup", "bookie-check"):
        pod = chart.pod(component)
        assert (pod["nodeSelector"], pod["tolerations"]) == tuple(where.values()), component


# -- storage and availability


@pytest.mark.parametrize("component", ["bookie", "etcd"])
def test_data_is_on_claims_that_outlive_everything(component: str) -> None:
    sets = render({f"{component}.storage.size": "3Ti", f"{component}.storage.storageClassName": "fast"})
    spec = sets.workload(component)["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "3Ti"
    assert claim["spec"]["storageClassName"] == "fast"
    mounts = named(sets.container(component)["volumeMounts"])
    assert mounts[claim["metadata"]["name"]]["mountPath"] == "/data"
    assert sets.pod(component)["securityContext"]["fsGroup"] == 10001
    # Kubernetes refuses any change of a claim's template.
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & claim["metadata"]["labels"].keys()


def test_an_upgrade_of_the_chart_alone_restarts_nothing() -> None:
    for _, one in (
        (one["kind"], one) for one in render().objects if one["kind"] in ("StatefulSet", "Deployment")
    ):
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels_of(one).keys()


def test_disruption_budgets_are_those_of_the_pods(rendered: Rendered) -> None:
    if not rendered.of("PodDisruptionBudget"):
        assert rendered is render(BARE)
        return
    components = {"bookie", "broker", "discovery"} | (
        {"etcd"} if rendered.of("StatefulSet", "etcd") else set()
    )
    for component in components:
        budget = rendered.only("PodDisruptionBudget", component)["spec"]
        assert budget["maxUnavailable"] == 1
        for _, one in (
            (one["kind"], one) for one in rendered.objects if one["kind"] in ("StatefulSet", "Deployment")
        ):
            mine = one["metadata"]["labels"][COMPONENT] == component
            assert selects(budget["selector"], labels_of(one)) is mine
    assert len(rendered.of("PodDisruptionBudget")) == len(components)


def test_bookies_are_replaced_one_by_one_and_brokers_too() -> None:
    for component in ("bookie", "broker", "etcd"):
        spec = render().workload(component)["spec"]
        assert spec["updateStrategy"] == {"type": "RollingUpdate"}
        assert spec["minReadySeconds"] >= 5
        assert spec["podManagementPolicy"] == "Parallel", "a start of all of them needs no order"
    for component in ("bookie", "broker"):
        manual = render({f"{component}.updateStrategy": "OnDelete"}).workload(component)["spec"]
        assert manual["updateStrategy"] == {"type": "OnDelete"}
        assert manual["template"] == render().workload(component)["spec"]["template"], "nothing new to roll"
    rolling = render().workload("discovery")["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 1, "maxUnavailable": 0}
    apart = render({"discovery.antiAffinity": "hard"}).workload("discovery")["spec"]["strategy"]
    assert apart["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}, "the new one needs its place"
