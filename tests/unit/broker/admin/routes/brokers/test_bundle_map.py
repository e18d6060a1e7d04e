"""Brokers with their bundles and load: owners from metadata, load as brokers reported it to the leader."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock

from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_pb2 import BrokerLoad, BundleLoad, Load, LoadReport
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import Leader
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName

from tests.unit.broker.admin.routes.brokers.test_brokers import OTHER, OWN, clustered

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

PATH = "/admin/magnetar/v1/brokers"


def test_owners_are_shown_with_the_load_that_they_reported(serving: Serving) -> None:
    namespace, bundles = NamespaceName("acme", "demo"), split_ring(3)

    async def body(http: Http) -> None:
        cluster = clustered(http)
        cluster.directory.is_current = lambda broker, run: run == 1
        owners = [Owned(OTHER, 1, 1, 5), Owned(OTHER, 1, 2, 6), Owned(OWN, 0, 3, 7)]
        cluster.owners = SimpleNamespace(
            all=lambda: [(namespace, each, owner) for each, owner in zip(bundles, owners, strict=True)]
        )
        busy = Load(message_rate_in=40.0, topics=2)
        report = LoadReport(broker_id=OTHER, cpu_percent=12.34, total=busy, draining=True)
        report.loads.append(BundleLoad(namespace="acme/demo", bundle=str(bundles[1]), load=busy))
        loads = Mock(return_value=[BrokerLoad(report=report, age_ms=300)])
        http.broker.load_leader = SimpleNamespace(loads=loads)

        cluster.directory.leader = Leader(id=OTHER)
        async with http.client.get(f"{http.base}{PATH}", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (
                307,
                f"http://{OTHER}{PATH}?authoritative=true",
            )
        cluster.directory.leader = Leader(id=OWN)

        found = {each["brokerId"]: each for each in json.loads((await http.get(PATH))[1])["brokers"]}
        other, own = found[OTHER], found[OWN]
        assert (other["leader"], other["loadAgeMs"], other["cpuPercent"]) == (False, 300, 12.3)
        assert (other["draining"], other["msgRateIn"], other["bundleCount"]) == (True, 40.0, 2)
        first, second = other["bundles"]
        assert (first["bundle"], first["msgRateIn"], first["since"]) == (str(bundles[1]), 40.0, 6)
        row = {"namespace": first["namespace"], "bundle": str(bundles[0]), "since": second["since"]}
        assert second == row
        assert own == {
            "brokerId": OWN,
            "httpUrl": f"http://{OWN}",
            "leader": True,
            "bundleCount": 0,
            "bundles": [],
        }

        limited = json.loads((await http.get(f"{PATH}?limit=1"))[1])["brokers"]
        assert [(each["bundleCount"], len(each["bundles"])) for each in limited] == [(2, 1), (0, 0)]
        assert (await http.get(f"{PATH}?limit=0"))[0] == 412

        loads.side_effect = ServiceNotReady("this broker is not the leader")
        without = json.loads((await http.get(PATH))[1])["brokers"]
        assert not any("loadAgeMs" in each for each in without)

    serving(body)


def test_a_standalone_owns_the_bundles_that_have_topics(serving: Serving) -> None:
    async def body(http: Http) -> None:
        topic = http.broker.load("persistent://acme/demo/t")
        topic.stats.message_rate_in = 3.0
        (sole,) = json.loads((await http.get(PATH))[1])["brokers"]
        assert (sole["brokerId"], sole["leader"], sole["topics"], sole["msgRateIn"]) == (OWN, True, 1, 3.0)
        (bundle,) = sole["bundles"]
        assert (bundle["namespace"], bundle["topics"], bundle["msgRateIn"]) == ("acme/demo", 1, 3.0)
        http.broker.not_ready = "the broker is starting"
        assert json.loads((await http.get(PATH))[1]) == {"brokers": []}

    serving(body)
