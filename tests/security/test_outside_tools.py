"""A secured standalone as curl and `openssl s_client` see it, which know nothing of Pulsar's clients."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import simple_frame
from tests.clients.secured import SecuredService, secured_standalone
from tests.clients.security_catalogue import USER
from tests.integration.harness import temporary_directory

pytestmark = [pytest.mark.full]

CLUSTERS = "/admin/v2/clusters"
TENANTS = "/admin/v2/tenants"
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def service() -> Iterator[SecuredService]:
    missing = [name for name in ("curl", "openssl") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not on the PATH: {', '.join(missing)}")
    directory = temporary_directory()
    with secured_standalone(directory) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


def path(service: SecuredService, name: str) -> str:
    return str(service.credentials.directory / name)


def read(service: SecuredService, name: str) -> str:
    return (service.credentials.directory / name).read_text()


def curl(service: SecuredService, route: str, *options: str, host: str = "localhost") -> tuple[str, str]:
    """The status that curl got, 000 without one, and the body or the error."""
    done = subprocess.run(
        [
            *("curl", "-sS", "-m", str(SECONDS_MAX), "--cacert", path(service, "ca.pem")),
            *("-w", "\n%{http_code}", *options, f"https://{host}:{service.web_tls_port}{route}"),
        ],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS_MAX,
        check=False,
    )
    body, _, status = done.stdout.rpartition("\n")
    return status, body or done.stderr


def bearer(service: SecuredService, name: str) -> tuple[str, str]:
    return "-H", f"Authorization: Bearer {read(service, f'{name}.token')}"


def test_curl_with_each_credential_is_known(service: SecuredService) -> None:
    carol = ("--cert", path(service, "carol.cert.pem"), "--key", path(service, "carol.key.pem"))
    for options in (
        bearer(service, "alice"),
        ("-u", f"{USER}:{read(service, 'bob.password')}"),
        carol,
    ):
        assert curl(service, CLUSTERS, *options) == ("200", '["standalone"]'), options
    assert curl(service, TENANTS, *bearer(service, "admin"))[0] == "200"


def test_curl_with_a_wrong_credential_or_none_is_refused_without_a_reason(service: SecuredService) -> None:
    for options in (
        (),
        bearer(service, "forged"),
        ("-H", "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."),
        ("-u", f"{USER}:guessed"),
        ("-H", "X-Original-Principal: admin"),
    ):
        status, body = curl(service, CLUSTERS, *options)
        assert (status, body) == ("401", '{"reason": "Authentication required"}'), options


def test_a_role_without_rights_hears_which_one_is_missing(service: SecuredService) -> None:
    status, body = curl(service, TENANTS, *bearer(service, "alice"))
    assert status == "401"
    assert "super user" in body


def test_a_header_that_names_another_principal_gives_no_rights(service: SecuredService) -> None:
    status, _ = curl(service, TENANTS, *bearer(service, "alice"), "-H", "X-Original-Principal: admin")
    assert status == "401"


def test_curl_refuses_a_name_that_the_certificate_lacks(service: SecuredService) -> None:
    status, told = curl(service, CLUSTERS, host="127.0.0.1")
    assert status == "000"
    assert "certificate" in told


def s_client(service: SecuredService, sent: bytes, *options: str) -> bytes:
    """The frame that answers bytes which openssl carries to the TLS port of the binary protocol."""
    with subprocess.Popen(
        [
            *("openssl", "s_client", "-connect", f"localhost:{service.tls_port}", "-quiet"),
            *("-CAfile", path(service, "ca.pem"), "-verify_return_error", "-verify_hostname", "localhost"),
            *options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            client.stdin.write(sent)
            client.stdin.flush()
            head = client.stdout.read(4)
            return client.stdout.read(struct.unpack(">I", head)[0]) if len(head) == 4 else b""
        finally:
            client.kill()


def answer(service: SecuredService, method: str, data: str, *options: str) -> pb.BaseCommand:
    """The command that answers a Connect with this credential."""
    hello = simple_frame(
        "connect",
        client_version="openssl",
        protocol_version=21,
        auth_method_name=method,
        auth_data=data.encode(),
    )
    body = s_client(service, hello, *options)
    (size,) = struct.unpack_from(">I", body)
    return pb.BaseCommand.FromString(body[4 : 4 + size])


def test_openssl_carries_a_connect_with_each_credential(service: SecuredService) -> None:
    carol = ("-cert", path(service, "carol.cert.pem"), "-key", path(service, "carol.key.pem"))
    for method, data, options in (
        ("token", read(service, "alice.token"), ()),
        ("basic", f"{USER}:{read(service, 'bob.password')}", ()),
        ("tls", "", carol),
    ):
        found = answer(service, method, data, *options)
        assert found.HasField("connected"), f"{method}: {found}"


def test_openssl_carries_a_wrong_credential_to_its_refusal(service: SecuredService) -> None:
    for method, data in (("token", read(service, "forged.token")), ("tls", ""), ("token", "")):
        found = answer(service, method, data)
        assert found.error.error == pb.AuthenticationError, f"{method}: {found}"
        assert found.error.message == "Failed to authenticate"


def test_openssl_finds_no_other_name_in_the_certificate(service: SecuredService) -> None:
    assert s_client(service, simple_frame("ping"), "-verify_hostname", "elsewhere") == b""
