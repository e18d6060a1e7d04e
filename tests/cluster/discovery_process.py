"""`magnetar discovery` as a process, and brokers as metadata tells of them, whoever really is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.store import MetadataStore, Op, Put
from magnetar.common.metadata.values import BrokerRegistration, BundleOwner, Namespace, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.testing.free_ports import free_ports

from tests.cluster.processes import CLUSTER_NAME
from tests.integration.harness import HERE, Endpoint, MagnetarProcess, Place

KEYS = Keys(CLUSTER_NAME)
BUNDLES = 4


class DiscoveryProcess(MagnetarProcess):
    """One `magnetar discovery`; healthy once it serves."""

    def __init__(
        self,
        directory: Path,
        name: str,
        etcd_url: str,
        settings: Mapping[str, str] | None = None,
        place: Place = HERE,
    ) -> None:
        port, web_port = free_ports(2)
        self.port = port
        host = place.address
        self.endpoint = Endpoint(f"pulsar://{host}:{port}", f"http://{host}:{web_port}", CLUSTER_NAME)
        super().__init__(
            directory,
            name,
            ["discovery"],
            f"{self.endpoint.http_url}/health",
            {
                "clusterName": CLUSTER_NAME,
                "metadataStoreUrl": etcd_url,
                "bindAddress": host,
                "servicePort": str(port),
                "webServicePort": str(web_port),
                **(settings or {}),
            },
            place=place,
        )


def pretend(etcd_url: str, brokers: Mapping[str, Endpoint], owners: Mapping[str, str]) -> None:
    """Have metadata say that these brokers are up, and that those namespaces are owned by them as a whole.

    A namespace whose broker is "" is there and not owned.
    """

    async def write() -> None:
        store = await open_metadata_store(etcd_url)
        try:
            for broker_id, endpoint in brokers.items():
                value = BrokerRegistration(broker_id=broker_id, run=1)
                value.addresses.broker_url = endpoint.service_url
                value.addresses.http_url = endpoint.http_url
                await store.put(KEYS.broker(broker_id), encode(value))
            for text, broker_id in owners.items():
                await _own(store, NamespaceName.parse(text), broker_id)
        finally:
            await store.close()

    asyncio.run(write())


async def _own(store: MetadataStore, namespace: NamespaceName, broker_id: str) -> None:
    ops: list[Op] = [Put(KEYS.namespace(namespace), encode(Namespace(bundle_count=BUNDLES)))]
    if broker_id:
        owner = encode(BundleOwner(broker_id=broker_id, run=1))
        ops += [Put(KEYS.bundle_owner(namespace, bundle), owner) for bundle in split_ring(BUNDLES)]
    await store.commit(ops)
