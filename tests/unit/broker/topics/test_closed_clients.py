"""What a client that was cut off is told of where its topic went."""

from __future__ import annotations

import pytest
from magnetar.broker.topics.closed_clients import ClosedClient
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.wire import commands
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.topics.world import ListeningPeer

OUTSIDE = {
    "outside": BrokerRegistration.Addresses(broker_url="pulsar://out:1", broker_url_tls="pulsar+ssl://out:2")
}


def told(listener: str | None, listeners: dict[str, BrokerRegistration.Addresses]) -> tuple[str, str]:
    """The URLs, without and with TLS."""
    peer = ListeningPeer(listener=listener)
    owner = BrokerRegistration(
        addresses=BrokerRegistration.Addresses(broker_url="pulsar://in:1"), listeners=listeners
    )
    ClosedClient(peer, 7, commands.close_consumer).tell(owner)
    (command,) = peer.commands
    assert command.type == pb.BaseCommand.CLOSE_CONSUMER
    assert command.close_consumer.consumer_id == 7
    close = command.close_consumer
    return close.assignedBrokerServiceUrl, close.assignedBrokerServiceUrlTls


@pytest.mark.parametrize("listener", [None, ""])
def test_without_named_listeners_everybody_is_told_the_one_address(listener: str | None) -> None:
    assert told(listener, {}) == ("pulsar://in:1", "")


def test_with_named_listeners_the_one_that_lookups_named_counts() -> None:
    assert told("outside", OUTSIDE) == ("pulsar://out:1", "pulsar+ssl://out:2")
    assert told("", OUTSIDE) == ("pulsar://in:1", "")


def test_who_may_have_come_by_any_listener_looks_the_topic_up() -> None:
    assert told(None, OUTSIDE) == ("", "")
    assert told("another", OUTSIDE) == ("", "")


def test_where_nobody_took_the_topic_there_is_no_address() -> None:
    peer = ListeningPeer(listener="")
    ClosedClient(peer, 3, commands.close_producer).tell(None)
    (command,) = peer.commands
    assert command.close_producer.producer_id == 3
    assert not command.close_producer.HasField("assignedBrokerServiceUrl")
