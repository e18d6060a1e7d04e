"""The chart's console: off unless asked for, no rights of its own, and TLS where clients have it."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.config.loader import load
from magnetar.console.config import ConsoleConfig

from tests.deploy.chart import (
    COMPONENT,
    EVERYTHING,
    SECURE,
    Rendered,
    labels_of,
    named,
    refusal,
    render,
    selects,
)

pytestmark = pytest.mark.usefixtures("helm_is_there")

ON = {"console.enabled": True}


def settings(chart: Rendered) -> dict[str, str]:
    lines = chart.settings("console").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def problems(chart: Rendered) -> list[str]:
    told = [f"{key}={value}" for key, value in settings(chart).items()]
    loaded = load(ConsoleConfig, overrides=told)
    assert loaded.ignored_keys == ()
    return [each for each in loaded.value.problems() if "/run/magnetar" not in each]


def test_it_is_off_by_default() -> None:
    assert [one for one in render().objects if one["metadata"]["labels"].get(COMPONENT) == "console"] == []


def test_it_asks_discovery_and_browsers_reach_it() -> None:
    chart = render(ON)
    discovery = chart.only("Service", "discovery")["metadata"]["name"]
    told = settings(chart)
    assert told == {
        "webServiceUrl": f"http://{discovery}:8080",
        "brokerServiceUrl": f"pulsar://{discovery}:6650",
    }
    assert problems(chart) == []
    service = chart.only("Service", "console")["spec"]
    (port,) = service["ports"]
    assert named(chart.container("console")["ports"])[port["targetPort"]]["containerPort"] == 8090
    assert selects({"matchLabels": service["selector"]}, labels_of(chart.workload("console")))


def test_over_tls_it_trusts_the_authority_and_serves_https_alone() -> None:
    chart = render({**SECURE, **ON})
    told = settings(chart)
    assert (told["webServicePort"], told["webServicePortTls"]) == ("", "8493")
    assert told["webServiceUrl"].startswith("https://")
    assert told["brokerServiceUrl"].startswith("pulsar+ssl://")
    assert problems(chart) == []
    container = chart.container("console")
    assert named(container["ports"]).keys() == {"https"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/run/magnetar/clients-tls"} == {each for each in mounts if each.startswith("/run/magnetar")}
    (certificate,) = (
        one for one in chart.of("Certificate") if one["spec"]["commonName"] == "magnetar-console"
    )
    assert chart.only("Service", "console")["metadata"]["name"] in certificate["spec"]["dnsNames"]
    assert (
        certificate["spec"]["secretName"]
        == named(chart.pod("console")["volumes"])["clients-tls"]["secret"]["secretName"]
    )


def test_it_has_no_token_and_no_account_of_the_cluster() -> None:
    pod = render({**SECURE, **ON}).pod("console")
    assert "tokens" not in named(pod["volumes"])
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_policies_let_browsers_in_and_the_console_to_the_cluster() -> None:
    chart = render(EVERYTHING)
    rules: list[dict[str, Any]] = chart.only("NetworkPolicy", "console")["spec"]["ingress"]
    assert [rule["ports"] for rule in rules] == [[{"protocol": "TCP", "port": 8090}]] * 2
    assert [rule["from"] for rule in rules] == [
        EVERYTHING["networkPolicy.consoleFrom"],
        EVERYTHING["networkPolicy.metricsFrom"],
    ]
    labels = labels_of(chart.workload("console"))
    for target in ("broker", "discovery"):
        peers = [
            peer["podSelector"]
            for rule in chart.only("NetworkPolicy", target)["spec"]["ingress"]
            if 8080 in [each["port"] for each in rule["ports"]]
            for peer in rule["from"]
            if "podSelector" in peer
        ]
        assert any(selects(peer, labels) for peer in peers), target
    (rule,) = render(ON).only("NetworkPolicy", "console")["spec"]["ingress"]
    assert "from" not in rule


def test_its_values_reach_its_pod() -> None:
    chart = render(EVERYTHING)
    pod = chart.pod("console")
    assert pod["nodeSelector"] == {"zone": "office"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert {"name": "MALLOC_ARENA_MAX", "value": "2"} in chart.container("console")["env"]
    assert chart.only("Service", "console")["spec"]["type"] == "NodePort"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({**SECURE, "tls.clients.only": False, "tls.clients.requireCertificate": True}, "no certificate"),
        ({**SECURE, "auth.tokens.enabled": False}, "log in with tokens"),
        ({"console.config": {"webServiceUrl": "http://elsewhere"}}, "webServiceUrl"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], why: str) -> None:
    assert why in refusal({**values, **ON})
