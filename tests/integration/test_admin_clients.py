"""Apache Pulsar's own admin clients, in Java and Go, drive the REST API.

Both programs run against any other service, too.
"""

from __future__ import annotations

import pulsar
import pytest

from tests.integration import admin_programs
from tests.integration.admin_programs import drive, publish_ten
from tests.integration.harness import Endpoint

SERVER_SETTINGS = admin_programs.SERVER_SETTINGS

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]  # in make test-full they ask a cluster


@pytest.fixture
def topic_of_ten(client: pulsar.Client, topic: str) -> str:
    """A topic with the messages that the programs look for."""
    publish_ten(client, topic)
    return topic


@pytest.mark.parametrize(("language", "checks_min"), [("java", 150), ("go", 110)])
def test_an_admin_client_drives_everything(
    endpoint: Endpoint, topic_of_ten: str, language: str, checks_min: int
) -> None:
    drive(language, endpoint, topic_of_ten, checks_min)
