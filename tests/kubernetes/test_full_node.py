"""Tier 2: the chart in a real cluster, with the project's own images: installed, loaded, changed, taken away.

The tests share one release and run in their order, as an operator's days do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.harness import eventually, magnetar_command
from tests.kubernetes.images import load_images
from tests.kubernetes.kube_cluster import KubeCluster
from tests.kubernetes.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore, object_store
from tests.kubernetes.pods_under_load import PodFault, Report
from tests.kubernetes.record import Record, program_version, table
from tests.kubernetes.release import RELEASE, Release
from tests.kubernetes.tiers import cannot_run, why_no_time

BUCKET: Final = "cold"
COMPONENTS: Final = {"etcd": 1, "bookie": 3, "broker": 2, "discovery": 1}
"""Pods of each, in the values for a small node."""
QUORUMS: Final = ("EnsembleSize", "WriteQuorum", "AckQuorum")
MESSAGES: Final = 300
USER: Final = 10_001
COMMAND_SECONDS_MAX: Final = 300.0
JOB_SECONDS_MAX: Final = 600

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def nodes(cluster: KubeCluster, record: Record) -> list[dict[str, Any]]:
    """The cluster's nodes, where there is time for all of this."""
    if reason := why_no_time():
        cannot_run(reason)
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    versions = {str(one["status"]["nodeInfo"]["kubeletVersion"]) for one in found}
    record.fact("Kubernetes", ", ".join(sorted(versions)))
    runtimes = {str(one["status"]["nodeInfo"]["containerRuntimeVersion"]) for one in found}
    record.fact("containers run by", ", ".join(sorted(runtimes)))
    return found


@pytest.fixture(scope="module")
def store(nodes: list[dict[str, Any]]) -> Iterator[ObjectStore]:
    """An S3 endpoint that pods reach, with a bucket."""
    addresses = {one["type"]: one["address"] for one in nodes[0]["status"]["addresses"]}
    with object_store(addresses["InternalIP"], BUCKET) as found:
        yield found


@pytest.fixture(scope="module")
def release(
    cluster: KubeCluster,
    helm: Path,
    record: Record,
    store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Release]:
    """The chart, installed with the images of this tree where they can be loaded; every pod is ready."""
    installed = Release(cluster, record, chosen_values(), tmp_path_factory.mktemp("release"))
    if cluster.loads_images:
        load_images(installed)
    record.fact("helm", program_version([str(helm), "version", "--short"]))
    secret = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": store.url,
    }
    literals = [f"--from-literal={name}={value}" for name, value in secret.items()]
    cluster.kubectl("create", "secret", "generic", "object-store", *literals)
    installed.install("helm install --wait")
    with installed.reached():
        yield installed


def chosen_values() -> dict[str, str]:
    """Beside those for a small node.

    Discovery carries connections, as for clients outside. Ledgers go to the object store; the schedule is far
    away, so that the test is who starts the job.
    """
    return {
        "discovery.proxy": "true",
        "offload.enabled": "true",
        "offload.location": f"s3://{BUCKET}/magnetar",
        "offload.existingSecret": "object-store",
        "offload.schedule": "0 0 1 1 *",
    }


def published(release: Release, topic: str, name: str) -> list[str]:
    """Publish messages `<name>-<number>`, of which all are confirmed; returns them."""
    messages = [f"{name}-{number}" for number in range(MESSAGES)]
    url = release.endpoint.service_url
    release.run(
        [*magnetar_command(), "produce", topic, "--url", url, "-m", ",".join(messages)], COMMAND_SECONDS_MAX
    )
    return messages


def consumed(release: Release, topic: str, subscription: str, count: int) -> list[str]:
    """What a subscription that begins at the first message gets, in its order."""
    url = release.endpoint.service_url
    options = ["-s", subscription, "-p", "Earliest", "-n", str(count), "--json"]
    said = release.run([*magnetar_command(), "consume", topic, "--url", url, *options], COMMAND_SECONDS_MAX)
    return [str(json.loads(line)["content"]) for line in said.splitlines() if line.startswith("{")]


def admin(release: Release, *arguments: str) -> str:
    url = release.endpoint.http_url
    return release.run([*magnetar_command(), "admin", "--admin-url", url, *arguments], COMMAND_SECONDS_MAX)


