"""Namespaces and tenants go whole, by force with what is in them; what nothing names is found and cleared."""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException

import pulsar
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main

from tests.integration.clients import publish
from tests.integration.harness import Endpoint, StandaloneServer, eventually
from tests.integration.raw.transcript import line
from tests.integration.rest import Reply, Rest

SERVER_SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "magnetarOrphanAgeMinSeconds": "0",
}
TOPICS = 40


def own(rest: Rest, method: str, query: str = "") -> Reply:
    """A call of the paths of our own."""
    url = f"{rest.endpoint.http_url}/admin/magnetar/v1/orphans{query}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as response:
        return Reply(response.status, response.read())


def furnish(rest: Rest, namespace: str) -> None:
    rest.do("PUT", f"/persistent/{namespace}/parts/partitions", TOPICS - 1)
    rest.do("PUT", f"/persistent/{namespace}/t")
    rest.do("PUT", f"/persistent/{namespace}/t/subscription/s", None)
    rest.do("POST", f"/persistent/{namespace}/t/messageTTL?messageTTL=7")
    rest.do("POST", f"/namespaces/{namespace}/permissions/role", ["produce"])


@pytest.mark.full
def test_force_takes_a_namespace_with_its_clients(
    rest: Rest, endpoint: Endpoint, client: pulsar.Client
) -> None:
    namespace = rest.new_namespace()
    furnish(rest, namespace)
    publish(client, f"persistent://{namespace}/t", [b"x"] * 100)
    with line(endpoint) as c, line(endpoint) as late:
        c.open_producer(f"persistent://{namespace}/t")
        c.subscribe(f"persistent://{namespace}/parts-partition-1")
        c.subscribe(f"non-persistent://{namespace}/n", consumer_id=2)
        assert rest.refused(409, "DELETE", f"/namespaces/{namespace}") == "Cannot delete non empty namespace"
        rest.do("DELETE", f"/namespaces/{namespace}?force=true")
        told = sorted(c.receive().name for _ in range(3))
        assert told == ["close_consumer", "close_consumer", "close_producer"]
        for name in (f"persistent://{namespace}/t", f"non-persistent://{namespace}/n"):
            late.expect_error(late.request("producer", topic=name, producer_id=9), "TopicNotFound")
            late.expect_error(late.ask_subscribe(name, consumer_id=9), "TopicNotFound")
    rest.refused(404, "PUT", f"/persistent/{namespace}/t")
    rest.refused(404, "PUT", f"/persistent/{namespace}/parts/partitions", 3)
    rest.refused(404, "GET", f"/persistent/{namespace}")
    rest.refused(404, "DELETE", f"/namespaces/{namespace}?force=true")
    rest.do("PUT", f"/namespaces/{namespace}")
    assert rest.get(f"/persistent/{namespace}") == []
    rest.do("PUT", f"/persistent/{namespace}/t")
    assert rest.get(f"/persistent/{namespace}/t/subscriptions") == []
    assert rest.get(f"/persistent/{namespace}/t/messageTTL") is None


def test_a_tenant_goes_with_its_namespaces_by_force(rest: Rest) -> None:
    namespace = rest.new_namespace()
    tenant = namespace.partition("/")[0]
    rest.do("PUT", f"/namespaces/{tenant}/second")
    furnish(rest, namespace)
    assert "active namespaces" in rest.refused(409, "DELETE", f"/tenants/{tenant}")
    rest.do("DELETE", f"/tenants/{tenant}?force=true")
    rest.refused(404, "GET", f"/tenants/{tenant}")
    rest.refused(404, "GET", f"/namespaces/{namespace}")
    assert rest.refused(404, "DELETE", f"/tenants/{tenant}?force=true") == "Tenant doesn't exist"
    rest.do("PUT", f"/tenants/{tenant}", {"allowedClusters": [rest.endpoint.cluster]})
    assert rest.get(f"/namespaces/{tenant}") == []


@pytest.mark.parametrize("path", ["/namespaces/pulsar/system", "/tenants/pulsar"])
def test_the_clusters_own_stays(rest: Rest, path: str) -> None:
    assert "cluster's own" in rest.refused(405, "DELETE", f"{path}?force=true")


def test_two_admins_at_once_never_see_an_error_of_the_server(rest: Rest, endpoint: Endpoint) -> None:
    namespace = rest.new_namespace()
    stop = threading.Event()
    statuses: set[int] = set()

    def again(method: str, path: str) -> None:
        for _ in range(15):
            statuses.add(rest.call(method, path).status)

    def produce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with suppress(AssertionError, OSError, EOFError), line(endpoint) as c:
                c.request("producer", topic=f"persistent://{namespace}/t{number % 3}", producer_id=1)
                c.receive()

    producing = threading.Thread(target=produce)
    producing.start()
    with ThreadPoolExecutor(4) as pool:
        work = [("DELETE", f"/namespaces/{namespace}?force=true"), ("PUT", f"/namespaces/{namespace}")]
        list(pool.map(lambda each: again(*each), work * 2))
    stop.set()
    producing.join(30)
    assert statuses <= {204, 404, 409}
    assert {204, 409} <= statuses
    rest.call("DELETE", f"/namespaces/{namespace}?force=true")
    eventually(lambda: rest.call("PUT", f"/namespaces/{namespace}").status == 204, "it is made anew")
    assert rest.get(f"/persistent/{namespace}") == []


