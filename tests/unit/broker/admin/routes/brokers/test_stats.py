"""Figures of a broker over HTTP, in the shape of Pulsar's recorded answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.broker.admin.fake_broker import FakeSubscription

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

RECORDED_LOAD_REPORT = {
    "webServiceUrl",
    "pulsarServiceUrl",
    "persistentTopicsEnabled",
    "nonPersistentTopicsEnabled",
    "cpu",
    "memory",
    "directMemory",
    "bandwidthIn",
    "bandwidthOut",
    "msgThroughputIn",
    "msgThroughputOut",
    "msgRateIn",
    "msgRateOut",
    "lastUpdate",
    "lastStats",
    "numTopics",
    "numBundles",
    "numConsumers",
    "numProducers",
    "bundles",
    "lastBundleGains",
    "lastBundleLosses",
    "brokerVersionString",
    "protocols",
    "advertisedListeners",
    "loadManagerClassName",
    "startTimestamp",
    "maxResourceUsage",
    "loadReportType",
}
RECORDED_BUNDLE = {
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "consumerCount",
    "producerCount",
    "topics",
    "cacheSize",
}
STATS = "/broker-stats"


def some_topics(http: Http) -> None:
    for name in ("t1", "t2"):
        topic = http.broker.load(f"persistent://acme/demo/{name}")
        topic.producer_count = 2
        topic.storage_bytes = 100
        topic.stats.message_rate_in = 1.5
        topic.subscriptions["s"] = FakeSubscription(consumer_count=3, entries_behind=7)


def test_the_load_report_adds_topics_up_by_bundle(serving: Serving) -> None:
    async def body(http: Http) -> None:
        some_topics(http)
        report = await http.ask(f"{STATS}/load-report")
        assert set(report) == RECORDED_LOAD_REPORT
        assert (report["numTopics"], report["numProducers"], report["numConsumers"]) == (2, 4, 6)
        assert report["msgRateIn"] == 3.0
        assert report["bundles"] == list(report["lastStats"])
        assert all(bundle.startswith("acme/demo/0x") for bundle in report["bundles"])
        assert all(set(each) == RECORDED_BUNDLE for each in report["lastStats"].values())
        assert sum(each["topics"] for each in report["lastStats"].values()) == 2
        assert report["numBundles"] == len(report["bundles"])
        assert report["webServiceUrl"] == "http://localhost:8080"
        for resource in ("cpu", "memory", "directMemory"):
            assert report[resource]["usage"] >= 0, resource
            assert report[resource]["limit"] > 0, resource

    serving(body)


def test_metrics_are_of_the_broker_and_of_each_namespace(serving: Serving) -> None:
    async def body(http: Http) -> None:
        some_topics(http)
        http.broker.connections, http.broker.connections_accepted = 2, 5
        found = await http.ask(f"{STATS}/metrics")
        assert all(set(each) == {"metrics", "dimensions"} for each in found)
        by_name = {
            each["dimensions"].get("namespace", each["dimensions"].get("metric")): each["metrics"]
            for each in found
        }
        assert by_name["acme/demo"] == {
            "brk_in_rate": 3.0,
            "brk_in_tp_rate": 0.0,
            "brk_out_rate": 0.0,
            "brk_out_tp_rate": 0.0,
            "brk_msg_backlog": 14.0,
            "brk_no_of_consumers": 6,
            "brk_no_of_producers": 4,
            "brk_no_of_replicators": 0,
            "brk_no_of_subscriptions": 2,
            "brk_storage_size": 200.0,
        }
        assert by_name["broker_connection"]["brk_connection_closed_total_count"] == 3
        assert by_name["broker_health"] == {"brk_health": 1}
        assert by_name[None]["brk_ml_count"] == 2

    serving(body)


def test_memory_is_that_of_the_process_or_of_the_cache(serving: Serving) -> None:
    async def body(http: Http) -> None:
        found = await http.ask(f"{STATS}/allocator-stats/default")
        assert found["usedHeapMemory"] > 1 << 20
        assert (found["directArenas"], found["heapArenas"]) == ([], [])
        assert (await http.ask(f"{STATS}/allocator-stats/ml-cache"))["usedHeapMemory"] == 0
        assert "ml-cache" in await http.reason(406, "GET", f"{STATS}/allocator-stats/other")

    serving(body)


def test_missing_statistics_are_empty_or_refused(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(f"{STATS}/topics") == {}
        assert await http.ask(f"{STATS}/mbeans") == []
        assert await http.ask(f"{STATS}/bookieops") == {}
        path = f"{STATS}/broker-resource-availability/acme"
        assert "keeps no list" in await http.reason(409, "GET", f"{path}/demo")
        assert await http.reason(404, "GET", f"{path}/nope") == "Namespace does not exist"

    serving(body)
