"""The chart, rendered: the objects that helm would send to Kubernetes, and ways to ask them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

from tools.chart.values_file import CHART, ROOT
from tools.deploy_setup import helm_program

RELEASE: Final = "magnetar"
NAMESPACE: Final = "messaging"
SMALL: Final = CHART / "values-small.yaml"
SECURE: Final[Mapping[str, Any]] = yaml.safe_load((CHART / "values-secure.yaml").read_text(encoding="utf-8"))
SERVICES: Final = ("bookie", "broker", "discovery")
COMPONENT: Final = "app.kubernetes.io/component"
HELM_SECONDS_MAX: Final = 60

BARE: Final = {
    "serviceAccounts.create": False,
    "rbac.create": False,
    "networkPolicy.enabled": False,
    "bookie.rackFrom": "none",
    **{
        f"{component}.{key}": value
        for component in ("bookie", "broker", "discovery", "etcd")
        for key, value in (
            ("antiAffinity", "none"),
            ("zoneSpread", "none"),
            ("podDisruptionBudget.enabled", False),
        )
    },
}
EVERYTHING: Final[Mapping[str, Any]] = {
    "clusterName": "eu",
    "commonLabels": {"team": "messaging"},
    "image.registry": "registry.example.com/ours/",
    "image.pullSecrets": [{"name": "registry"}],
    "serviceAccounts.annotations": {"example.com/role": "cold"},
    "bookie.replicas": 5,
    "bookie.storage": {"size": "2Ti", "storageClassName": "fast", "annotations": {"a": "b"}},
    "bookie.podAnnotations": {"c": "d"},
    "bookie.podLabels": {"e": "f"},
    "bookie.nodeSelector": {"disk": "nvme"},
    "bookie.tolerations": [{"key": "bookies", "operator": "Exists"}],
    "bookie.priorityClassName": "storage",
    "bookie.env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
    "bookie.volumes": [{"name": "certificates", "secret": {"secretName": "bookie"}}],
    "bookie.volumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
    "bookie.config": {"tlsCertificatePath": "/certificates/tls.crt", "tlsKeyStore": "/certificates/tls.key"},
    "broker.affinity": {"nodeAffinity": {}},
    "broker.config": {"maxMessageSize": 10485760, "subscriptionTypesEnabled": ["Shared", "Failover"]},
    "discovery.proxy": True,
    "discovery.service": {
        "type": "LoadBalancer",
        "annotations": {"g": "h"},
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "nodePorts": {"pulsar": 30650},
        "externalTrafficPolicy": "Local",
    },
    "console.enabled": True,
    "console.podAnnotations": {"k": "l"},
    "console.podLabels": {"m": "n"},
    "console.nodeSelector": {"zone": "office"},
    "console.tolerations": [{"operator": "Exists"}],
    "console.priorityClassName": "low",
    "console.env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
    "console.config": {"magnetarConsoleShutdownTimeoutMs": 20_000},
    "console.service": {"type": "NodePort", "annotations": {"o": "p"}},
    "etcd.replicas": 5,
    "etcd.extraArguments": ["--heartbeat-interval=200"],
    "etcd.podAnnotations": {"i": "j"},
    "offload.enabled": True,
    "offload.location": "file:///cold/eu",
    "offload.existingSecret": "object-store",
    "offload.volume.existingClaim": "cold",
    "offload.extraArguments": ["--json"],
    "offload.env": [{"name": "LC_ALL", "value": "C.UTF-8"}],
    "offload.nodeSelector": {"spot": "yes"},
    "offload.tolerations": [{"operator": "Exists"}],
    "offload.priorityClassName": "low",
    "backup.enabled": True,
    "backup.existingClaim": "copies",
    "tools.enabled": True,
    "networkPolicy.jobsFrom": [{"namespaceSelector": {"matchLabels": {"spark": "yes"}}}],
    "networkPolicy.clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "networkPolicy.consoleFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
    "networkPolicy.metricsFrom": [{"namespaceSelector": {"matchLabels": {"prometheus": "yes"}}}],
    "metrics.podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "metrics.prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "metrics.dashboards.enabled": True,
}
EXTERNAL: Final = {"etcd.enabled": False, "externalEtcd.endpoints": ["a.example.com:2379", "10.0.0.2:2379"]}
VALUE_SETS: Final[Mapping[str, tuple[Mapping[str, Any], bool]]] = {
    "defaults": ({}, False),
    "small": ({}, True),
    "small-offload": (
        {"offload.enabled": True, "offload.location": "s3://cold/x", "tools.enabled": True},
        True,
    ),
    "bare": (BARE, False),
    "everything": (EVERYTHING, False),
    "external-etcd": (EXTERNAL, False),
    "secure": (
        {**SECURE, "tools.enabled": True, "console.enabled": True, "metrics.podMonitor.enabled": True},
        False,
    ),
    "secure-external-etcd": (
        {
            **SECURE,
            **EXTERNAL,
            "tls.etcd.existingSecret": "etcd-client",
            "auth.basic.existingSecret": "passwords",
            "auth.openid": {
                "enabled": True,
                "allowedTokenIssuers": ["https://issuer.example.com"],
                "allowedAudiences": ["magnetar"],
                "roleClaim": "sub",
                "trustSecret": "issuer",
            },
        },
        False,
    ),
    "service-monitor": ({"metrics.serviceMonitor.enabled": True, "bookie.rackFrom": "node"}, False),
}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """What `helm template` gave for some values."""

    objects: Sequence[Object]

    def of(self, kind: str, component: str = "") -> list[Object]:
        """Objects of a kind, of one component if that is said."""
        return [
            one
            for one in self.objects
            if one["kind"] == kind and component in ("", one["metadata"]["labels"].get(COMPONENT))
        ]

    def only(self, kind: str, component: str = "") -> Object:
        (found,) = self.of(kind, component)
        return found

    def workload(self, component: str) -> Object:
        """What makes a component's pods."""
        (found,) = (
            one
            for one in self.objects
            if one["kind"] in _POD_OF and one["metadata"]["labels"][COMPONENT] == component
        )
        return found

    def pod(self, component: str) -> Object:
        """The specification of a component's pods."""
        spec: Object = pod_template(self.workload(component))["spec"]
        return spec

    def container(self, component: str) -> Object:
        (found,) = self.pod(component)["containers"]
        assert isinstance(found, dict)
        return found

    def pods(self) -> Iterator[tuple[str, Object]]:
        """Names and specifications of all pods."""
        for one in self.objects:
            if one["kind"] in _POD_OF:
                yield one["metadata"]["name"], pod_template(one)["spec"]

    def settings(self, component: str) -> str:
        """The properties file of a service."""
        text: str = self.only("ConfigMap", component)["data"][f"{component}.conf"]
        return text


