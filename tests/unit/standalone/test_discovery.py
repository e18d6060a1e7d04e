"""The process around a discovery: what it says when it cannot start."""

from __future__ import annotations

import asyncio
import socket

import pytest
from magnetar.common.errors import ConfigError
from magnetar.discovery.config import DiscoveryConfig, ListenerConfig, MetadataConfig
from magnetar.standalone.discovery import DiscoveryProcess
from magnetar.standalone.start_error import CannotStart

METADATA = MetadataConfig(cluster_name="test", url="etcd:127.0.0.1:1")


def test_everything_wrong_with_the_configuration_is_said_at_once() -> None:
    process = DiscoveryProcess(DiscoveryConfig())
    with pytest.raises(ConfigError) as error:
        asyncio.run(process.start())
    assert "clusterName" in str(error.value)
    assert "metadataStoreUrl" in str(error.value)


def test_a_port_that_is_taken_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = ListenerConfig(service_port=taken.getsockname()[1], web_service_port=0)
        process = DiscoveryProcess(DiscoveryConfig(listener=listener, metadata=METADATA))
        with pytest.raises(CannotStart, match="servicePort"):
            asyncio.run(process.start())
