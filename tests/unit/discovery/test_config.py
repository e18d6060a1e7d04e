"""What a discovery can be told, and what stops its start."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError
from magnetar.discovery.config import DiscoveryConfig

PROXY_CONF = """
metadataStoreUrl=etcd:one:2379,two:2379
clusterName=c
bindAddress=::
servicePort=6660
servicePortTls=
brokerProxyAllowedTargetPorts=6650,6651
brokerProxyConnectTimeoutMs=5000
maxConcurrentInboundConnectionsPerIp=0
proxyLogLevel=0
tlsEnabledWithBroker=false
"""


def test_a_configuration_file_of_pulsars_proxy_will_do(tmp_path: Path) -> None:
    (tmp_path / "proxy.conf").write_text(PROXY_CONF)
    loaded = load(DiscoveryConfig, files=[tmp_path / "proxy.conf"])
    config = loaded.value
    assert config.problems() == []
    assert config.listener.service_port == 6660
    assert config.proxy.connect_timeout_ms == 5_000
    assert config.shown_host == "localhost"
    assert "brokerProxyAllowedTargetPorts" in loaded.ignored_keys


def test_security_that_does_not_exist_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="tlsEnabledWithKeyStore"):
        load(DiscoveryConfig, overrides=["tlsEnabledWithKeyStore=true"])


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (["metadataStoreUrl=etcd:one:2379"], "clusterName is required"),
        (["clusterName=c"], "metadataStoreUrl = ''"),
        (["clusterName=c", "metadataStoreUrl=etcd:one"], "'one' is not host:port"),
        (
            ["clusterName=c", "metadataStoreUrl=etcd:one:2379", "servicePort=7000", "webServicePort=7000"],
            "both 7000",
        ),
        (
            ["clusterName=c", "metadataStoreUrl=etcd:one:2379", "servicePort="],
            "servicePortTls are both empty",
        ),
        (
            ["clusterName=c", "metadataStoreUrl=etcd:one:2379", "servicePortTls=6651"],
            "tlsCertificateFilePath",
        ),
        (
            ["clusterName=c", "metadataStoreUrl=etcd:one:2379", "authorizationEnabled=true"],
            "authenticationEnabled",
        ),
    ],
)
def test_contradictory_or_missing_settings_are_named(pairs: list[str], problem: str) -> None:
    (found,) = load(DiscoveryConfig, overrides=pairs).value.problems()
    assert problem in found
