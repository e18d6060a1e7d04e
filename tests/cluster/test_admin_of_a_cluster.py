"""What operators say of a cluster over HTTP is kept in etcd, and every process of the cluster goes by it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.values import LedgerMetadata, decode

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import CLUSTER_NAME, BrokerProcess
from tests.integration.harness import eventually
from tests.integration.raw.transcript import line
from tests.integration.rest import Rest

KEYS = Keys(CLUSTER_NAME)
CONFIGURATION = "/brokers/configuration"
KEY = "maxTopicsPerNamespace"


def host(broker: BrokerProcess) -> str:
    return broker.endpoint.http_url.removeprefix("http://")


@pytest.mark.full
def test_brokers_of_a_cluster_know_one_another_and_what_was_said_to_any_of_them(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(bookies=1)
    one_copy = dict.fromkeys(
        (
            "managedLedgerDefaultEnsembleSize",
            "managedLedgerDefaultWriteQuorum",
            "managedLedgerDefaultAckQuorum",
        ),
        "1",
    )
    first, second = cluster.broker(one_copy), cluster.broker(one_copy)
    first.start()
    second.start()
    one, other = Rest(first.endpoint), Rest(second.endpoint)
    both = sorted([host(first), host(second)])
    for rest in (one, other):
        eventually(partial(knows, rest, both), "both are known")
    owner = first if first.serves("persistent://public/default/a") else second
    owned = (one if owner is second else other).get(f"/brokers/{CLUSTER_NAME}/{host(owner)}/ownedNamespaces")
    assert len(owned) == 1, "sent on to it"

    assert one.call("POST", f"{CONFIGURATION}/{KEY}/1").status == 200
    assert other.get(f"{CONFIGURATION}/values") == {KEY: "1"}
    assert one.call("PUT", "/clusters/us", {"serviceUrl": "http://us:8080"}).status == 200
    assert other.get("/clusters") == ["test", "us"]
    one.do("POST", "/brokers/shutdown")
    eventually(lambda: not first.running, "the first has ended")
    eventually(partial(knows, other, [host(second)]), "the other is alone")
    assert other.get(f"{CONFIGURATION}/runtime")[KEY] == "1"
    other.do("PUT", "/persistent/public/default/a")
    assert other.call("PUT", "/persistent/public/default/b").status in (403, 405, 412)
    second.stop()


def knows(rest: Rest, brokers: list[str]) -> bool:
    return bool(rest.get("/brokers") == brokers)


@pytest.mark.full
def test_new_ledgers_go_by_the_racks_that_an_operator_names(new_cluster: NewCluster) -> None:
    cluster = new_cluster(bookies=4)
    broker = cluster.broker(
        {
            "managedLedgerDefaultEnsembleSize": "2",
            "managedLedgerDefaultWriteQuorum": "2",
            "managedLedgerDefaultAckQuorum": "2",
        }
    )
    broker.start()
    rest = Rest(broker.endpoint)
    ids = sorted(each["bookieId"] for each in rest.get("/bookies/all")["bookies"])
    assert ids == [bookie.bookie_id for bookie in cluster.bookies]
    racks = dict(zip(ids, ("/r1", "/r1", "/r2", "/r2"), strict=True))
    for bookie_id, rack in racks.items():
        rest.do("POST", f"/bookies/racks-info/{bookie_id}?group=default", {"rack": rack})
    said = {bookie_id: {"rack": rack} for bookie_id, rack in racks.items()}
    assert rest.get("/bookies/racks-info") == {"default": said}

    async def ensembles() -> list[list[str]]:
        store = await open_metadata_store(cluster.etcd.url)
        try:
            items = (await store.children(KEYS.ledgers_prefix)).items
        finally:
            await store.close()
        return [list(decode(LedgerMetadata, item.value).fragments[0].bookie_ids) for item in items]

    for number in range(10):
        with line(broker.endpoint) as c:
            c.open_producer(f"persistent://public/default/t{number}")
            c.publish(b"x")
    placed = asyncio.run(ensembles())
    assert len(placed) >= 10
    # By chance alone, one of three pairs would be within a rack.
    assert [pair for pair in placed if racks[pair[0]] == racks[pair[1]]] == []
    broker.stop()
