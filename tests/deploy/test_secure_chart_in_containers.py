"""The pods of values-secure.yaml as containers: TLS on all ports, tokens, users of etcd, certificate renewal.

What cert-manager and the hook for tokens do is done beside, by what the chart asks of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any, Final

import pytest

from tests.deploy.chart import NAMESPACE, SECURE, SERVICES, Object, pod_template, render
from tests.deploy.chart_pods import ChartPods, Pod, chart_pods
from tests.deploy.chart_secrets import MOUNTS, SecretFiles
from tests.deploy.secure_programs import HANDSHAKE, REFUSED, WRITE_METADATA
from tests.integration.harness import eventually
from tools.images.docker import Docker, DockerFailed

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("helm_is_there")]

READY_SECONDS_MAX: Final = 240.0
ROTATION_SECONDS_MAX: Final = 120.0
REFRESH_S: Final = 2
INTERNAL: Final = (("bookie", 3181), ("broker", 6750), ("etcd", 2379))
VALUES: Final[dict[str, Any]] = {
    **SECURE,
    "image.pullPolicy": "Never",
    "tools.enabled": True,
    "discovery.proxy": True,
    "bookie.config.tlsCertFilesRefreshDurationSeconds": REFRESH_S,
    "broker.config.bookkeeperTlsCertFilesRefreshDurationSeconds": REFRESH_S,
    "broker.config.magnetarServiceTlsRefreshSeconds": REFRESH_S,
    "broker.config.tlsCertRefreshCheckDurationSec": REFRESH_S,
    "discovery.config.magnetarServiceTlsRefreshSeconds": REFRESH_S,
    "discovery.config.tlsCertRefreshCheckDurationSec": REFRESH_S,
}
PROBE: Final = """
import ssl, sys, urllib.request
unverified = ssl._create_unverified_context()
print(urllib.request.urlopen(sys.argv[1], timeout=20, context=unverified).status)
"""
"""Does what a kubelet does, which verifies no certificate."""


@pytest.fixture(scope="module")
def secrets() -> list[SecretFiles]:
    """The secrets of the release, once it is made."""
    return []


@pytest.fixture(scope="module")
def release(
    helm_is_there: None,
    docker: Docker,
    images: dict[str, str],
    etcd_image: str,
    secrets: list[SecretFiles],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ChartPods]:
    """Every pod of the small values is ready, by its own probe."""
    directory = tmp_path_factory.mktemp("chart")
    directory.chmod(0o755)
    chart = render(VALUES, small=True)
    files = SecretFiles(chart, directory)
    files.issue()
    files.make_tokens(tmp_path_factory.mktemp("tokens"))
    secrets.append(files)
    with chart_pods(docker, chart, directory) as pods:
        pods.start("etcd")
        for component in SERVICES:
            pods.start(component)
        for component in SERVICES:
            for pod in pods.of(component):
                eventually(partial(is_ready, pod), f"{pod.name} is ready", READY_SECONDS_MAX)
        pods.start("tools")
        yield pods


def is_ready(pod: Pod) -> bool:
    """Whether the readiness probe is answered; fails where the container has ended."""
    (container,) = pod.spec["containers"]
    page = container["readinessProbe"]["httpGet"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == page["port"])
    scheme = page.get("scheme", "HTTP").lower()
    assert pod.container.state()["Running"], pod.container.logs()
    try:
        url = f"{scheme}://127.0.0.1:{port}{page['path']}"
        return pod.container.execute("python3", "-c", PROBE, url).strip() == "200"
    except DockerFailed:
        return False


def job(release: ChartPods, component: str) -> Object:
    """The pod of a job, under a name of its own."""
    workload = release.chart.workload(component)
    return {"metadata": {"name": component}, "spec": deepcopy(pod_template(workload)["spec"])}


def tools(release: ChartPods) -> Pod:
    (pod,) = release.of("tools")
    return pod


def handshake(pod: Pod, component: str, port: int, directory: str) -> str:
    host = f"magnetar-{component}-0.magnetar-{component}.{NAMESPACE}.svc.cluster.local"
    return pod.container.execute("python3", "-c", HANDSHAKE, host, str(port), directory).strip()


def test_the_chart_s_own_test_passes_before_and_after_users_of_etcd_are_made(release: ChartPods) -> None:
    test = deepcopy(release.chart.only("Pod", "test"))
    assert "100 messages were published and consumed, in order" in release.run_to_its_end(test)
    said = release.run_to_its_end(job(release, "etcd-users"))
    assert "user magnetar-bookie has role magnetar-bookie" in said
    again = release.run_to_its_end(job(release, "etcd-users"))
    assert again.strip().endswith("access control is on; 0 changes")
    assert "100 messages were published and consumed, in order" in release.run_to_its_end(test)


def test_metadata_is_read_by_jobs_and_written_by_none_but_brokers(release: ChartPods) -> None:
    assert "no bookie beyond magnetar-bookie-2 has data" in release.run_to_its_end(
        job(release, "bookie-check")
    )
    (discovery,) = release.of("discovery")
    with pytest.raises(DockerFailed, match="permission denied"):
        discovery.container.execute("python3", "-c", WRITE_METADATA)
    assert "written" in release.of("broker")[0].container.execute("python3", "-c", WRITE_METADATA)


def test_a_broker_that_starts_with_access_control_on_registers_again(release: ChartPods) -> None:
    broker = release.of("broker")[0]
    release.docker.run("restart", "--time", "70", broker.container.name)
    eventually(lambda: is_ready(broker), "the broker is ready", READY_SECONDS_MAX)
    listed = tools(release).container.execute("magnetar", "admin", "brokers", "list", "--json")
    assert len(json.loads(listed)) == len(release.of("broker"))


def test_no_plain_port_is_open(release: ChartPods) -> None:
    script = (
        "import socket\n"
        "for port in (6650, 8080, 6651, 8443):\n"
        "    with socket.socket() as probe: print(port, probe.connect_ex(('127.0.0.1', port)) == 0)"
    )
    for component in ("broker", "discovery"):
        said = release.of(component)[0].container.execute("python3", "-c", script)
        assert said.split() == ["6650", "False", "8080", "False", "6651", "True", "8443", "True"]


def test_clients_without_a_token_are_refused(release: ChartPods) -> None:
    pod = tools(release)
    topic = "persistent://public/default/refused"
    for command, reason in (
        (f"magnetar produce {topic} -m no", "uthenticat"),
        ("magnetar admin brokers list", "401"),
    ):
        with pytest.raises(DockerFailed, match=reason):
            pod.container.execute("sh", "-c", f"unset MAGNETAR_TOKEN; {command} 2>&1")


def test_services_take_certificates_of_services_alone(release: ChartPods) -> None:
    pod, broker = tools(release), release.of("broker")[0]
    for component, port in INTERNAL:
        assert handshake(pod, component, port, f"{MOUNTS}/services-tls")
        with pytest.raises(DockerFailed, match=REFUSED):
            handshake(pod, component, port, "")
        with pytest.raises(DockerFailed, match=REFUSED):
            handshake(broker, component, port, f"{MOUNTS}/clients-tls")


def test_renewed_certificates_are_served_without_a_restart(
    release: ChartPods, secrets: list[SecretFiles]
) -> None:
    pod = tools(release)
    served = """
