"""What a bookie can be told, and what it does not let itself be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.bookie.config import BookieConfig
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError

GIVEN = ("clusterName=one", "metadataServiceUri=etcd:127.0.0.1:2379")


def config(*overrides: str) -> BookieConfig:
    return load(BookieConfig, overrides=(*GIVEN, *overrides)).value


def test_cluster_and_metadata_have_to_be_given_and_then_the_defaults_do() -> None:
    problems = load(BookieConfig).value.problems()
    assert [problem.split()[0] for problem in problems] == ["clusterName", "metadataServiceUri"]
    assert config().problems() == []
    assert config().warnings() == []
    assert config().bookie_id == "127.0.0.1:3181"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("journalSyncData=false", "never confirms what it has not synced"),
        ("ledgerDirectories=/a,/b", "exactly one directory"),
        ("metadataServiceUri=zk+hierarchical://host:2181/ledgers", "etcd:HOST:PORT"),
        ("metadataServiceUri=sqlite:/tmp/x", "etcd:HOST:PORT"),
        ("bookiePort=0", "bookieId has to be given"),
        ("bindAddress=0.0.0.0", "advertisedAddress"),
        ("httpServerPort=3181", "both 3181"),
        ("nettyMaxFrameSizeBytes=4194304", "no room for an entry"),
        ("diskUsageLwmThreshold=0.99", "diskUsageThreshold"),
        ("tlsClientAuthentication=true", "needs TLS"),
        ("tlsCertificatePath=/c.pem", "tlsKeyStore"),
        ("bookkeeperTLSClientAuthentication=true", "tlsCertificatePath"),
        ("tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory", "tlsCertificatePath"),
    ],
)
def test_unsupported_setting_is_a_problem(setting: str, said: str) -> None:
    (problem,) = config(setting).problems()
    assert said in problem


def test_mutual_tls_needs_someone_to_trust() -> None:
    tls = ("tlsCertificatePath=/c.pem", "tlsKeyStore=/k.pem", "tlsClientAuthentication=true")
    (problem,) = config(*tls).problems()
    assert "tlsTrustStore" in problem
    assert config(*tls, "tlsTrustStore=/t.pem").problems() == []


@pytest.mark.parametrize("setting", ["httpServerTlsEnable=true", "tlsKeyStoreType=JKS", "bookiePorts=1"])
def test_security_that_is_not_there_and_unknown_keys_stop_the_start(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        config(setting)


def test_a_file_of_bookkeeper_loads_and_what_has_no_use_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "bookkeeper.conf"
    file.write_text(
        "bookiePort=3182\njournalDirectories=/j\nledgerDirectories=/l\ngcWaitTime=900000\n"
        "zkServers=localhost:2181\nautoRecoveryDaemonEnabled=false\njournalMaxSizeMB=2048\n"
    )
    loaded = load(BookieConfig, files=[file], overrides=GIVEN)
    assert loaded.value.problems() == []
    assert loaded.value.listener.port == 3182
    assert loaded.value.data_dir == Path("/l")
    assert loaded.value.segment_log.gc_wait_ms == 900_000
    assert loaded.ignored_keys == ("journalDirectories", "journalMaxSizeMB", "zkServers")


def test_an_address_that_others_reach_without_tls_is_a_warning() -> None:
    (warning,) = config("bindAddress=10.0.0.1").warnings()
    assert "TLS" in warning


def test_the_id_is_the_advertised_address_unless_given() -> None:
    assert config("advertisedAddress=host", "bookiePort=7").bookie_id == "host:7"
    assert config("bindAddress=::1").bookie_id == "[::1]:3181"
    assert config("bookieId=b7").bookie_id == "b7"
