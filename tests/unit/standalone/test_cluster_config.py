"""What `magnetar broker` can be told, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.standalone.cluster_config import ClusterBrokerConfig

NEEDED = ("clusterName=one", "metadataStoreUrl=etcd:a:2379,b:2379")


def config(*overrides: str) -> ClusterBrokerConfig:
    return load(ClusterBrokerConfig, overrides=[*NEEDED, *overrides]).value


def test_the_name_of_the_cluster_and_its_metadata_are_all_that_is_needed() -> None:
    assert config().problems() == []
    assert config().warnings() == []
    problems = "\n".join(load(ClusterBrokerConfig).value.problems())
    assert "clusterName" in problems
    assert "metadataStoreUrl" in problems


def test_three_copies_of_which_two_confirm_are_the_default() -> None:
    ledgers = config().managed_ledger
    assert (ledgers.ensemble_size, ledgers.write_quorum, ledgers.ack_quorum) == (3, 3, 2)


@pytest.mark.parametrize(
    "override",
    [
        "metadataStoreUrl=sqlite:here",
        "metadataStoreUrl=etcd:",
        "metadataStoreUrl=etcd:a:b",
        "managedLedgerDefaultAckQuorum=4",
        "managedLedgerDefaultEnsembleSize=2",
        "webServicePort=6650",
        "magnetarControlPort=6650",
        "magnetarControlPort=8080",
        "advertisedListeners=nonsense",
        "internalListenerName=nowhere",
        "bookkeeperTLSClientAuthentication=true",
        "bookkeeperTLSTrustCertsFilePath=/nowhere/ca.pem",
    ],
)
def test_contradictory_setting_is_a_problem_that_names_its_key(override: str) -> None:
    problems = config(override).problems()
    assert problems
    key = override.partition("=")[0]
    part = {"managedLedgerDefaultAckQuorum": "AckQuorum"}.get(key, key)
    assert any(part in problem or "etcd:" in problem for problem in problems), problems


def test_tls_to_bookies_needs_files_that_are_there(tmp_path: Path) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    assert not config().bookies.tls_enabled
    trusting = config(f"bookkeeperTLSTrustCertsFilePath={pem}")
    assert trusting.bookies.tls_enabled
    assert trusting.problems() == []
    mutual = config(
        "bookkeeperTLSClientAuthentication=true",
        f"bookkeeperTLSTrustCertsFilePath={pem}",
        f"bookkeeperTLSCertificateFilePath={pem}",
        f"bookkeeperTLSKeyFilePath={pem}",
    )
    assert mutual.problems() == []


def test_one_confirmation_is_warned_about() -> None:
    assert "AckQuorum" in config("managedLedgerDefaultAckQuorum=1").warnings()[0]


def test_clients_are_sent_to_a_name_they_can_use() -> None:
    listening = config("bindAddress=0.0.0.0").advertised().broker.listener
    assert listening.advertised_address == "localhost"


def test_the_first_advertised_listener_names_the_host_of_the_broker() -> None:
    listeners = "in:pulsar://10.0.0.5:6650,out:pulsar://gate:6650"
    found = config(f"advertisedListeners={listeners}").advertised()
    assert found.broker.listener.advertised_address == "10.0.0.5"
    assert found.problems() == []
    twice = config(f"advertisedListeners={listeners}", "advertisedAddress=gate").advertised()
    assert "replaces advertisedAddress" in "\n".join(twice.problems())
