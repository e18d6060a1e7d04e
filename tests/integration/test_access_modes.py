"""Access modes with the PyPI client: a leader, those who wait to be the next, and one that was fenced out."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pulsar
import pytest

from tests.integration.clients import receive

MODES = pulsar.ProducerAccessMode


def test_a_leader_is_followed_by_the_one_that_waited(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    leader = new_client().create_producer(topic, access_mode=MODES.Exclusive)
    followers: list[pulsar.Producer] = []
    waiting = threading.Thread(
        target=lambda: followers.append(
            new_client().create_producer(topic, access_mode=MODES.WaitForExclusive)
        )
    )
    waiting.start()
    with pytest.raises(pulsar.ProducerFenced):
        new_client().create_producer(topic, access_mode=MODES.Exclusive)
    leader.send(b"first leader")
    assert not followers
    leader.close()
    waiting.join(10)
    followers[0].send(b"second leader")
    reader = new_client().create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in range(2)] == [b"first leader", b"second leader"]


def test_a_fenced_leader_learns_it_when_it_writes(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "sub")
    old = new_client().create_producer(topic, access_mode=MODES.Exclusive, send_timeout_millis=5_000)
    old.send(b"old")
    new = new_client().create_producer(topic, access_mode=MODES.ExclusiveWithFencing)
    new.send(b"new")
    with pytest.raises(pulsar.PulsarException):
        old.send(b"too late")
    new.send(b"still new")
    assert [receive(consumer).data() for _ in range(3)] == [b"old", b"new", b"still new"]
