"""Commands of consumers, at clients that do not wait for the answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from magnetar.broker.handlers.client import Client, OpenConsumer
from magnetar.broker.handlers.consumers import handle_unsubscribe
from magnetar.common.wire.pulsar_pb2 import CommandUnsubscribe

from tests.unit.broker.topics.fakes import FakePeer


def test_consumer_reusing_an_id_during_unsubscribe_stays_registered() -> None:
    newcomer = OpenConsumer(cast(Any, None), cast(Any, None), cast(Any, None))

    class Subscriptions:
        async def unsubscribe(self, subscription: object, consumer: object, *, force: bool) -> None:
            client.consumers[1] = newcomer

    class Peer(FakePeer):
        def write(self, data: bytes) -> None:
            """The answer."""

    client = Client(cast(Any, None), Peer())
    client.consumers[1] = OpenConsumer(
        cast(Any, SimpleNamespace(subscriptions=Subscriptions())), cast(Any, None), cast(Any, None)
    )
    asyncio.run(handle_unsubscribe(client, CommandUnsubscribe(consumer_id=1, request_id=1)))
    assert client.consumers == {1: newcomer}
