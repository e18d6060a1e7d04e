"""The chart's pods, run as containers: they wait for etcd, serve, pass the chart's own test, and end in time.

Between tier 0, which reads what the chart renders, and tier 2, a release in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.deploy.chart import SERVICES, render
from tests.deploy.chart_pods import ChartPods, chart_pods
from tools.images.docker import Docker, DockerFailed

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("helm_is_there")]


@pytest.fixture(scope="module")
def release(
    helm_is_there: None,
    docker: Docker,
    images: dict[str, str],
    etcd_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ChartPods]:
    """The small values; every pod is ready."""
    directory = tmp_path_factory.mktemp("chart")
    directory.chmod(0o755)
    values = {"image.pullPolicy": "Never", "backup.enabled": True, "backup.existingClaim": "copies"}
    chart = render(values, small=True)
    with chart_pods(docker, chart, directory) as pods:
        pods.start("etcd")
        started = [pod for component in SERVICES for pod in pods.start(component)]
        for pod in started:
            pod.container.wait_healthy()
        yield pods


def test_every_probe_of_every_pod_is_answered(release: ChartPods) -> None:
    urls = set()
    for component in ("etcd", *SERVICES):
        for pod in release.of(component):
            (container,) = pod.spec["containers"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                page = container[probe]["httpGet"]
                urls.add(release.address(pod, page["path"], page["port"]))
    assert len(urls) == 2 * 7
    release.ask(sorted(urls))


def test_a_page_that_is_not_there_is_no_answer(release: ChartPods) -> None:
    """Else the test above would show nothing."""
    (pod,) = release.of("discovery")
    with pytest.raises(DockerFailed, match="404"):
        release.ask([release.address(pod, "/elsewhere", "http")])


def test_every_pod_is_known_by_the_name_that_the_chart_gives_it(release: ChartPods) -> None:
    tools = deepcopy(release.chart.only("Pod", "test"))
    tools["spec"]["containers"][0] |= {
        "command": ["/bin/sh", "-euc"],
        "args": ["magnetar admin brokers list; magnetar admin bookies list"],
    }
    said = release.run_to_its_end(tools)
    for component in ("bookie", "broker"):
        for pod in release.of(component):
            assert pod.host in said
    assert "/default-region/magnetar-bookie-2" in said


def test_the_chart_s_own_test_passes(release: ChartPods) -> None:
    said = release.run_to_its_end(render(small=True).only("Pod", "test"))
    assert "100 messages were published and consumed, in order" in said


def test_a_copy_of_the_metadata_is_taken_and_read_back(release: ChartPods) -> None:
    job = release.chart.only("CronJob", "backup")["spec"]["jobTemplate"]["spec"]["template"]
    said = release.run_to_its_end({"metadata": {"name": "backup"}, "spec": job["spec"]})
    taken, verified = re.findall(r"sha256\t(\w+)", said)
    assert taken == verified


def test_a_bookie_that_has_data_is_not_taken_away(release: ChartPods) -> None:
    quorums = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    two = {"broker.config": {f"managedLedgerDefault{each}": 2 for each in quorums}, "bookie.replicas": 2}

    def checked(values: Mapping[str, Any]) -> str:
        job = render(values, small=True).only("Job", "bookie-check")["spec"]["template"]
        return release.run_to_its_end({"metadata": {"name": "bookie-check"}, "spec": job["spec"]})

    assert "no bookie beyond magnetar-bookie-2 has data" in checked({})
    with pytest.raises(DockerFailed, match=r"magnetar-bookie-2 \(up\).* decommission magnetar-bookie-2"):
        checked(two)


def test_pods_end_in_good_order_within_the_time_that_they_get(release: ChartPods) -> None:
    """Brokers one after the other, as in an upgrade: the first has somebody to give its topics to."""
    for component in ("broker", "discovery", "bookie"):
        for pod in release.of(component):
            code, _ = pod.container.stop(pod.spec["terminationGracePeriodSeconds"])
            assert code == 0, pod.container.logs()
