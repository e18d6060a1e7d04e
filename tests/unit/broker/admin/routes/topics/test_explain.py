"""The place of a topic is asked of the leader, which has the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.explanation import BundlePlacement, what_would_move, why_here
from magnetar.broker.load.placement import Candidate
from magnetar.broker.reason import Reason
from magnetar.common.cluster.bundle_owners import Bundle, Owned
from magnetar.common.metadata.values import Leader

from tests.unit.broker.admin.routes.brokers.test_brokers import OTHER, OWN, clustered

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

PATH = "/admin/magnetar/v1/persistent/public/default/t/explain"

PLACEMENT = BundlePlacement(
    owner=Owned(OTHER, 1, 5, 1_000),
    choice=OWN,
    candidates=[Candidate(OTHER, usage=50.0, bundles=3), Candidate(OWN, usage=10.25, of_namespace=1)],
    allowed=frozenset({OWN}),
    steady_percent={OTHER: 50.0, OWN: 10.0},
    limit_percent=40.0,
    pinned=False,
    rests_s=0.0,
)


def explain(bundle: Bundle, owner: str = OTHER) -> tuple[list[Reason], list[Reason], BundlePlacement]:
    placement = replace(PLACEMENT, owner=Owned(owner, 1, 5, 1_000))
    return why_here(str(bundle[1]), placement), what_would_move(placement, LoadConfig()), placement


def test_the_leader_answers_and_others_redirect_to_it(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await http.add_namespace("public/default")
        http.broker.load("persistent://public/default/t")
        cluster = clustered(http)
        http.broker.load_leader = SimpleNamespace(explain=explain)
        cluster.directory.leader = Leader(id=OTHER)
        async with http.client.get(f"{http.base}{PATH}", allow_redirects=False) as response:
            assert response.status == 307
            assert response.headers["Location"] == f"http://{OTHER}{PATH}?authoritative=true"
        cluster.directory.leader = Leader(id=OWN)
        status, text = await http.get(PATH)
        found = json.loads(text)
        assert (status, found["broker"], found["bundle"][:2], found["partitions"]) == (200, OTHER, "0x", 0)
        assert [each["code"] for each in found["reasons"]] == ["owned", "better_choice"]
        assert found["reasons"][0]["since"] == "1970-01-01T00:00:01.000Z"
        assert [each["code"] for each in found["moves"]] == ["not_allowed", "load", "unload"]
        assert found["brokers"][1] == {
            "brokerId": OWN,
            "usage": 10.2,
            "topics": 0,
            "bundles": 0,
            "bundlesOfNamespace": 1,
            "draining": False,
            "allowed": True,
        }
        assert (await http.get(PATH.replace("/t/", "/absent/")))[0] == 404

    serving(body)