def assert_promises_kept(release: Release, report: Report) -> None:
    """Nothing that was confirmed is lost, reordered, or there twice where messages are deduplicated."""
    assert report.violations == [], release.describe()
    assert report.confirmed > 1_000
    assert report.delivered >= report.confirmed


def noted(release: Release, heading: str, report: Report) -> None:
    rows = [
        (
            f"{fault.name}: {fault.target}",
            f"{fault.publish_p50_s:.1f} s",
            f"{fault.publish_max_s:.1f} s",
            f"{fault.library_s:.1f} s",
            f"{fault.lasted_s:.1f} s",
        )
        for fault in report.faults
    ]
    columns = ("what was done", "half of publishers waited", "longest", "PyPI client", "all ready")
    library = report.counts.get("confirmed to the PyPI client", 0)
    text = (
        f"{report.confirmed:,} messages were confirmed to raw clients and {report.delivered:,} delivered,\n"
        f"to all subscription types; {library:,} more were confirmed to the PyPI client, through discovery.\n"
        "At the end each that was confirmed was where its receipt said, in order, and those of deduplicated\n"
        "topics once. The load, its checker, Kubernetes and the cluster share the machine.\n\n"
    )
    release.record.section(heading, text + table(columns, rows))


def test_every_pod_of_the_release_is_ready_and_unprivileged(release: Release) -> None:
    for component, count in COMPONENTS.items():
        pods = release.objects("pods", component)
        assert len(pods) == count, component
        for pod in pods:
            (container,) = pod["spec"]["containers"]
            (status,) = pod["status"]["containerStatuses"]
            assert (status["ready"], status["restartCount"]) == (True, 0), release.describe()
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            if component != "etcd":
                name = pod["metadata"]["name"]
                user = release.kubectl("exec", name, "--", "python3", "-c", "import os; print(os.getuid())")
                assert int(user) == USER
    release.noted(
        "what is there", "get", "pods,statefulsets,deployments,services,pvc,pdb,cronjobs", "-o", "wide"
    )


def test_helm_test_produces_and_consumes(release: Release) -> None:
    said = release.helm("helm test", "test", RELEASE, "--logs", "--timeout=300s")
    assert "Phase:          Succeeded" in said


def test_pods_deleted_under_load_lose_nothing_confirmed(release: Release) -> None:
    report = release.under_load(
        [
            PodFault("a bookie's pod is deleted", "bookie"),
            PodFault("a broker's pod is deleted", "broker"),
            PodFault("a discovery's pod is deleted", "discovery"),
            PodFault("kill -9 in a bookie's pod", "bookie", crash=True),
            PodFault("kill -9 in a broker's pod", "broker", crash=True),
        ],
        seed=1,
    )
    noted(release, "Pods deleted under load", report)
    assert_promises_kept(release, report)
    assert len(report.faults) == 5


def test_an_upgrade_and_a_rollback_under_load_lose_nothing_confirmed(release: Release) -> None:
    """Both restart all pods of bookies and brokers; the upgrade has bookies first, as in docs."""
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in release.objects("pods")}
    values = {"bookie.rackFrom": "zone", "broker.logLevel": "warning"}  # by a token, from the API server
    bookies_first = release.upgrade_command({**values, "broker.updateStrategy": "OnDelete"})
    report = release.under_load(
        [
            PodFault("helm upgrade, bookies first", command=tuple(bookies_first)),
            PodFault("helm upgrade, then brokers", command=tuple(release.upgrade_command(values))),
            PodFault("helm rollback of both at once", command=tuple(release.rollback_command(1))),
        ],
        seed=2,
    )
    noted(release, "Upgrade and rollback under load", report)
    assert_promises_kept(release, report)
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in release.objects("pods")}
    restarted = {name for name, uid in before.items() if after.get(name) != uid}
    rolled = {name for component in ("bookie", "broker") for name in release.names("pods", component)}
    assert rolled <= restarted, "the configuration reached every pod"
    release.noted("revisions", "get", "pods", "-o", "wide")
    assert "superseded" in release.helm("helm history", "history", RELEASE)


