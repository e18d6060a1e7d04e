"""Whatever is sent to whichever route: no error of the broker, and only refusals that the table declares."""

from __future__ import annotations

import http.client
import random
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Route
from magnetar.broker.admin.table import routes
from magnetar.broker.config import BrokerConfig

from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

CALLS = 800

BODIES = [
    None,
    b"",
    b"null",
    b"{}",
    b"[]",
    b"0",
    b"2",
    b"-1",
    b"99999999999999999999",
    b"1e999",
    b"NaN",
    b"true",
    b'"earliest"',
    b"{bad",
    b"\xff\xfe",
    b"[" * 5000,
    b"[[]]",
    b'["Shared"]',
    b'{"a": {"b": 1}}',
    b'{"\\ud800": "\\ud800"}',
    b'{"ledgerId": 0, "entryId": 0}',
    b'{"serviceUrl": "http://c2:8080", "brokers": ["b1"]}',
    b'{"brokers": ["b1", "b1"], "rack": "/r", "memory": 1e308}',
    b'["standalone"]',
    b'{"ledgerId": 9223372036854775807, "entryId": 9223372036854775807}',
    b'{"ledgerId": 99999999999999999999}',
    b'{"partitions": null}',
    b'{"limit": 9223372036854775808, "policy": "producer_exception"}',
    b'{"retentionTimeInMinutes": 5, "retentionSizeInMB": 9223372036854775807}',
    b'{"dispatchThrottlingRateInMsg": -5, "ratePeriodInSecond": -3}',
    b'{"maxInactiveDurationSeconds": 3, "inactiveTopicDeleteMode": ["x"]}',
    b'{"bundles": []}',
    b'{"topicDispatchRate": {"standalone": 3}}',
]
NUMBERS = ["0", "1", "5", "-1", "x", "9223372036854775808", "99999999999999999999"]
NAMES = {
    "tenant": ["bad", "bad", "public", "nope", "%20", "a%2Fb", "%FF", ".."],
    "namespace": ["ns", "ns", "default", "nope", "%2E"],
    "topic": ["a", "p", "a", "p-partition-0", "p-partition-7", "nope", "%20", "x" * 5000, "%ED%A0%80"],
    "domain": ["persistent", "non-persistent", "bogus"],
    "subscription": ["s", "s", "nope", "%2525", "%20", "x" * 3000],
    "cluster": ["standalone", "c2", "c2", "nope", "%20", ".."],
    "domainName": ["fd1", "%00"],
    "policyName": ["iso1", "%F0%9F%98%80"],
    "bundle": ["0x00000000_0x40000000", "0x00_0x40", "zzz"],
    "bookie": ["b:1", "%2F", "nope"],
    "configName": ["keySharedLookAheadMsgInReplayThresholdPerConsumer", "nosuch"],
    "key": ["k", "%00"],
    "value": ["v", "%F0%9F%98%80"],
}
QUERIES = [
    "",
    "?force=true",
    "?applied=true",
    "?backlogQuotaType=message_age",
    "?backlogQuotaType=x",
    "?bundle=zzz",
    "?mode=x",
    "?messageTTL=x",
    "?messagePosition=99999999999999999999",
    "?migrated=true",
    "?group=g&tenant=bad",
]


class Nobody:
    """A broker of which only the table is wanted."""

    config = BrokerConfig()
    topics: ClassVar[dict[str, object]] = {}


def sent(chance: random.Random, route: Route) -> tuple[str, bytes | None]:
    """A path with its query, and a body."""
    path = route.path
    for name in ("{" + part.strip("{}") + "}" for part in path.split("/") if part.startswith("{")):
        path = path.replace(name, chance.choice(NAMES.get(name.strip("{}"), NUMBERS)))
    return path + chance.choice(QUERIES), None if route.method == "GET" else chance.choice(BODIES)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("our_contract")
def test_bad_input_is_refused_as_the_table_says(endpoint: Endpoint, seed: int) -> None:
    rest, chance = Rest(endpoint), random.Random(seed)
    rest.call("PUT", "/tenants/bad", {"allowedClusters": [endpoint.cluster]})
    table = [
        route
        for route in routes(Nobody())  # type: ignore[arg-type]
        if route.object != "metrics" and not route.path.endswith("/brokers/shutdown")
    ]
    where = urlsplit(endpoint.http_url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    seen = set()
    for number in range(CALLS):
        if number % 100 == 0:
            rest.call("PUT", "/namespaces/bad/ns")
            rest.call("PUT", "/persistent/bad/ns/a/subscription/s", "earliest")
            rest.call("PUT", "/persistent/bad/ns/p/partitions", 2)
        route = chance.choice(table)
        path, body = sent(chance, route)
        connection.request(route.method, path, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            status, answer = response.status, response.read()
        what = (route.method, path[:200], body and body[:80], status, answer[:200])
        assert status < 500 or status in (501, 503), what
        assert status < 400 or status in route.errors or status in COMMON_ERRORS, what
        assert status >= 400 or status == route.status or (route.method, status) == ("GET", 204), what
        seen.add(status)
    assert {200, 204, 400, 404, 412} <= seen
    connection.close()
