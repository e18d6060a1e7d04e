"""Apache Pulsar's own admin clients, in Java and Go, over HTTPS with the token of a super user."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing

import pulsar
import pytest

from tests.clients.secured import SecuredService, secured_standalone
from tests.integration.admin_programs import SERVER_SETTINGS, command, drive, publish_ten
from tests.integration.harness import Endpoint, temporary_directory

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def service() -> Iterator[SecuredService]:
    directory = temporary_directory()
    with secured_standalone(directory, SERVER_SETTINGS) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize(("language", "checks_min"), [("java", 150), ("go", 110)])
def test_an_admin_client_drives_everything_with_a_token(
    service: SecuredService, topic: str, language: str, checks_min: int
) -> None:
    command(language)
    files = service.credentials.directory
    token = (files / "admin.token").read_text()
    trusted = str(files / "ca.pem")
    url = f"pulsar+ssl://localhost:{service.tls_port}"
    with closing(
        pulsar.Client(
            url,
            authentication=pulsar.AuthenticationToken(token),
            tls_trust_certs_file_path=trusted,
            tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
    ) as client:
        publish_ten(client, topic)
    drive(
        language,
        Endpoint(url, f"https://localhost:{service.web_tls_port}"),
        topic,
        checks_min,
        environment={"ADMIN_CLIENT_TOKEN": token, "ADMIN_CLIENT_TRUST": trusted},
    )
