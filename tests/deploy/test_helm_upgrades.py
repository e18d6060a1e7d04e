"""The chart: changes of a release that would cost data are refused, by what helm sees of it.

helm asks an API server that has a release; tests/kubernetes/test_dry_run.py has a real one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import NAMESPACE, RELEASE, Object, arguments_of, helm, pod_template, render
from tests.deploy.json_server import serving
from tools.chart.values_file import CHART

LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "/apis/apps/v1": ("statefulsets", "StatefulSet"),
    "/api/v1": ("configmaps", "ConfigMap"),
}
"""Where the API server lists the kinds that the chart looks up."""

pytestmark = pytest.mark.usefixtures("helm_is_there")


def answer(request: BaseHTTPRequestHandler) -> tuple[int, Any]:
    """As an API server that has what an install with five bookies made."""
    path = request.path.partition("?")[0]
    if path in LISTS:
        name, kind = LISTS[path]
        resource = {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        return 200, {"kind": "APIResourceList", "groupVersion": version, "resources": [resource]}
    for one in render({"bookie.replicas": 5}).objects:
        kinds, name = f"{one['kind'].lower()}s", one["metadata"]["name"]
        if path.endswith(f"/namespaces/{NAMESPACE}/{kinds}/{name}"):
            return 200, one
    return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@pytest.fixture(scope="module")
def api_server() -> Iterator[int]:
    """Its port."""
    with serving(answer) as port:
        yield port


def upgraded(port: int, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """What helm renders when it sees the release."""
    return helm(
        *("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kubeconfig", "/dev/null"),
        *("--dry-run=server", "--kube-apiserver", f"http://127.0.0.1:{port}", *arguments_of(values)),
    )


def jobs(objects: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(objects) if one and one["kind"] == "Job"]


@pytest.mark.parametrize(
    ("values", "reasons"),
    [
        ({"bookie.replicas": 3}, ("this release has 5 bookies", "decommission magnetar-bookie-4", "=4)")),
        ({"etcd.replicas": 5}, ("this release has 3 members", "docs/kubernetes.md#more-and-fewer-pods")),
        ({"clusterName": "other"}, ("clusterName=other: this release has clusterName=magnetar",)),
    ],
)
def test_upgrade_that_would_lose_data_is_refused(
    api_server: int, values: Mapping[str, Any], reasons: tuple[str, ...]
) -> None:
    done = upgraded(api_server, {"bookie.replicas": 5, **values})
    assert done.returncode != 0
    for reason in reasons:
        assert reason in done.stderr


def test_a_job_looks_at_a_bookie_before_an_upgrade_takes_it_away(api_server: int) -> None:
    fewer, same = (upgraded(api_server, {"bookie.replicas": count}) for count in (4, 5))
    assert fewer.returncode == 0, fewer.stderr
    (job,) = jobs(fewer.stdout)
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-rollback,pre-upgrade"
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed", "helm says why"
    (container,) = pod_template(job)["spec"]["containers"]
    assert container["args"][1:] == ["magnetar-bookie", "4", "--must-know"]
    (unchanged,) = jobs(same.stdout)
    assert unchanged["metadata"]["annotations"]["helm.sh/hook"] == "pre-rollback", "an upgrade needs no pod"
    assert pod_template(unchanged)["spec"]["containers"][0]["args"][1:] == ["magnetar-bookie", "5"]


def test_a_script_that_is_an_argument_arrives_as_it_is() -> None:
    """Kubernetes would replace $(NAME) in it."""
    (script, *_) = render().container("bookie-check")["args"]
    assert script == (CHART / "files/leaving_bookies.py").read_text()
    assert "$(" not in script
    assert "$$" not in script


def test_override_allows_removing_bookies_without_the_check(api_server: int) -> None:
    done = upgraded(api_server, {"bookie.replicas": 3, "bookie.scaleDownCheck": False})
    assert done.returncode == 0, done.stderr
    assert not jobs(done.stdout)
