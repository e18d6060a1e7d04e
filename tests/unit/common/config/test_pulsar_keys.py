"""What is recognized of Pulsar's files, and which keys must never be ignored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.common.config.pulsar_keys import is_pulsar_key, pulsar_keys, refused_switches
from magnetar.common.config.settings import setting
from magnetar.common.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Knows of no security."""

    name: str = setting("", "Name.", key="clusterName")


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTls:
    """Honors one of the switches."""

    tls_port: int | None = setting(None, "Port.", key="brokerServicePortTls")


def test_the_list_holds_brokers_and_bookies_keys() -> None:
    assert {"brokerServicePort", "journalSyncData", "zookeeperServers"} <= pulsar_keys()
    assert len(pulsar_keys()) > 700
    assert is_pulsar_key("bookkeeper_anything")
    assert not is_pulsar_key("brokerServicePrt")


def test_every_switch_is_a_key_of_pulsar() -> None:
    assert set(refused_switches()) <= pulsar_keys()


def test_no_switch_is_forgotten() -> None:
    """Booleans, ports and plug-ins whose names speak of security; the exceptions qualify another switch."""
    suspicious = {
        key
        for key in pulsar_keys()
        if re.search(r"tls|ssl|authent|authoriz|encrypt|security", key, re.IGNORECASE)
        and re.search(r"(Enabled?|Tls|Authentication|Plugin|Security)$|Require|^authenticate", key)
    }
    qualifiers = {
        "authenticateOriginalAuthData",
        "brokerClientSslFactoryPlugin",
        "sslFactoryPlugin",
        "tlsHostnameVerificationEnabled",
    }
    assert suspicious - qualifiers <= set(refused_switches())


@pytest.mark.parametrize(
    "pair",
    [
        "authenticationEnabled=true",
        "authorizationEnabled=TRUE",
        "brokerServicePortTls=6651",
        "webServicePortTls=8443",
        "tlsEnabled=true",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "bindAddresses=external:pulsar+ssl://0.0.0.0:6651",
        "encryptionRequireOnProducer=true",
    ],
)
def test_security_that_is_switched_on_and_not_honored_stops_the_start(pair: str) -> None:
    with pytest.raises(ConfigError, match="never ignored") as refused:
        load(Nothing, overrides=[pair])
    assert pair.partition("=")[0] in str(refused.value)


@pytest.mark.parametrize(
    "pair",
    [
        "authenticationEnabled=false",
        "brokerServicePortTls=",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationDisabled",
        "tlsCertificateFilePath=/etc/cert.pem",
        "authenticationProviders=org.example.Provider",
        "superUserRoles=admin",
        "bindAddresses=external:pulsar://0.0.0.0:6650",
    ],
)
def test_parameters_of_security_that_is_off_do_not_matter(pair: str) -> None:
    assert load(Nothing, overrides=[pair]).value == Nothing()


def test_transactions_may_be_switched_on_where_a_service_has_no_use_for_them() -> None:
    assert load(Nothing, overrides=["transactionCoordinatorEnabled=true"]).value == Nothing()


OLD_FILE = """\
zookeeperServers=
configurationStoreServers=
clusterName=standalone
clientLibraryVersionCheckEnabled=false
clientLibraryVersionCheckAllowUnversioned=true
managedLedgerNumWorkerThreads=4
messagePublishBufferCheckIntervalInMillis=100
streamingDispatch=false
disableBrokerInterceptors=true
loadBalancerNamespaceBundleSplitIntervalMinutes=15
brokerServicePurgeInactiveFrequencyInSeconds=60
zooKeeperSessionTimeoutMillis=-1
transactionCoordinatorEnabled=false
dbStorage_rocksDB_blockSize=4096
"""
"""Lines as files for 2.8 to 2.10 have them."""


def test_a_file_for_an_older_pulsar_is_read_and_what_has_no_use_is_listed_once(tmp_path: Path) -> None:
    file = tmp_path / "standalone.conf"
    file.write_text(OLD_FILE)
    loaded = load(Nothing, files=[file])
    given = {line.partition("=")[0] for line in OLD_FILE.splitlines() if not line.endswith("=")}
    assert loaded.value.name == "standalone"
    assert set(loaded.ignored_keys) == given - {"clusterName"}


@pytest.mark.parametrize("key", ["cacheEvictionByExpectedReadCount", "pulsarChannelWriteBufferHighWaterMark"])
def test_keys_of_a_newer_pulsar_are_known(key: str) -> None:
    assert load(Nothing, overrides=[f"{key}=1"]).ignored_keys == (key,)


def test_a_switch_that_the_settings_have_is_theirs() -> None:
    assert load(WithTls, overrides=["brokerServicePortTls=6651"]).value.tls_port == 6651
