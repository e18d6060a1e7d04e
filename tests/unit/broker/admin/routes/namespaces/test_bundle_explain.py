"""The place and the load of a bundle: of the leader, which asks its owner."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

from magnetar.broker.load.config import LoadConfig, SplittingConfig
from magnetar.broker.load.explanation import what_would_split
from magnetar.broker.reason import Reason
from magnetar.common.control.control_pb2 import Load
from magnetar.common.metadata.values import Leader

from tests.unit.broker.admin.routes.brokers.test_brokers import OTHER, OWN, clustered
from tests.unit.broker.admin.routes.topics.test_explain import explain

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

BUNDLE = "0x00000000_0xffffffff"
PATH = f"/admin/magnetar/v1/namespaces/acme/demo/{BUNDLE}/explain"


def explain_split(load: Load, bundles: int) -> list[Reason]:
    return what_would_split(load, bundles, LoadConfig(splitting=SplittingConfig(topics_max=1)))


async def one_bundle(http: Http) -> None:
    status, _ = await http.send("PUT", "/namespaces/acme/one", {"bundles": {"numBundles": 1}})
    assert status == 204


PATH_OF_ONE = PATH.replace("/demo/", "/one/")


def test_a_standalone_has_every_bundle(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await one_bundle(http)
        busy = http.broker.load("persistent://acme/one/busy")
        busy.stats.message_rate_in = 50.0
        http.broker.load("persistent://acme/one/idle")
        http.broker.load("persistent://acme/demo/elsewhere")
        found = json.loads((await http.get(PATH_OF_ONE))[1])
        assert [each["code"] for each in found["reasons"]] == ["sole_broker"]
        assert (found["moves"], found["splits"], found["namespaceBundles"]) == ([], [], 1)
        assert [each["topic"] for each in found["topics"]] == [
            "persistent://acme/one/busy",
            "persistent://acme/one/idle",
        ]
        assert (await http.get(PATH))[0] == 412, "it is no bundle of that namespace"
        assert (await http.get(PATH.replace("/demo/", "/absent/")))[0] == 404

    serving(body)


def test_the_leader_answers_with_the_load_that_the_owner_measures(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await one_bundle(http)
        for number in range(2):
            http.broker.load(f"persistent://acme/one/t{number}")
        owned = json.loads((await http.get(f"{PATH_OF_ONE}?here=true"))[1])
        assert owned["splits"] == []
        cluster = clustered(http)
        http.broker.load_leader = SimpleNamespace(explain=explain, explain_split=explain_split)
        owned = json.loads((await http.get(f"{PATH_OF_ONE}?here=true"))[1])
        assert [(each["code"], each["stops"]) for each in owned["splits"]] == [("split", True)]

        cluster.directory.leader = Leader(id=OTHER)
        async with http.client.get(f"{http.base}{PATH_OF_ONE}", allow_redirects=False) as response:
            assert response.headers["Location"] == f"http://{OTHER}{PATH_OF_ONE}?authoritative=true"
        cluster.directory.leader = Leader(id=OWN)
        http.broker.load_leader.explain = lambda bundle: explain(bundle, owner=OWN)
        found = json.loads((await http.get(PATH_OF_ONE))[1])
        assert (found["broker"], found["splits"], len(found["topics"])) == (OWN, owned["splits"], 2)
        assert [each["code"] for each in found["reasons"]] == ["owned", "best_choice"]
        assert [each["brokerId"] for each in found["brokers"]] == [OTHER, OWN]

        http.broker.load_leader.explain = explain
        cluster.directory.get = {}.get
        found = json.loads((await http.get(PATH_OF_ONE))[1])
        assert (found["unreachable"], found["topics"]) == (f"broker {OTHER} has stopped", [])
        assert [each["code"] for each in found["reasons"]] == ["owned", "better_choice"]

    serving(body)
