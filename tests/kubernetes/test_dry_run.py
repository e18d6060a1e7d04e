"""Tier 1: a real API server judges every object that the chart makes, without running any.

`helm template` and schemas let pass what only the server's own validation knows: a negative number of
replicas, a probe of an unknown scheme, a field that must not change in an upgrade.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from tests.deploy.chart import VALUE_SETS, arguments_of
from tests.kubernetes.kube_cluster import KubeCluster
from tests.kubernetes.operator_definitions import NoDefinitions, operator_definitions
from tests.kubernetes.release import CHART
from tests.kubernetes.tiers import cannot_run

RELEASE: Final = "magnetar"
MORE: Final[Mapping[str, Any]] = {
    "bookie.rackFrom": "zone",
    "metrics.podMonitor.enabled": True,
    "metrics.prometheusRule.enabled": True,
    "metrics.dashboards.enabled": True,
    "offload.enabled": True,
    "offload.location": "s3://cold/magnetar",
    "backup.enabled": True,
    "backup.existingClaim": "copies",
    "tools.enabled": True,
    "discovery.proxy": True,
    "discovery.service.type": "LoadBalancer",
}
"""What an operator may turn on later."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

Render = Callable[..., str]
Helm = Callable[..., str]
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(cluster: KubeCluster) -> Iterator[KubeCluster]:
    """An API server that knows the kinds of Prometheus' operator and of cert-manager.

    Those that are added are removed again.
    """
    try:
        definitions = operator_definitions()
    except NoDefinitions as error:
        cannot_run(str(error))
    added = []
    try:
        for kind, path in definitions.items():
            name = f"customresourcedefinition/{kind}"
            if cluster.try_kubectl("get", name).returncode != 0:
                cluster.kubectl("create", "--filename", str(path))  # apply's own note of it would be too long
                added.append(name)
            cluster.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")
        yield cluster
    finally:
        for name in added:
            cluster.try_kubectl("delete", name, "--wait=false")


@pytest.fixture
def render(server: KubeCluster) -> Render:
    def rendered(values: Mapping[str, Any], small: bool) -> str:
        chosen = arguments_of(values, small=small)
        return server.run(["helm", "template", RELEASE, CHART, "--namespace", server.namespace, *chosen])

    return rendered


def dry_run(server: KubeCluster, objects: str) -> subprocess.CompletedProcess[str]:
    """What the API server says of objects that it does not keep: how it would keep them, or why not."""
    return server.try_kubectl(
        *("apply", "--dry-run=server", "--output", "json", "--filename", "-"), given=objects
    )


def taken(server: KubeCluster, objects: str) -> Objects:
    done = dry_run(server, objects)
    assert done.returncode == 0, done.stderr
    found: Objects = json.loads(done.stdout)["items"]
    return found


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_api_server_takes_every_object_of_the_chart(
    server: KubeCluster, render: Render, name: str
) -> None:
    values, small = VALUE_SETS[name]
    objects = render(values, small)
    stored = taken(server, objects)
    assert len(stored) == sum(line.startswith("kind: ") for line in objects.splitlines())
    assert {"StatefulSet", "Deployment", "Service"} <= {one["kind"] for one in stored}


