"""Apache Pulsar's own admin clients, in Java and Go, drive the REST API.

Both programs run against any other service, too.
"""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.integration import admin_programs
from tests.integration.admin_programs import drive, go_program, java_program, publish_ten
from tests.integration.harness import Endpoint

SERVER_SETTINGS = admin_programs.SERVER_SETTINGS

pytestmark = [pytest.mark.full, pytest.mark.timeout(800)]


@pytest.fixture
def topic_of_ten(client: pulsar.Client, topic: str) -> str:
    """A topic with the messages that the programs look for."""
    publish_ten(client, topic)
    return topic


def test_the_java_admin_client_drives_everything(
    endpoint: Endpoint, topic_of_ten: str, tmp_path: Path
) -> None:
    drive(java_program(tmp_path), endpoint, topic_of_ten, checks_min=150)


def test_the_go_admin_client_drives_everything(endpoint: Endpoint, topic_of_ten: str, tmp_path: Path) -> None:
    drive(go_program(tmp_path), endpoint, topic_of_ten, checks_min=110)
