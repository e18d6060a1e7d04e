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
def test_more_copies_than_the_one_that_there_is_are_refused(key: str) -> None:
    (problem,) = configured(f"managedLedgerDefault{key}=2").problems()
    assert "one copy" in problem


def test_two_ports_that_are_one_are_refused_unless_both_are_any_free_one() -> None:
    (problem,) = configured("brokerServicePort=8080").problems()
    assert "8080" in problem
    assert configured("brokerServicePort=0", "webServicePort=0").problems() == []


def test_all_problems_are_found_at_once() -> None:
    assert (
        len(
            configured(
                "brokerServicePort=8080", "metadataStoreUrl=x", "managedLedgerDefaultAckQuorum=2"
            ).problems()
        )
        == 3
    )