def test_the_api_server_refuses_what_schemas_let_pass(server: KubeCluster, render: Render) -> None:
    """Else the tests above would show nothing."""
    stored = taken(server, render({}, True))
    replicas, scheme = (
        json.loads(json.dumps(next(one for one in stored if one["kind"] == "StatefulSet"))) for _ in range(2)
    )
    replicas["spec"]["replicas"] = -3
    refused = dry_run(server, json.dumps(replicas))
    assert refused.returncode != 0
    assert "spec.replicas: Invalid value: -3" in refused.stderr
    probe = scheme["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    probe.clear()
    probe["httpGet"] = {"path": "/", "port": 80, "scheme": "FTP"}
    refused = dry_run(server, json.dumps(scheme))
    assert refused.returncode != 0
    assert 'scheme: Unsupported value: "FTP"' in refused.stderr


@pytest.fixture
def helm_on(server: KubeCluster) -> Iterator[Helm]:
    """helm on a release that nothing waits for: the API server's word is all that counts."""

    def on(verb: str, *arguments: str) -> str:
        command = ["helm", verb, *arguments, "--namespace", server.namespace]
        return server.run(command, seconds_max=120.0)

    yield on
    on("uninstall", RELEASE)


def bookies(server: KubeCluster) -> int:
    """How many the API server has been told to keep."""
    said = server.kubectl(
        *("get", "statefulsets", "--selector", "app.kubernetes.io/component=bookie", "--output", "json")
    )
    (found,) = json.loads(said)["items"]
    return int(found["spec"]["replicas"])


NO_PODS: Final = "--no-hooks"
"""Where a bookie is taken away or a rollback begins: the job that looks at bookies would wait for images."""


def test_no_upgrade_or_rollback_changes_what_kubernetes_keeps_as_it_is(
    server: KubeCluster, helm_on: Helm
) -> None:
    """Selectors, claims and services of stateful sets: the API server refuses every change of them."""
    helm_on("install", RELEASE, CHART, *arguments_of({}, small=True))
    before = bookies(server)
    larger = {"bookie.replicas": 4, "bookie.resources.limits.memory": "3Gi", "broker.replicas": 4}
    helm_on("upgrade", RELEASE, CHART, *arguments_of(larger, small=True))
    assert bookies(server) == 4
    helm_on("upgrade", RELEASE, CHART, NO_PODS, *arguments_of(MORE, small=True))
    assert bookies(server) == before
    helm_on("rollback", RELEASE, "2", NO_PODS)
    assert bookies(server) == 4


def test_helm_refuses_an_upgrade_that_would_cost_data(server: KubeCluster, helm_on: Helm) -> None:
    """By what the API server says of the release; tests/deploy/test_helm_upgrades.py has more of it."""
    helm_on("install", RELEASE, CHART, *arguments_of({"bookie.replicas": 5}, small=True))
    for values, reason in (
        ({}, "bookie.replicas=3: this release has 5 bookies"),
        ({"bookie.replicas": 5, "etcd.replicas": 3}, "etcd.replicas=3: this release has 1 members"),
        ({"bookie.replicas": 5, "clusterName": "eu"}, "this release has clusterName=magnetar"),
    ):
        with pytest.raises(AssertionError, match=reason):
            helm_on("upgrade", RELEASE, CHART, *arguments_of(values, small=True))
    fewer = arguments_of({"bookie.replicas": 4}, small=True)
    helm_on("upgrade", RELEASE, CHART, NO_PODS, *fewer)
    assert bookies(server) == 4
    assert "helm.sh/hook: pre-rollback,pre-upgrade" in helm_on("get", "hooks", RELEASE)
    helm_on("upgrade", RELEASE, CHART, *fewer)
    assert "pre-upgrade" not in helm_on("get", "hooks", RELEASE), "nobody goes: no pod is needed"


@pytest.mark.parametrize(
    ("values", "more"),
    [
        pytest.param({}, {}, id="small"),
        pytest.param(MORE, {"magnetar-bookie": ["nodes [] [] [get]"]}, id="more"),
    ],
)
def test_service_accounts_have_no_right_beyond_reading_the_zone(
    server: KubeCluster, helm_on: Helm, values: Mapping[str, Any], more: dict[str, list[str]]
) -> None:
    """As the API server's own authorizer has it, whatever roles the chart brings."""
    helm_on("install", RELEASE, CHART, *arguments_of(values, small=True))
    said = server.kubectl("get", "serviceaccounts", "--output", "json")
    names = [one["metadata"]["name"] for one in json.loads(said)["items"]]
    ours = [name for name in names if name != "default"]
    assert len(ours) >= 3

    def rights(name: str) -> set[str]:
        user = f"system:serviceaccount:{server.namespace}:{name}"
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{server.namespace}",
            "system:authenticated",
        )
        as_groups = [f"--as-group={group}" for group in groups]
        listed = server.kubectl("auth", "can-i", "--list", "--no-headers", f"--as={user}", *as_groups)
        return {" ".join(line.split()) for line in listed.splitlines()}

    everybody = rights("nobody-in-particular")
    found = {name: sorted(rights(name) - everybody) for name in ours}
    assert found == {name: more.get(name, []) for name in ours}
