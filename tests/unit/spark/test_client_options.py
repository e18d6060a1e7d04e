"""How Spark's processes reach brokers."""

from __future__ import annotations

import pytest
from magnetar.client.authentication.methods import Token
from magnetar.client.options import Tls
from magnetar.spark.client_options import TOKEN_VARIABLE, client_options
from magnetar.spark.sink.options import parse_sink_options
from magnetar.spark.source_options import parse_options

URL = "pulsar+ssl://broker:6651"


@pytest.fixture(autouse=True)
def no_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def test_sources_and_sinks_reach_a_broker_by_the_same_options() -> None:
    given = {
        "service.url": URL,
        "topic": "t",
        "auth.token": "abc",
        "tls.trust.certs.file": "ca.pem",
        "tls.allow.insecure": "true",
    }
    options = parse_options(given).client_options()
    assert options == parse_sink_options(given).client_options()
    assert options.service_url == URL
    assert options.authentication == Token("abc")
    assert options.tls == Tls(trust_certs_file="ca.pem", allow_insecure=True)


def test_the_token_is_that_of_the_option_or_of_the_environment_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert client_options(URL).authentication is None
    monkeypatch.setenv(TOKEN_VARIABLE, "theirs")
    assert client_options(URL).authentication == Token("theirs")
    assert client_options(URL, token="mine").authentication == Token("mine")


def test_reconnection_ends_after_five_minutes_so_that_spark_tries_the_task_again() -> None:
    assert client_options(URL).reconnect_timeout_s == 300


def test_options_with_a_token_are_keys_of_caches() -> None:
    assert len({client_options(URL, token="a"), client_options(URL, token="a"), client_options(URL)}) == 2
