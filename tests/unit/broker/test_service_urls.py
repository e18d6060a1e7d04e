"""Addresses as they are written down for others, and read."""

from __future__ import annotations

import pytest
from magnetar.broker.service_urls import ServiceUrls, urls_of
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration


def test_what_a_broker_writes_down_is_what_others_read() -> None:
    urls = ServiceUrls("pulsar://a:1", "http://a:2", "pulsar+ssl://a:3", "https://a:4")
    registration = BrokerRegistration()
    urls.fill(registration.addresses)
    assert urls_of(registration.addresses) == urls


def test_a_listener_is_found_by_name() -> None:
    urls = ServiceUrls("pulsar://a:1", listeners={"outside": ServiceUrls("pulsar://gate:1")})
    assert urls.of_listener("") is urls
    assert urls.of_listener("outside").broker_url == "pulsar://gate:1"
    with pytest.raises(ServiceNotReady, match=r"no listener 'x'.*it has 'outside'"):
        urls.of_listener("x")
