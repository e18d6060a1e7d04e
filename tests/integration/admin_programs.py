"""The programs in admin_clients/, built: Apache Pulsar's own admin clients, which check a service.

They are built and kept like the programs of the client matrix (`tests/clients/programs.py`). A toolchain that
is missing, or that cannot download, skips the test with the reason; a program that does not compile fails it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pulsar
import pytest

from tests.clients.programs import ADMIN_PROGRAMS, CannotFetch
from tests.integration.harness import Endpoint, external_endpoint

RUN_SECONDS_MAX = 120.0
MESSAGES = 10

SERVER_SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "transactionCoordinatorEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",  # downloads may take longer than topics last
}
"""What the programs expect of a broker."""


def publish_ten(client: pulsar.Client, topic: str) -> None:
    """The messages that the programs look for."""
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(f"message {number}".encode(), partition_key="key", properties={"number": str(number)})
    producer.close()


def command(language: str) -> list[str]:
    """Return what starts the program in `java`, which makes over 150 checks, or in `go`, over 110."""
    try:
        return ADMIN_PROGRAMS[language].build().command
    except CannotFetch as error:
        pytest.skip(f"the admin client in {language} cannot be built: {error}")


def drive(
    language: str,
    endpoint: Endpoint,
    topic: str,
    checks_min: int,
    *,
    patience_s: int = 0,
    run_s_max: float = RUN_SECONDS_MAX,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the program of a language against the service: every line says ok, and its last one that all are.

    `patience_s`: how long a value that was set may take to be seen. `environment`: ADMIN_CLIENT_TOKEN, a
    token, and ADMIN_CLIENT_TRUST, the path of the authorities that an https address is checked with.
    """
    patience = ["20"] if external_endpoint() is not None else [str(patience_s)] if patience_s else []
    done = subprocess.run(
        [*command(language), endpoint.http_url, endpoint.cluster, topic, *patience],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=run_s_max,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert not failed, "\n".join(failed)
    assert lines[-1:] == ["all ok"], f"{done.stdout}{done.stderr}"
    assert len(lines) > checks_min, f"only {len(lines)} checks ran"