_POD_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "StatefulSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Job": ("spec", "template"),
    "Pod": (),
}


def pod_template(workload: Object) -> Object:
    """Labels, annotations and specification of its pods."""
    for key in _POD_OF[workload["kind"]]:
        workload = workload[key]
    return workload


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm at the root of the repository."""
    program = helm_program()
    assert program is not None, "the fixture `chart` skips without helm"
    return subprocess.run(
        [str(program), *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_SECONDS_MAX,
    )


def arguments_of(values: Mapping[str, Any], *, small: bool = False) -> tuple[str, ...]:
    """As helm takes them; a value's name has dots in it."""
    files = ("--values", str(SMALL)) if small else ()
    return (*files, *(part for key, value in values.items() for part in ("--set-json", _setting(key, value))))


def _setting(key: str, value: Any) -> str:
    return f"{key}={json.dumps(value)}"


def render(
    values: Mapping[str, Any] = {}, *, small: bool = False, release: str = RELEASE, kubernetes: str = "1.34"
) -> Rendered:
    """Render it; what is refused fails the test. Values by their names: {"bookie.replicas": 5}."""
    return _rendered((*arguments_of(values, small=small), "--kube-version", kubernetes), release)


@cache
def _rendered(arguments: tuple[str, ...], release: str) -> Rendered:
    done = helm("template", release, str(CHART), "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    return Rendered([one for one in yaml.safe_load_all(done.stdout) if one])


def refusal(values: Mapping[str, Any]) -> str:
    """Why helm refuses the values."""
    done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments_of(values))
    assert done.returncode != 0, "helm took it"
    return done.stderr


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector with matchLabels and matchExpressions (In, Exists) takes these labels."""
    for expression in selector.get("matchExpressions", ()):
        has = expression["key"] in labels
        if expression["operator"] == "In":
            has = labels.get(expression["key"]) in expression["values"]
        if not has:
            return False
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def labels_of(workload: Object) -> dict[str, str]:
    """Of its pods."""
    labels: dict[str, str] = pod_template(workload)["metadata"]["labels"]
    return labels


def named(entries: list[Object]) -> dict[str, Object]:
    """By their names."""
    return {entry["name"]: entry for entry in entries}
