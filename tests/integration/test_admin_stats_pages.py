"""The statistics of a namespace's topics in pages."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pulsar
import pytest

from tests.integration.rest import Rest


def test_pages_show_every_topic_once_in_the_order_of_names(rest: Rest, client: pulsar.Client) -> None:
    namespace = rest.new_namespace()
    names = sorted(f"persistent://{namespace}/topic-{number}" for number in range(7))
    for number, name in enumerate(reversed(names)):
        consumer = client.subscribe(name, "sub")
        producer = client.create_producer(name)
        for _ in range(number):
            producer.send(b"x")
        producer.close()
        consumer.close()
    pages = [_page(rest, namespace, f"offset={offset}&limit=3") for offset in (0, 3, 6, 9)]
    assert [len(page["topics"]) for page in pages] == [3, 3, 1, 0]
    assert {(page["total"], page["offset"]) for page in pages} == {(7, 0), (7, 3), (7, 6), (7, 9)}
    shown = {name: stats for page in pages for name, stats in page["topics"].items()}
    assert list(shown) == names
    for number, name in enumerate(reversed(names)):
        assert shown[name]["subscriptions"]["sub"]["msgBacklog"] == number
    one = rest.get(f"/persistent/{namespace}/topic-3/stats")
    assert shown[f"persistent://{namespace}/topic-3"].keys() == one.keys()


@pytest.mark.parametrize(
    ("namespace", "query", "status", "said"),
    [
        ("public/default", "limit=0", 412, "limit"),
        ("public/default", "limit=10001", 412, "limit"),
        ("public/default", "offset=-1", 412, "offset"),
        ("public/default", "offset=one", 400, "whole number"),
        ("public/none", "", 404, "Namespace does not exist"),
    ],
)
def test_unknown_stats_page_is_refused(
    rest: Rest, namespace: str, query: str, status: int, said: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        _page(rest, namespace, query)
    with refused.value as error:
        assert error.code == status
        assert said in json.load(error)["reason"]


def _page(rest: Rest, namespace: str, query: str) -> Any:
    url = f"{rest.endpoint.http_url}/admin/magnetar/v1/namespaces/{namespace}/topics/stats?{query}"
    with urllib.request.urlopen(url, timeout=20) as response:
        return json.load(response)
