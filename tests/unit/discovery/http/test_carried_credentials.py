"""Credentials of carried HTTP requests: only a client certificate travels beside discovery's own."""

from __future__ import annotations

import ssl
from typing import Any
from unittest import mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from magnetar.common.errors import AuthenticationFailed
from magnetar.common.security.certificates import Authority
from magnetar.discovery.http.carried_credentials import carried_credentials
from magnetar.discovery.http.forwarding import _OF_ONE_REQUEST, _passed_on

DER = ssl.PEM_cert_to_DER_cert(Authority("clients").issue("alice").certificate.decode())


def request_of(headers: dict[str, str], *, certificate: bool) -> web.Request:
    handshake = mock.Mock(spec=["getpeercert"])
    handshake.getpeercert.return_value = DER if certificate else None
    transport = mock.Mock(spec=["get_extra_info"])

    def extra(name: str, default: Any = None) -> Any:
        return {"ssl_object": handshake, "peername": ("127.0.0.1", 1)}.get(name, default)

    transport.get_extra_info.side_effect = extra
    return make_mocked_request("GET", "/admin/v2/clusters", headers=headers, transport=transport)


TLS_HEADERS = [("X-Pulsar-Auth-Method-Name", "tls"), ("X-Original-Principal", "alice")]


@pytest.mark.parametrize(
    ("headers", "certificate", "sent", "as_proxy"),
    [
        ({}, False, [], False),
        ({}, True, TLS_HEADERS, True),
        ({"Authorization": "Bearer x"}, False, [("Authorization", "Bearer x")], False),
        ({"Authorization": "Bearer x"}, True, [("Authorization", "Bearer x")], False),
        # A header that names tls beside an Authorization must not make the broker read our certificate.
        ({"Authorization": "Bearer x", "X-Pulsar-Auth-Method-Name": "tls"}, True, TLS_HEADERS, True),
        (
            {"Authorization": "Basic x", "X-Pulsar-Auth-Method-Name": "basic"},
            True,
            [("Authorization", "Basic x"), ("X-Pulsar-Auth-Method-Name", "basic")],
            False,
        ),
    ],
)
def test_the_certificate_of_discovery_is_shown_only_beside_a_client_s_role(
    headers: dict[str, str], certificate: bool, sent: list[tuple[str, str]], as_proxy: bool
) -> None:
    outside = {**headers, "X-Original-Principal": "admin"}
    found = carried_credentials(request_of(outside, certificate=certificate), as_proxy=True)
    assert (found.headers, found.as_proxy) == (sent, as_proxy)


@pytest.mark.parametrize(("certificate", "as_proxy"), [(False, True), (True, False), (False, False)])
def test_method_tls_goes_on_only_with_both_certificates(certificate: bool, as_proxy: bool) -> None:
    request = request_of({"X-Pulsar-Auth-Method-Name": "tls"}, certificate=certificate)
    with pytest.raises(AuthenticationFailed):
        carried_credentials(request, as_proxy=as_proxy)


def test_headers_of_credentials_are_never_passed_on_as_they_came() -> None:
    given = [("Authorization", "x"), ("x-original-principal", "admin"), ("X-Pulsar-Auth-Method-Name", "tls")]
    assert _passed_on([*given, ("Accept", "*/*")], _OF_ONE_REQUEST) == [("Accept", "*/*")]