import socket, ssl, sys
context = ssl.create_default_context(cafile="/run/magnetar/clients-tls/ca.crt")
for host in sys.argv[1:]:
    for port in (6651, 8443):
        with socket.create_connection((host, port), 20) as raw:
            with context.wrap_socket(raw, server_hostname=host) as tls:
                print(tls.getpeercert()["serialNumber"])
"""
    broker = f"magnetar-broker-0.magnetar-broker.{NAMESPACE}.svc.cluster.local"

    def serials() -> list[str]:
        clients = pod.container.execute("python3", "-c", served, "magnetar-discovery", broker).split()
        return [*clients, *(handshake(pod, *each, f"{MOUNTS}/services-tls") for each in INTERNAL)]

    before = serials()
    assert len(before) == 7
    secrets[0].issue()
    began = time.monotonic()
    eventually(
        lambda: not set(before) & set(serials()), "every port serves another one", ROTATION_SECONDS_MAX
    )
    print(f"chart: all ports served renewed certificates after {time.monotonic() - began:.1f} s")
    said = release.run_to_its_end(deepcopy(release.chart.only("Pod", "test")))
    assert "100 messages were published and consumed, in order" in said
    for component in ("etcd", *SERVICES):
        for each in release.of(component):
            assert each.container.state()["Running"]


def test_pods_end_in_good_order_within_the_time_that_they_get(release: ChartPods) -> None:
    for component in ("broker", "discovery", "bookie"):
        for pod in release.of(component):
            code, _ = pod.container.stop(pod.spec["terminationGracePeriodSeconds"])
            assert code == 0, pod.container.logs()