@pytest.mark.parametrize(
    "moment",
    [
        "at once",
        pytest.param("soon", marks=pytest.mark.full),
        pytest.param("when the deletion is done", marks=pytest.mark.nightly),
    ],
)
def test_a_server_killed_in_the_middle_leaves_all_of_a_namespace_or_nothing(
    server: StandaloneServer, moment: str
) -> None:
    rest = Rest(server.endpoint)
    # Others that stand on the same metadata may have left some.
    before = orphans_in(rest)
    namespace = rest.new_namespace()
    furnish(rest, namespace)
    path = f"/namespaces/{namespace}"
    deletion = threading.Thread(target=suppressed, args=(rest, f"{path}?force=true"))
    deletion.start()
    if moment == "soon":
        threading.Event().wait(0.02)
    elif moment == "when the deletion is done":
        eventually(lambda: rest.call("GET", path).status == 404, "it goes")
    server.kill()
    deletion.join(30)
    server.start()
    there = rest.call("GET", path).status == 200
    if there:
        assert len(rest.get(f"/persistent/{namespace}")) == TOPICS
        assert rest.get(f"/persistent/{namespace}/t/subscriptions") == ["s"]
        rest.do("DELETE", f"{path}?force=true")
    assert not there or moment != "when the deletion is done"
    # What storage or metadata did not answer in time is done a minute later.
    eventually(lambda: rest.call("PUT", path).status == 204, "all of it is gone", 90.0)
    assert rest.get(f"/persistent/{namespace}") == []
    assert rest.get(f"/persistent/{namespace}/partitioned") == []
    assert orphans_in(rest) <= before


def orphans_in(rest: Rest) -> set[str]:
    return {each["key"] for each in own(rest, "GET", "?look=true").json["orphans"]}


def suppressed(rest: Rest, path: str) -> None:
    with suppress(OSError, HTTPException):
        rest.call("DELETE", path)


def test_a_server_in_use_has_no_orphans_and_says_so(rest: Rest, endpoint: Endpoint) -> None:
    namespace = rest.new_namespace()
    furnish(rest, namespace)
    found = own(rest, "GET", "?look=true").json
    assert found["orphans"] == []
    assert (found["bytes"], found["truncated"], found["clearing"]) == (0, False, True)
    assert found["lookedAt"] > 0
    assert own(rest, "POST").json == {"dryRun": True, "cleared": [], "failed": []}


def test_the_command_line_lists_and_clears_orphans(rest: Rest, endpoint: Endpoint) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["admin", "--admin-url", endpoint.http_url, *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    # A schema without its topic: nobody but an operator clears it.
    namespace = rest.new_namespace()
    schema = {"type": "STRING", "schema": "", "properties": {}}
    assert rest.call("POST", f"/schemas/{namespace}/early/schema", schema).status == 200
    assert len(own(rest, "GET", "?look=true").json["orphans"]) == 1
    (shown,) = json.loads(run("--output", "json", "orphans", "list"))["orphans"]
    assert (shown["kind"], shown["askFirst"]) == ("schema", True)
    assert f"persistent://{namespace}/early" in run("orphans", "list", "--look")
    assert "to clear" in run("orphans", "clear")
    assert run("orphans", "clear", "--kind", "ledger", "--yes").count("\n") == 1
    assert "cleared" in run("orphans", "clear", "--yes")
    assert own(rest, "GET", "?look=true").json["orphans"] == []


RESERVED = [
    "public/default/__change_events",
    "public/default/__change_events-partition-0",
    "public/default/__transaction_buffer_snapshot",
    "public/default/__transaction_buffer_snapshot_segments",
    "public/default/__transaction_buffer_snapshot_indexes",
    "public/default/t-s__transaction_pending_ack",
    "pulsar/system/transaction_coordinator_assign",
    "pulsar/system/__transaction_log_0",
    "pulsar/system/resource-usage",
    "pulsar/system/anything",
]


@pytest.mark.parametrize("name", RESERVED)
def test_no_way_makes_a_topic_of_a_reserved_name(rest: Rest, endpoint: Endpoint, name: str) -> None:
    for domain in ("persistent", "non-persistent"):
        path = f"/{domain}/{name}"
        assert rest.call("PUT", path).status in (405, 412)
        assert rest.call("PUT", f"{path}/partitions", 2).status in (405, 412)
        assert rest.call("PUT", f"{path}/subscription/s", None).status in (404, 405, 412)
        rest.call("GET", f"{path}/partitions?checkAllowAutoCreation=true")
        with line(endpoint) as c:
            topic = f"{domain}://{name}"
            c.expect_error(c.request("producer", topic=topic, producer_id=1), "NotAllowedError")
            c.expect_error(c.ask_subscribe(topic), "NotAllowedError")
            c.request("partitionMetadata", topic=topic, metadata_auto_creation_enabled=True)
            c.receive()
        namespace = "/".join(name.split("/")[:2])
        for listing in (f"/{domain}/{namespace}", f"/{domain}/{namespace}/partitioned"):
            there = rest.get(f"{listing}?includeSystemTopic=true")
            assert not [each for each in there if name.split("/")[2] in each]
