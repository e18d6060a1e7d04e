"""A client and one model broker in virtual time, for unit tests of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from magnetar.client.client import Client
from magnetar.client.messages import MessageId
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

from tests.unit.client.model_broker import Broker, Cluster, Subscription, Topic
from tests.unit.client.virtual_network import VirtualNetwork, virtually

TOPIC = "persistent://public/default/t"


@dataclass(slots=True)
class Scene:
    """A client, its broker, and the network between them."""

    network: VirtualNetwork
    cluster: Cluster
    broker: Broker
    client: Client

    @property
    def topic(self) -> Topic:
        return self.cluster.topic(TOPIC)

    def subscription(self, name: str = "s") -> Subscription:
        return self.topic.subscriptions[name]

    @property
    def now(self) -> float:
        return self.network.loop.time()

    def store(self, *payloads: bytes) -> list[MessageId]:
        """Stores messages, each an entry."""
        return [MessageId(*self.topic.store(entry_of(payload), 1)) for payload in payloads]

    def store_batch(self, *payloads: bytes) -> tuple[int, int]:
        """Stores one batch."""
        return self.topic.store(batch_of(*payloads), len(payloads))


def entry_of(payload: bytes, **fields: Any) -> bytes:
    """Returns an entry of one message."""
    metadata = MessageMetadata(producer_name="q", sequence_id=1, publish_time=1_700_000_000_000, **fields)
    return encode_entry(metadata.SerializeToString(), payload)


def batch_of(*payloads: bytes) -> bytes:
    """Returns an entry of a batch."""
    parts = []
    for number, payload in enumerate(payloads):
        own = SingleMessageMetadata(payload_size=len(payload), sequence_id=number).SerializeToString()
        parts.append(len(own).to_bytes(4, "big") + own + payload)
    return entry_of(b"".join(parts), num_messages_in_batch=len(payloads))


def staged(
    scenario: Callable[[Scene], Awaitable[None]],
    cluster: Cluster | None = None,
    time_max_s: float = 86_400.0,
    **options: Any,
) -> None:
    """Runs a scenario with a client of the broker's URL; all is closed afterwards."""

    async def whole(network: VirtualNetwork) -> None:
        made = cluster or Cluster()
        broker = Broker(made, network)
        client = Client(options.pop("service_url", broker.url), **options)
        try:
            await scenario(Scene(network, made, broker, client))
        finally:
            await client.close()

    virtually(whole, time_max_s=time_max_s)


async def until(condition: Callable[[], object], what: str = "the condition", limit_s: float = 300.0) -> None:
    """Waits in virtual time until something holds."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} never holds"
        await asyncio.sleep(0.01)
