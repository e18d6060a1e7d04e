"""The configuration of a console process."""

from __future__ import annotations

import pytest
from magnetar.common.config.loader import load
from magnetar.console.config import ConsoleConfig


def test_the_defaults_show_the_standalone_of_this_host_to_this_host() -> None:
    config = ConsoleConfig()
    assert (config.problems(), config.warnings()) == ([], [])
    access = config.cluster.access()
    assert (access.admin_url, access.service_url) == ("http://localhost:8080", "pulsar://localhost:6650")


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (["webServiceUrl=broker:8080"], "webServiceUrl = 'broker:8080' is not a URL"),
        (["brokerServiceUrl=http://broker"], "brokerServiceUrl = 'http://broker' is not a URL"),
        (["webServicePort="], "both empty"),
        (["magnetarConsolePrometheusUrl=prometheus:9090"], "is not a URL"),
        (["webServicePortTls=8090"], "both 8090"),
    ],
)
def test_contradictions_are_named(pairs: list[str], problem: str) -> None:
    problems = load(ConsoleConfig, overrides=pairs).value.problems()
    assert any(problem in each for each in problems), problems


def test_tokens_as_plain_text_on_a_network_are_warned_about() -> None:
    (warning,) = load(ConsoleConfig, overrides=["bindAddress=0.0.0.0"]).value.warnings()
    assert "plain text" in warning
    assert load(ConsoleConfig, overrides=["bindAddress=0.0.0.0", "webServicePort="]).value.warnings() == []