def test_no_upgrade_takes_a_bookie_away_that_has_data(release: Release) -> None:
    """A job asks metadata first; helm alone sees only that one would go."""
    quorums = (f"broker.config.managedLedgerDefault{each}" for each in QUORUMS)
    fewer = release.upgrade_command({"bookie.replicas": "2", **dict.fromkeys(quorums, "2")})
    with pytest.raises(AssertionError, match="pre-upgrade hooks failed"):
        release.run(fewer, COMMAND_SECONDS_MAX)
    why = release.noted("why helm upgrade to two bookies was refused", "logs", "job/magnetar-bookie-check")
    assert "magnetar admin bookies decommission magnetar-bookie-2" in why
    (bookies,) = release.objects("statefulsets", "bookie")
    assert bookies["spec"]["replicas"] == COMPONENTS["bookie"]


def test_a_second_bookie_is_not_evicted_while_one_is_away(release: Release) -> None:
    """The disruption budget keeps what the ack quorum needs, whoever drains nodes."""

    def evict(name: str) -> str:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": release.cluster.namespace},
        }
        path = f"/api/v1/namespaces/{release.cluster.namespace}/pods/{name}/eviction"
        done = release.cluster.try_kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))
        return done.stdout + done.stderr

    before = release.objects("pods", "bookie")
    first, second, _ = (pod["metadata"]["name"] for pod in before)
    assert "Success" in evict(first)
    assert "violate the pod's disruption budget" in evict(second)
    gone = before[0]["metadata"]["uid"]
    eventually(
        lambda: all_ready(release, "bookie", 3, gone), "another one is in the place of the first", 240.0
    )


def all_ready(release: Release, component: str, count: int, gone: str) -> bool:
    pods: list[dict[str, Any]] = release.objects("pods", component)
    return len(pods) == count and all(
        pod["metadata"]["uid"] != gone and status["ready"]
        for pod in pods
        for status in pod["status"].get("containerStatuses", ({"ready": False},))
    )


def test_the_offload_job_runs_once_and_brokers_read_what_it_wrote(
    release: Release, store: ObjectStore
) -> None:
    topic = "persistent://public/default/offloaded"
    admin(release, "topics", "create-subscription", topic, "-s", "everything", "-m", "earliest")
    messages = published(release, topic, "cold")
    admin(release, "topics", "unload", topic)  # closes the ledger: open ones are never offloaded
    more = published(release, topic, "warm")
    assert "messages before" in admin(release, "topics", "offload", topic, "-s", "0")
    cron_job = release.the_only("cronjobs", "offload")
    release.noted("the CronJob, once", "create", "job", "offload-once", f"--from=cronjob/{cron_job}")
    began = time.monotonic()
    wait = ("wait", "--for=condition=Complete", "job/offload-once", f"--timeout={JOB_SECONDS_MAX}s")
    release.cluster.kubectl(*wait, seconds_max=JOB_SECONDS_MAX + 30.0)
    release.record.note("the offload job: start, Spark, one ledger", time.monotonic() - began)
    release.noted("what the job said", "logs", "job/offload-once", "--tail=20")
    assert json.loads(admin(release, "topics", "offload-status", topic, "--json"))["status"] == "SUCCESS"
    listed = store.keys()
    assert any(key.endswith("_manifest.json") for key in listed), listed
    assert any(key.endswith(".parquet") for key in listed), listed
    assert consumed(release, topic, "everything", 2 * MESSAGES) == [*messages, *more]


def test_uninstalled_release_keeps_its_volume_claims_and_messages(release: Release) -> None:
    topic = "persistent://public/default/kept"
    admin(release, "topics", "create-subscription", topic, "-s", "later", "-m", "earliest")
    messages = published(release, topic, "kept")
    claims = {one["metadata"]["name"]: one["spec"]["volumeName"] for one in release.objects("pvc")}
    assert len(claims) >= COMPONENTS["etcd"] + COMPONENTS["bookie"]
    release.helm("helm uninstall --wait", "uninstall", RELEASE, "--wait", "--timeout=300s")
    eventually(
        lambda: not any(release.objects("pods", one) for one in COMPONENTS), "the pods are gone", 120.0
    )
    release.noted("what an uninstall leaves", "get", "pods,pvc")
    assert {one["metadata"]["name"]: one["spec"]["volumeName"] for one in release.objects("pvc")} == claims
    release.install("helm install --wait, on the claims of the former release")
    assert consumed(release, topic, "later", MESSAGES) == messages
    release.helm("helm uninstall --wait, at the end", "uninstall", RELEASE, "--wait", "--timeout=300s")
