"""advertisedListeners, as Pulsar writes them."""

from __future__ import annotations

import pytest
from magnetar.broker.advertised_listeners import (
    internal_host,
    internal_name,
    listener_problems,
    parse_listeners,
)
from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import ConfigError

BOTH = (
    "inside:pulsar://10.0.0.5:6650, inside:pulsar+ssl://10.0.0.5:6651,"
    "outside:pulsar://gate.example.com:6650,outside:http://gate.example.com:8080,"
    "outside:https://gate.example.com:8443"
)


def test_listeners_are_read_by_name_and_scheme() -> None:
    assert parse_listeners(BOTH) == {
        "inside": ServiceUrls("pulsar://10.0.0.5:6650", broker_url_tls="pulsar+ssl://10.0.0.5:6651"),
        "outside": ServiceUrls(
            "pulsar://gate.example.com:6650",
            "http://gate.example.com:8080",
            http_url_tls="https://gate.example.com:8443",
        ),
    }
    assert parse_listeners("") == {}


def test_the_first_listener_is_the_internal_one_unless_another_is_named() -> None:
    assert internal_name(ListenerConfig(advertised_listeners=BOTH)) == "inside"
    config = ListenerConfig(advertised_listeners=BOTH, internal_listener_name="outside")
    assert (internal_name(config), internal_host(config)) == ("outside", "gate.example.com")
    assert (internal_name(ListenerConfig()), internal_host(ListenerConfig())) == ("", "")
    assert internal_host(ListenerConfig(advertised_listeners="nonsense")) == ""
    six = ListenerConfig(advertised_listeners="a:pulsar://[::1]:6650")
    assert internal_host(six) == "[::1]"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pulsar://h:1", "use the form NAME:pulsar:"),
        ("a:kafka://h:1", "use the form NAME:pulsar:"),
        ("a:pulsar://h", "use the form NAME:pulsar:"),
        ("a:pulsar://h:99999", "use the form NAME:pulsar:"),
        ("a:pulsar://h:1/path", "use the form NAME:pulsar:"),
        (":pulsar://h:1", "use the form NAME:pulsar:"),
        ("a:pulsar://h:1,a:pulsar://h:2", "'a' has more than one pulsar:// address"),
        ("a:pulsar://h:1,b:pulsar://h:1", "h:1 belongs to both 'a' and 'b'"),
    ],
)
def test_what_cannot_be_a_listener_is_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"advertisedListeners: ") as refused:
        parse_listeners(text)
    assert reason in str(refused.value)
    assert listener_problems(ListenerConfig(advertised_listeners=text)) == [str(refused.value)]


def test_what_contradicts_itself_is_said() -> None:
    assert listener_problems(ListenerConfig()) == []
    assert listener_problems(ListenerConfig(advertised_listeners=BOTH)) == []
    same = ListenerConfig(advertised_listeners=BOTH, advertised_address="10.0.0.5")
    assert listener_problems(same) == []
    twice = ListenerConfig(advertised_listeners=BOTH, advertised_address="elsewhere")
    assert "replaces advertisedAddress" in listener_problems(twice)[0]
    unknown = ListenerConfig(advertised_listeners=BOTH, internal_listener_name="nowhere")
    assert "internalListenerName = 'nowhere' is not a name in" in listener_problems(unknown)[0]
    alone = ListenerConfig(internal_listener_name="nowhere")
    assert "internalListenerName" in listener_problems(alone)[0]
    http_only = ListenerConfig(advertised_listeners="a:http://h:1")
    assert "has neither a pulsar://" in listener_problems(http_only)[0]


def test_the_internal_listener_may_have_tls_alone() -> None:
    config = ListenerConfig(advertised_listeners="inside:pulsar+ssl://broker.example.com:6651")
    assert listener_problems(config) == []
    assert internal_host(config) == "broker.example.com"
    web = ListenerConfig(advertised_listeners="inside:https://broker.example.com:8443")
    assert "neither a pulsar:// nor a pulsar+ssl://" in listener_problems(web)[0]
