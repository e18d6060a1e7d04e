"""A simulated metadata store for the tests of what is mirrored from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import BrokerRegistration, BundleOwner, Namespace, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = Keys("test")
NAMESPACE = NamespaceName.parse("tenant/ns")

Scenario = Callable[[SimMetadataServer, SimMetadataStore], Awaitable[None]]


def simulate(scenario: Scenario, seed: int = 1, watch_events_max: int = 10_000) -> None:
    """Run `scenario` with a store of its own process."""
    loop = SimLoop(seed)

    async def main() -> None:
        server = SimMetadataServer()
        store = SimMetadataStore(server, loop.rng, watch_events_max=watch_events_max)
        await scenario(server, store)
        await store.close()

    run(loop, main())


async def told() -> None:
    """Until every watch has told of what was written before."""
    await asyncio.sleep(0.1)


async def put_broker(
    store: SimMetadataStore,
    broker_id: str,
    run: int,
    *,
    listeners: dict[str, str] | None = None,
    draining: bool = False,
) -> int:
    value = BrokerRegistration(broker_id=broker_id, run=run, draining=draining)
    value.addresses.broker_url = f"pulsar://{broker_id}"
    for name, url in (listeners or {}).items():
        value.listeners[name].broker_url = url
    return await store.put(KEYS.broker(broker_id), encode(value))


async def put_owner(
    store: SimMetadataStore,
    bundle: BundleRange,
    broker_id: str,
    run: int,
    namespace: NamespaceName = NAMESPACE,
) -> int:
    value = BundleOwner(broker_id=broker_id, run=run)
    return await store.put(KEYS.bundle_owner(namespace, bundle), encode(value))


async def put_namespace(
    store: SimMetadataStore,
    count: int = 4,
    namespace: NamespaceName = NAMESPACE,
    boundaries: tuple[int, ...] = (),
) -> int:
    value = Namespace(bundle_count=count, bundle_boundaries=boundaries)
    return await store.put(KEYS.namespace(namespace), encode(value))
