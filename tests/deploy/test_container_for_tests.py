"""The container that `magnetar.testing.containers` offers: clients reach it where its lookups send them."""

from __future__ import annotations

import pulsar
import pytest
from magnetar.testing.containers import MagnetarContainer
from magnetar.testing.namespaces import create_namespace, remove_namespace
from testcontainers.core.config import testcontainers_config

TIMEOUT_MS = 20_000


@pytest.fixture(autouse=True)
def no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of testcontainers' reaper cannot be had everywhere."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


@pytest.mark.full
def test_a_client_of_the_host_publishes_and_consumes_in_a_namespace_of_the_container(
    images: dict[str, str],
) -> None:
    with MagnetarContainer(images["tools"], {"maxMessageSize": 1_000_000}) as container:
        namespace = create_namespace(container.admin_url, "container")
        client = pulsar.Client(container.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        topic = f"persistent://{namespace}/orders"
        consumer = client.subscribe(topic, "billing")
        client.create_producer(topic).send(b"order 1")
        message = consumer.receive(TIMEOUT_MS)
        assert message.data() == b"order 1"
        consumer.acknowledge(message)
        client.close()
        remove_namespace(container.admin_url, namespace)
        stdout, _ = container.get_logs()
        assert b"magnetar ready in " in stdout


@pytest.mark.full
def test_a_container_that_cannot_start_says_why(images: dict[str, str]) -> None:
    container = MagnetarContainer(images["tools"], {"brokerDeduplicationEnable": True})
    with pytest.raises(RuntimeError, match="exited"), container:
        pass
