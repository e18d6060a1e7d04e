"""Tier 2: the chart on a real node, with the project's own images: installed, loaded, changed, taken away.

The tests share one release and run in their order, as an operator's days do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.harness import eventually, magnetar_command
from tests.kubernetes.images import CANNOT, images_of, save_images
from tests.kubernetes.node_place import NODE_ADDRESS
from tests.kubernetes.object_store import ACCESS_KEY, REGION, SECRET_KEY
from tests.kubernetes.pods_under_load import PodFault, Report
from tests.kubernetes.record import Record, program_version, size, table
from tests.kubernetes.release import NAMESPACE, RELEASE, Release
from tests.kubernetes.single_node import SingleNode
from tests.kubernetes.tiers import cannot_run

BUCKET: Final = "cold"
STORE_PORT: Final = 9000
COMPONENTS: Final = {"etcd": 1, "bookie": 3, "broker": 2, "discovery": 1}
"""Pods of each, in the values for a small node."""
QUORUMS: Final = ("EnsembleSize", "WriteQuorum", "AckQuorum")
MESSAGES: Final = 300
USER: Final = 10_001
COMMAND_SECONDS_MAX: Final = 300.0
JOB_SECONDS_MAX: Final = 600

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def object_store(node: SingleNode) -> str:
    """The URL of an S3 endpoint that pods reach, with a bucket."""
    arguments = [NODE_ADDRESS, str(STORE_PORT), BUCKET]
    command = [sys.executable, "-m", "tests.kubernetes.object_store", "serve", *arguments]
    node.start_inside("object-store", command)
    return f"http://{NODE_ADDRESS}:{STORE_PORT}"


@pytest.fixture(scope="module")
def release(node: SingleNode, helm: Path, record: Record, object_store: str) -> Release:
    """The chart, installed with the images of this tree; every pod is ready."""
    installed = Release(node, helm, record, chosen_values())
    archive = node.directory / "images.tar"
    began = time.monotonic()
    try:
        images = save_images(images_of(installed.rendered()), archive)
    except CANNOT as error:
        cannot_run(str(error))
    record.note("images: built where they were not up to date, and saved", time.monotonic() - began)
    began = time.monotonic()
    node.worker.import_image(archive)
    record.note(f"images: {size(archive)} imported", time.monotonic() - began)
    archive.unlink()
    record.section("Images", table(("image", "how"), sorted(images.items())))
    record.fact("helm", program_version([str(helm), "version", "--short"]))
    record.fact(
        "containerd, runc", ", ".join(program_version([name, "--version"]) for name in ("containerd", "runc"))
    )
    secret = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": object_store,
    }
    node.plane.kubectl("create", "namespace", NAMESPACE)
    literals = [f"--from-literal={name}={value}" for name, value in secret.items()]
    node.plane.kubectl("--namespace", NAMESPACE, "create", "secret", "generic", "object-store", *literals)
    installed.install("helm install --wait")
    return installed


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
    url = release.service_address().service_url
    release.inside(
        [*magnetar_command(), "produce", topic, "--url", url, "-m", ",".join(messages)], COMMAND_SECONDS_MAX
    )
    return messages


def consumed(release: Release, topic: str, subscription: str, count: int) -> list[str]:
    """What a subscription that begins at the first message gets, in its order."""
    url = release.service_address().service_url
    options = ["-s", subscription, "-p", "Earliest", "-n", str(count), "--json"]
    said = release.inside(
        [*magnetar_command(), "consume", topic, "--url", url, *options], COMMAND_SECONDS_MAX
    )
    return [str(json.loads(line)["content"]) for line in said.splitlines() if line.startswith("{")]


def admin(release: Release, *arguments: str) -> str:
    url = release.service_address().http_url
    return release.inside([*magnetar_command(), "admin", "--admin-url", url, *arguments], COMMAND_SECONDS_MAX)


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
        release.inside(fewer, COMMAND_SECONDS_MAX)
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
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        done = release.node.plane.try_kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))
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


def test_the_offload_job_runs_once_and_brokers_read_what_it_wrote(release: Release) -> None:
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
    release.node.plane.kubectl("--namespace", NAMESPACE, *wait, seconds_max=JOB_SECONDS_MAX + 30.0)
    release.record.note("the offload job: start, Spark, one ledger", time.monotonic() - began)
    release.noted("what the job said", "logs", "job/offload-once", "--tail=20")
    assert json.loads(admin(release, "topics", "offload-status", topic, "--json"))["status"] == "SUCCESS"
    listed = release.inside(
        [
            sys.executable,
            "-m",
            "tests.kubernetes.object_store",
            "list",
            NODE_ADDRESS,
            str(STORE_PORT),
            BUCKET,
        ],
        COMMAND_SECONDS_MAX,
    ).splitlines()
    assert any(key.endswith("_manifest.json") for key in listed), listed
    assert any(key.endswith(".parquet") for key in listed), listed
    assert consumed(release, topic, "everything", 2 * MESSAGES) == [*messages, *more]


def test_what_is_uninstalled_keeps_its_claims_and_an_install_finds_the_messages(release: Release) -> None:
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
