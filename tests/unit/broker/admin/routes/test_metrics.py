from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

from tests.unit.broker.metrics.test_page import TOPIC, samples, value

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http


def test_metrics_serves_topics_the_process_and_the_registry(serving: Serving) -> None:
    counter = Counter("magnetar_test_of_the_page", "A counter of this test.", registry=REGISTRY)
    counter.inc(3)

    async def body(http: Http) -> None:
        http.broker.load("t").stats.messages_in = 9
        for path in ("/metrics", "/metrics/"):
            async with http.client.get(http.base + path) as response:
                assert response.status == 200
                assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                text = await response.text()
            assert value(text, "pulsar_in_messages_total", TOPIC) == 9
            cluster = {"cluster": "standalone"}
            assert value(text, "magnetar_test_of_the_page_total", cluster) == 3
            assert value(text, "process_resident_memory_bytes", cluster) > 0
            assert value(text, "python_gc_collections_total", {**cluster, "generation": "0"}) >= 0
            # Other brokers of this process may have left samples of their clusters in the registry.
            assert all(dict(labels).get("cluster") for _, labels in samples(text))

    try:
        serving(body)
    finally:
        REGISTRY.unregister(counter)


def test_metrics_of_the_broker_are_chosen_by_name(serving: Serving) -> None:
    counter = Counter("magnetar_test_of_a_name", "A counter of this test.", registry=REGISTRY)

    async def body(http: Http) -> None:
        http.broker.load("t").stats.messages_in = 9
        wanted = "name%5B%5D=magnetar_test_of_a_name_total"
        status, text = await http.get(f"/metrics?{wanted}&name%5B%5D=nosuch")
        assert status == 200
        assert {name for name, _ in samples(text)} == {"magnetar_test_of_a_name_total"}
        assert value(text, "magnetar_test_of_a_name_total", {"cluster": "standalone"}) == 0
        assert (await http.get(f"/metrics?{'&'.join([wanted] * 101)}"))[0] == 412

    try:
        serving(body)
    finally:
        REGISTRY.unregister(counter)
