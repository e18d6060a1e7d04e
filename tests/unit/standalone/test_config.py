"""What a standalone refuses although each setting by itself is valid."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.standalone.config import StandaloneConfig


def configured(*overrides: str) -> StandaloneConfig:
    return load(StandaloneConfig, overrides=overrides).value


def test_the_defaults_can_be_used() -> None:
    config = configured()
    assert config.problems() == []
    assert config.broker.cluster_name == "standalone"
    assert config.segment_log.sync_data


def test_a_connection_is_not_read_on_before_its_topic_refuses_what_waits_for_a_ledger() -> None:
    """Otherwise one client with large messages is refused some while a new topic's first ledger is made."""
    config = configured()
    publish = config.broker.publish
    read_at_once = 2 * publish.message_bytes_max
    assert publish.connection_pending_bytes_max + read_at_once < config.managed_ledger.queued_bytes_max


def test_metadata_is_a_file_in_the_data_directory_unless_told_otherwise() -> None:
    assert configured().metadata_path(Path("/d")) == Path("/d/metadata.sqlite")
    moved = configured("metadataStoreUrl=sqlite:/elsewhere/m.db")
    assert moved.problems() == []
    assert moved.metadata_path(Path("/d")) == Path("/elsewhere/m.db")


@pytest.mark.parametrize("url", ["etcd:localhost:2379", "rocksdb:data", "sqlite:", "m.db"])
def test_metadata_elsewhere_than_in_sqlite_is_refused(url: str) -> None:
    (problem,) = configured(f"metadataStoreUrl={url}").problems()
    assert "metadataStoreUrl" in problem


@pytest.mark.parametrize("key", ["EnsembleSize", "WriteQuorum", "AckQuorum"])
def test_more_copies_than_the_one_that_there_is_are_a_warning(key: str) -> None:
    config = configured(f"managedLedgerDefault{key}=2")
    assert config.problems() == []
    (warning,) = config.warnings()
    assert "one copy" in warning


def test_acknowledging_before_the_sync_is_a_warning() -> None:
    assert configured().warnings() == []
    (warning,) = configured("journalSyncData=false").warnings()
    assert "power loss" in warning


@pytest.mark.parametrize(
    ("bound", "advertised", "told"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("0.0.0.0", "", "localhost"),
        ("::", "", "localhost"),
        ("::1", "", "[::1]"),
        ("0.0.0.0", "broker.example", "broker.example"),
        ("0.0.0.0", "2001:db8::1", "[2001:db8::1]"),
        ("0.0.0.0", "[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_clients_are_told_an_address_that_they_can_use(bound: str, advertised: str, told: str) -> None:
    config = configured(f"bindAddress={bound}", f"advertisedAddress={advertised}").advertised()
    assert config.broker.listener.advertised_address == told
    assert config.broker.listener.bind_address == bound


def test_two_ports_that_are_one_are_refused_unless_both_are_any_free_one() -> None:
    (problem,) = configured("brokerServicePort=8080").problems()
    assert "8080" in problem
    assert configured("brokerServicePort=0", "webServicePort=0").problems() == []


def test_all_problems_are_found_at_once() -> None:
    assert len(configured("brokerServicePort=8080", "metadataStoreUrl=x").problems()) == 2


def test_an_empty_port_is_none_and_one_of_each_kind_is_needed(tmp_path: Path) -> None:
    pem = tmp_path / "one.pem"
    pem.touch()
    files = (f"tlsCertificateFilePath={pem}", f"tlsKeyFilePath={pem}")
    tls = ("brokerServicePortTls=6651", "webServicePortTls=8443")
    config = configured("brokerServicePort=", "webServicePort=", *tls, *files)
    assert config.problems() == []
    assert config.broker.listener.ports == {"brokerServicePortTls": 6651, "webServicePortTls": 8443}
    assert configured("brokerServicePort=", "webServicePort=").problems() == [
        "brokerServicePort and brokerServicePortTls are both empty: give one of them",
        "webServicePort and webServicePortTls are both empty: give one of them",
    ]


def test_no_two_ports_are_the_same_and_a_tls_port_needs_its_certificate(tmp_path: Path) -> None:
    problems = configured("brokerServicePortTls=8080", "magnetarControlPort=8080").problems()
    assert "webServicePort and brokerServicePortTls are both 8080" in problems
    assert "brokerServicePortTls and magnetarControlPort are both 8080" in problems
    assert any("tlsCertificateFilePath and tlsKeyFilePath" in each for each in problems)


def test_tls_enabled_alone_stops_the_start() -> None:
    (problem,) = configured("tlsEnabled=true").problems()
    assert problem == "tlsEnabled=true opens no port: give brokerServicePortTls or webServicePortTls"
