"""Tier 2 with TLS and authentication: the chart with values-secure.yaml, on certificates of cert-manager.

The tests share one release and run in their order, as an operator's days do.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pulsar
import pytest

from tests.deploy.secure_programs import HANDSHAKE, REFUSED, WRITE_METADATA
from tests.integration.harness import eventually, magnetar_command
from tests.kubernetes.images import load_images
from tests.kubernetes.kube_cluster import KubeCluster
from tests.kubernetes.port_forward import forwarded
from tests.kubernetes.record import Record, program_version
from tests.kubernetes.release import RELEASE, SECURE, SMALL, Release
from tests.kubernetes.tiers import cannot_run, why_no_time

RECORD_PART: Final = "secure"
COMPONENTS: Final = {"etcd": 1, "bookie": 3, "broker": 2, "discovery": 1, "tools": 1}
"""Pods of each, in the values for a small node with the tools pod."""
CERTIFICATES: Final = "certificates.cert-manager.io"
MESSAGES: Final = 100
REFRESH_S: Final = 5
COMMAND_SECONDS_MAX: Final = 300.0
ROTATION_SECONDS_MAX: Final = 360.0
"""A kubelet brings a changed secret to its pods within about 90 s."""
TOPIC: Final = "persistent://public/default/secure"

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@dataclass(frozen=True, slots=True)
class Secure:
    """The release, and how clients outside of the cluster reach it."""

    release: Release
    service_url: str
    admin_url: str
    authority: Path
    """Certificate of the authority that clients trust."""
    directory: Path

    def token(self, role: str) -> Path:
        """File with the token of a role, signed by the cluster's key."""
        file = self.directory / f"{role}.jwt"
        if not file.exists():
            key = self.directory / "secret.key"
            key.write_bytes(secret(self.release, "magnetar-token-key", "secret.key"))
            signed = ("tokens", "create", "--secret-key", f"file:{key}", "--subject", role)
            file.write_text(self.release.run([*magnetar_command(), *signed], COMMAND_SECONDS_MAX))
        return file

    def try_client(self, *arguments: str, token: Path | None) -> subprocess.CompletedProcess[str]:
        """Call `magnetar produce` or `consume` from outside and return its outcome."""
        command = [*magnetar_command(), *arguments, "--url", self.service_url]
        return self._call([*command, "--tls-trust-cert-path", str(self.authority)], token)

    def try_admin(self, *arguments: str, token: Path | None) -> subprocess.CompletedProcess[str]:
        """Call `magnetar admin` from outside and return its outcome."""
        options = ["--admin-url", self.admin_url, "--tls-trust-cert-path", str(self.authority)]
        options += ["--token", f"file:{token}"] if token else []
        return self._call([*magnetar_command(), "admin", *options, *arguments], None)

    def _call(self, command: Sequence[str], token: Path | None) -> subprocess.CompletedProcess[str]:
        credentials = ["--token", f"file:{token}"] if token else []
        return subprocess.run(
            [*command, *credentials],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )

    def publish(self, name: str, token: Path) -> list[str]:
        """Publish messages `<name>-<number>`, all of which are confirmed; returns them."""
        messages = [f"{name}-{number}" for number in range(MESSAGES)]
        done = self.try_client("produce", TOPIC, "-m", ",".join(messages), token=token)
        assert done.returncode == 0, done.stderr
        return messages

    def consume(self, subscription: str, count: int, token: Path) -> list[str]:
        """Return what a subscription that begins at the first message gets, in its order."""
        options = ("-s", subscription, "-p", "Earliest", "-n", str(count), "--json")
        done = self.try_client("consume", TOPIC, *options, token=token)
        assert done.returncode == 0, done.stderr
        return [str(json.loads(line)["content"]) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def release(
    cluster: KubeCluster, helm: Path, record: Record, tmp_path_factory: pytest.TempPathFactory
) -> Release:
    """The chart, installed with both files of values; every pod is ready."""
    if reason := why_no_time():
        cannot_run(reason)
    found = cluster.try_kubectl("get", "customresourcedefinition", CERTIFICATES)
    if found.returncode != 0:
        cannot_run("the cluster has no cert-manager, which makes certificates for values-secure.yaml")
    installed = Release(
        cluster, record, chosen_values(), tmp_path_factory.mktemp("secure"), files=(SMALL, SECURE)
    )
    if cluster.loads_images:
        load_images(installed)
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    record.fact("Kubernetes", str(nodes[0]["status"]["nodeInfo"]["kubeletVersion"]))
    record.fact("helm", program_version([str(helm), "version", "--short"]))
    installed.install("helm install --wait")
    return installed


def chosen_values() -> dict[str, str]:
    """Beside the files: discovery carries connections of clients outside, and files are checked often."""
    refresh = (
        "bookie.config.tlsCertFilesRefreshDurationSeconds",
        "broker.config.bookkeeperTlsCertFilesRefreshDurationSeconds",
        "broker.config.magnetarServiceTlsRefreshSeconds",
        "broker.config.tlsCertRefreshCheckDurationSec",
        "discovery.config.magnetarServiceTlsRefreshSeconds",
        "discovery.config.tlsCertRefreshCheckDurationSec",
    )
    return {
        "discovery.proxy": "true",
        "tools.enabled": "true",
        **dict.fromkeys(refresh, str(REFRESH_S)),
    }


@pytest.fixture(scope="module")
def secure(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Ports of discovery, forwarded to this machine."""
    directory = tmp_path_factory.mktemp("clients")
    authority = directory / "ca.crt"
    authority.write_bytes(secret(release, "magnetar-discovery-clients-tls", "ca.crt"))
    with forwarded_to(release, [6651, 8443]) as (pulsar_port, https_port):
        found = Secure(
            release,
            f"pulsar+ssl://localhost:{pulsar_port}",
            f"https://localhost:{https_port}",
            authority,
            directory,
        )
        eventually(lambda: page_at(found, "/readyz") == 200, "discovery answers", 60.0)
        yield found


@contextmanager
def forwarded_to(release: Release, ports: Sequence[int]) -> Iterator[list[int]]:
    namespace = release.cluster.namespace
    kubectl = ["kubectl", "--namespace", namespace, "port-forward", f"service/{RELEASE}-discovery"]
    with forwarded(kubectl, release.cluster.environment, ports) as local:
        yield local


def secret(release: Release, name: str, key: str) -> bytes:
    said = release.kubectl("get", "secret", name, "--output", "json")
    return base64.b64decode(json.loads(said)["data"][key])


def page_at(secure: Secure, path: str) -> int:
    """Status of a page over HTTPS, by a certificate that `authority` signed; 0 without an answer."""
    trusted = ssl.create_default_context(cafile=str(secure.authority))
    try:
        with urlopen(f"{secure.admin_url}{path}", timeout=10, context=trusted) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except (URLError, OSError):
        return 0


def pods(release: Release) -> dict[str, tuple[str, int]]:
    """The identity of each pod, and how often its containers were restarted."""
    found = {}
    for component in COMPONENTS:
        for pod in release.objects("pods", component):
            restarts = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
            found[str(pod["metadata"]["name"])] = (str(pod["metadata"]["uid"]), restarts)
    return found


def test_every_pod_is_ready_and_secrets_are_made(release: Release) -> None:
    for component, count in COMPONENTS.items():
        found = release.objects("pods", component)
        assert len(found) == count, component
        for pod in found:
            (status,) = pod["status"]["containerStatuses"]
            assert (status["ready"], status["restartCount"]) == (True, 0), release.describe()
    for name, keys in (
        ("magnetar-token-key", {"secret.key"}),
        ("magnetar-tokens", {"admin.jwt", "broker.jwt", "discovery.jwt"}),
    ):
        assert json.loads(release.kubectl("get", "secret", name, "-o", "json"))["data"].keys() == keys
    assert release.names("jobs") == [], "hooks that succeeded are gone"
    release.noted("what is there", "get", "pods,services,networkpolicies,secrets", "-o", "wide")
    release.noted("certificates", "get", CERTIFICATES)


def test_helm_test_produces_and_consumes_over_tls(release: Release) -> None:
    said = release.helm("helm test", "test", RELEASE, "--logs", "--timeout=300s")
    assert "Phase:          Succeeded" in said


def test_clients_outside_use_tls_and_a_token(secure: Secure) -> None:
    began = time.monotonic()
    admin = secure.token("magnetar-admin")
    messages = secure.publish("outside", admin)
    assert secure.consume("outside", MESSAGES, admin) == messages
    client = pulsar.Client(
        secure.service_url,
        authentication=pulsar.AuthenticationToken(admin.read_text().strip()),
        tls_trust_certs_file_path=str(secure.authority),
        tls_validate_hostname=True,
    )
    try:
        client.create_producer(TOPIC).send(b"by the PyPI client")
    finally:
        client.close()
    listed = secure.try_admin("brokers", "list", "--json", token=admin)
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == COMPONENTS["broker"]
    secure.release.record.note("produce and consume outside, with a token over TLS", time.monotonic() - began)


def test_clients_without_a_right_are_refused(secure: Secure) -> None:
    forged = secure.directory / "forged.jwt"
    header, _, signature = secure.token("magnetar-admin").read_text().strip().split(".")
    claims = base64.urlsafe_b64encode(b'{"sub":"billing"}').decode().rstrip("=")
    forged.write_text(f"{header}.{claims}.{signature}")
    for token in (None, forged):
        done = secure.try_client("produce", TOPIC, "-m", "no", token=token)
        assert done.returncode != 0
        assert "uthenticat" in done.stderr, done.stderr
        answer = secure.try_admin("brokers", "list", token=token)
        assert answer.returncode != 0
        assert "401" in answer.stderr, answer.stderr
    billing = secure.token("billing")
    done = secure.try_client("produce", TOPIC, "-m", "no", token=billing)
    assert done.returncode != 0
    assert "uthoriz" in done.stderr, done.stderr
    grant = ("namespaces", "grant-permission", "public/default", "--role", "billing", "--actions", "produce")
    granted = secure.try_admin(*grant, token=secure.token("magnetar-admin"))
    assert granted.returncode == 0, granted.stderr
    allowed = secure.try_client("produce", TOPIC, "-m", "yes", token=billing)
    assert allowed.returncode == 0, allowed.stderr
    assert secure.try_admin("brokers", "list", token=billing).returncode != 0, "no super user"


def test_no_plain_port_is_open(secure: Secure) -> None:
    """Neither in services nor in the processes themselves, which the pods' loopback interface would reach."""
    release = secure.release
    for component in ("broker", "discovery"):
        for service in release.objects("services", component):
            assert not {6650, 8080} & {port["port"] for port in service["spec"]["ports"]}
        (pod, *_) = release.names("pods", component)
        script = (
            "import socket\n"
            "for port in (6650, 8080, 6651, 8443):\n"
            "    with socket.socket() as probe: print(port, probe.connect_ex(('127.0.0.1', port)) == 0)"
        )
        said = release.kubectl("exec", pod, "--container", component, "--", "python3", "-c", script)
        assert said.split() == ["6650", "False", "8080", "False", "6651", "True", "8443", "True"]


def handshake(
    release: Release, pod: str, component: str, port: int, directory: str
) -> subprocess.CompletedProcess[str]:
    """Call a gRPC port of the component's first pod from another pod, with the certificate in `directory`."""
    domain = f"{RELEASE}-{component}.{release.cluster.namespace}.svc.cluster.local"
    host = f"{RELEASE}-{component}-0.{domain}"
    script = ("python3", "-c", HANDSHAKE, host, str(port), directory)
    return release.cluster.try_kubectl("exec", pod, "--", *script)


INTERNAL: Final = (("bookie", 3181), ("broker", 6750), ("etcd", 2379))


def test_services_take_certificates_of_services_alone(release: Release) -> None:
    tools, broker = release.names("pods", "tools")[0], release.names("pods", "broker")[0]
    for component, port in INTERNAL:
        known = handshake(release, tools, component, port, "/run/magnetar/services-tls")
        assert known.returncode == 0, known.stderr
        without = handshake(release, tools, component, port, "")
        assert without.returncode != 0, component
        assert re.search(REFUSED, without.stderr), without.stderr
        clients = handshake(release, broker, component, port, "/run/magnetar/clients-tls")
        assert clients.returncode != 0, "a certificate of the clients' authority is no service's"
        assert re.search(REFUSED, clients.stderr), clients.stderr


ETCD_FILES: Final = (("cacert", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))


def etcdctl(release: Release, *arguments: str) -> str:
    pod = release.names("pods", "etcd")[0]
    files = [f"--{flag}=/run/magnetar/services-tls/{file}" for flag, file in ETCD_FILES]
    return release.kubectl(
        "exec", pod, "--", "etcdctl", "--endpoints=https://localhost:2379", *files, *arguments
    )


def test_users_of_etcd_have_least_rights(release: Release) -> None:
    users = set(etcdctl(release, "user", "list").split())
    services = {f"magnetar-{name}" for name in ("admin", "backup", "bookie", "broker", "discovery", "etcd")}
    assert users == {"root", *services}
    said = etcdctl(release, "role", "get", "magnetar-bookie")
    assert "/magnetar/magnetar/v1/bookies/" in said
    release.record.note("rights of bookies in etcd", 0.0, ["etcdctl", "role", "get", "magnetar-bookie"], said)
    discovery = release.names("pods", "discovery")[0]
    done = release.cluster.try_kubectl("exec", discovery, "--", "python3", "-c", WRITE_METADATA)
    assert "keys read" in done.stdout, done.stderr
    assert "permission denied" in done.stderr


class Publisher:
    """Publishes one message after the other from outside until it is stopped, and keeps the first error."""

    def __init__(self, secure: Secure) -> None:
        self.confirmed = 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._client = pulsar.Client(
            secure.service_url,
            authentication=pulsar.AuthenticationToken(secure.token("magnetar-admin").read_text().strip()),
            tls_trust_certs_file_path=str(secure.authority),
        )
        self._producer = self._client.create_producer("persistent://public/default/rotation")
        self._thread = threading.Thread(target=self._publish, name="publisher")

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def _publish(self) -> None:
        try:
            while not self._over.wait(0.02):
                self._producer.send(b"%d" % self.confirmed)
                self.confirmed += 1
        except BaseException as error:
            self.error = error


def renew(release: Release, names: Sequence[str]) -> None:
    """Have cert-manager issue certificates anew, as its command line does."""
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "asked for by a test",
        "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name in names:
        there = json.loads(release.kubectl("get", CERTIFICATES, name, "--output", "json"))["status"]
        others = [each for each in there["conditions"] if each["type"] != "Issuing"]
        patch = json.dumps({"status": {"conditions": [*others, condition]}})
        release.kubectl("patch", CERTIFICATES, name, "--subresource=status", "--type=merge", "--patch", patch)


def serial_outside(url: str, authority: Path) -> str:
    """The serial number of the certificate that clients outside get."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection((host, int(port)), 10) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            certificate = tls.getpeercert()
    except OSError:  # the port forward is just made anew
        return ""
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_renewed_certificates_are_served_without_a_restart_and_without_one_failed_publish(
    secure: Secure,
) -> None:
    release = secure.release
    tools = release.names("pods", "tools")[0]

    def serials() -> dict[str, str]:
        found = {url: serial_outside(url, secure.authority) for url in (secure.service_url, secure.admin_url)}
        for component, port in INTERNAL:
            done = handshake(release, tools, component, port, "/run/magnetar/services-tls")
            found[f"{component}:{port}"] = done.stdout.strip()
        return found

    before, running = serials(), pods(release)
    assert all(before.values())
    listed: list[dict[str, Any]] = json.loads(release.kubectl("get", CERTIFICATES, "-o", "json"))["items"]
    leaves = [str(one["metadata"]["name"]) for one in listed if not one["spec"].get("isCA")]
    began = time.monotonic()
    with Publisher(secure) as publisher:
        renew(release, leaves)

        def renewed() -> bool:
            now = serials()
            return all(now[port] not in ("", before[port]) for port in before)

        eventually(renewed, f"new certificates at {', '.join(before)}", ROTATION_SECONDS_MAX)
        lasted_s = time.monotonic() - began
        confirmed = publisher.confirmed
        eventually(
            lambda: publisher.confirmed > confirmed + 10 or publisher.error is not None, "publishes go on"
        )
    assert publisher.error is None, publisher.error
    assert pods(release) == running, "nothing was restarted"
    release.record.note(f"{len(leaves)} certificates renewed, until all ports serve them", lasted_s)
    text = (
        f"{publisher.confirmed:,} messages were confirmed to a client outside meanwhile, without an error;\n"
        "no container was restarted. The kubelet brings changed secrets to pods after up to 90 s; services\n"
        f"checked their files every {REFRESH_S} s."
    )
    release.record.section("Renewed certificates", text)


def test_an_upgrade_keeps_tokens_and_messages(secure: Secure) -> None:
    release = secure.release
    admin = secure.token("magnetar-admin")
    keys = {name: secret(release, "magnetar-tokens", name) for name in ("admin.jwt", "broker.jwt")}
    messages = secure.publish("before-the-upgrade", admin)
    values = {"broker.logLevel": "warning", "discovery.logLevel": "warning"}
    began = time.monotonic()
    command = release.upgrade_command(values)
    release.run(command, COMMAND_SECONDS_MAX + 60.0)
    release.record.note("helm upgrade of brokers and discovery", time.monotonic() - began, command)
    assert {name: secret(release, "magnetar-tokens", name) for name in keys} == keys
    eventually(lambda: page_at(secure, "/readyz") == 200, "discovery answers", 60.0)
    everything = secure.consume("after-the-upgrade", 2 * MESSAGES + 2, admin)
    assert everything[-MESSAGES:] == messages


def test_an_uninstalled_release_comes_back_with_its_messages_users_and_tokens(secure: Secure) -> None:
    release = secure.release
    admin = secure.token("magnetar-admin")
    messages = secure.publish("kept", admin)
    release.helm("helm uninstall --wait", "uninstall", RELEASE, "--wait", "--timeout=300s")
    eventually(
        lambda: not any(release.objects("pods", one) for one in COMPONENTS), "the pods are gone", 120.0
    )
    release.noted("what an uninstall leaves", "get", "pods,pvc,secrets")
    release.install("helm install --wait, on the claims and secrets of the former release")
    eventually(lambda: page_at(secure, "/readyz") == 200, "discovery answers", 60.0)
    assert secure.consume("later", 3 * MESSAGES + 2, admin)[-MESSAGES:] == messages
    assert "magnetar-broker" in etcdctl(release, "user", "list")
    release.helm("helm uninstall --wait, at the end", "uninstall", RELEASE, "--wait", "--timeout=300s")
