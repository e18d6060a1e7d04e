"""Identities in certificates of services."""

from __future__ import annotations

import pytest
from magnetar.common.security.services.service_identity import (
    Service,
    ServiceIdentity,
    parse_identity,
    peer_identities,
)


@pytest.mark.parametrize("name", ["", "broker-0"])
@pytest.mark.parametrize("service", Service)
def test_an_identity_is_read_from_its_own_uri(service: Service, name: str) -> None:
    identity = ServiceIdentity("my-cluster", service, name)
    assert parse_identity(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "https://my-cluster/broker",
        "spiffe://my-cluster",
        "spiffe://my-cluster/",
        "spiffe:///broker",
        "spiffe://my-cluster/superuser",
        "spiffe://my-cluster/broker/a/b",
        "spiffe://my-cluster/broker?as=admin",
        "spiffe://my-cluster/BROKER",
        "spiffe://[broken/broker",
    ],
)
def test_a_uri_of_another_form_is_no_identity(uri: str) -> None:
    assert parse_identity(uri) is None


def test_a_peer_without_certificate_has_no_identity() -> None:
    assert peer_identities({}) == []


def test_a_peer_has_the_identities_of_its_certificate_and_no_other_uri() -> None:
    context = {"peer_uri": [b"https://example.com/", b"spiffe://c/bookie/b1", b"\xff"]}
    assert peer_identities(context) == [ServiceIdentity("c", Service.BOOKIE, "b1")]
