"""docker-compose.secure.yml over docker-compose.yml on a real Docker daemon: TLS and tokens from outside."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.deploy.compose_cluster import SERVICES, ComposeCluster, compose_cluster
from tests.integration.harness import magnetar_command

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

TOPIC = "persistent://public/default/secure"
COMMAND_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[ComposeCluster]:
    with compose_cluster("magnetar-secure-test", secure=True) as found:
        print(f"compose: the secure cluster was healthy after {found.healthy_after_s:.1f} s")
        yield found


@pytest.fixture(scope="module")
def certs(cluster: ComposeCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority's certificate and the tokens, copied out of a container as docs/compose.md says."""
    directory = tmp_path_factory.mktemp("certs")
    discovery = cluster.compose.containers()["discovery"]
    for name in ("clients-ca.cert.pem", "admin.jwt"):
        cluster.docker.run("cp", f"{discovery}:/certs/dev/{name}", str(directory / name))
    return directory


def magnetar(certs: Path, *arguments: str, token: bool = True) -> subprocess.CompletedProcess[str]:
    """Call the command outside of the containers' network, with or without the super user's token."""
    trust = ("--tls-trust-cert-path", str(certs / "clients-ca.cert.pem"))
    credentials = ("--token", f"file:{certs / 'admin.jwt'}") if token else ()
    verb, *others = arguments
    command = [*magnetar_command(), verb, *trust, *credentials, *others]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS_MAX
    )  # fmt: skip


def test_every_service_is_healthy_and_certificates_were_made(cluster: ComposeCluster) -> None:
    states = {name: state.strip() for name, state in cluster.compose.states().items()}
    assert states.pop("certs") == "exited 0"
    assert states.keys() == set(SERVICES)
    assert set(states.values()) <= {"running", "running healthy"}


def test_a_client_outside_produces_and_consumes_over_tls_with_a_token(
    cluster: ComposeCluster, certs: Path
) -> None:
    done = magnetar(certs, "produce", TOPIC, "--url", cluster.service_url, "-m", "hello")
    assert done.returncode == 0, done.stderr
    client = pulsar.Client(
        cluster.service_url,
        authentication=pulsar.AuthenticationToken((certs / "admin.jwt").read_text().strip()),
        tls_trust_certs_file_path=str(certs / "clients-ca.cert.pem"),
        tls_validate_hostname=True,
    )
    try:
        consumer = client.subscribe(TOPIC, "outside", initial_position=pulsar.InitialPosition.Earliest)
        assert consumer.receive(60_000).data() == b"hello"
    finally:
        client.close()
    listed = magnetar(certs, "admin", "--admin-url", cluster.http_url, "brokers", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == 2


def test_a_client_without_a_token_is_refused(cluster: ComposeCluster, certs: Path) -> None:
    done = magnetar(certs, "produce", TOPIC, "--url", cluster.service_url, "-m", "no", token=False)
    assert done.returncode != 0
    assert "uthenticat" in done.stderr, done.stderr
    listed = magnetar(certs, "admin", "--admin-url", cluster.http_url, "brokers", "list", token=False)
    assert listed.returncode != 0
    assert "401" in listed.stderr, listed.stderr


def test_a_client_that_trusts_another_authority_gets_no_connection(cluster: ComposeCluster) -> None:
    host, _, port = cluster.service_url.rpartition("://")[2].rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(raw, server_hostname=host)


def test_commands_inside_are_a_super_users(cluster: ComposeCluster) -> None:
    said = cluster.run_tools("admin", "brokers", "list", "--json")
    assert len(json.loads(said)) == 2
    assert "bookie-3" in cluster.run_tools("admin", "bookies", "list")
