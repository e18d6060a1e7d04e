"""Bundles over HTTP, as Pulsar's recorded answers have it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.common.cluster.bundles import bundles_of, split
from magnetar.common.errors import NotAllowed, ServiceNotReady, UnknownOutcome
from magnetar.common.metadata.values import Namespace, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import HTTP_URL, KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

NS = "/namespaces/acme/demo"
QUARTERS = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
FIRST = f"{NS}/0x00000000_0x40000000"
TOPICS = [f"persistent://acme/demo/t{number}" for number in range(12)]


class Unloading:
    """Topics as they are unloaded."""

    def __init__(self) -> None:
        self.unloaded: list[str] = []

    async def unload(self, name: TopicName) -> None:
        self.unloaded.append(name.full)


class Moving:
    """Bundles as they are moved; those of `failures` are not."""

    def __init__(self, failures: dict[str, Exception]) -> None:
        self.moved: list[str] = []
        self.failures = failures

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> None:
        self.moved.append(f"{bundle} {to}")
        if str(bundle) in self.failures:
            raise self.failures[str(bundle)]


def test_all_bundles_of_a_namespace_are_moved_though_some_are_there_or_stay(serving: Serving) -> None:
    async def body(http: Http) -> None:
        bundles = [f"{low}_{high}" for low, high in pairwise(QUARTERS)]
        failures: dict[str, Exception] = {
            bundles[0]: NotAllowed("it is at b2:1 already"),
            bundles[1]: ServiceNotReady("nobody takes it"),
        }
        http.broker.bundle_moves = moving = Moving(failures)
        path = "unload?destinationBroker=b2:1"
        reason = await http.reason(503, "PUT", f"{NS}/{path}")
        assert reason.startswith(f"{bundles[1]}: nobody takes it (1 of 4 bundles failed, the others are done")
        assert moving.moved == [f"{each} b2:1" for each in bundles]
        assert await http.reason(412, "PUT", f"{NS}/{bundles[0]}/{path}") == "it is at b2:1 already"
        assert await http.reason(503, "PUT", f"{NS}/{bundles[1]}/{path}") == "nobody takes it"
        del failures[bundles[1]]
        assert await http.send("PUT", f"{NS}/{path}") == (204, "")

    serving(body)


async def boundaries(http: Http) -> list[str]:
    found = await http.ask(f"{NS}/bundles")
    assert found["numBundles"] == len(found["boundaries"]) - 1
    assert (await http.ask(NS))["bundles"] == found
    return list(found["boundaries"])


def test_a_bundle_is_split_in_the_middle(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{FIRST}/split?unload=false&splitAlgorithmName=range_equally_divide"
        assert await http.send("PUT", path) == (204, "")
        assert await boundaries(http) == ["0x00000000", "0x20000000", *QUARTERS[1:]]
        reason = await http.reason(412, "PUT", path)
        assert reason == (
            "Invalid upper boundary for bundle acme/demo/0x00000000_0x40000000. "
            "Expected upper boundary of acme/demo/0x00000000_0x20000000"
        )

    serving(body)


@pytest.mark.parametrize("given", [b"", b'""', b"null", b"[]"])
def test_every_way_to_give_no_positions_is_understood(serving: Serving, given: bytes) -> None:
    async def body(http: Http) -> None:
        assert await http.send("PUT", f"{FIRST}/split", given) == (204, "")
        assert len(await boundaries(http)) == 6

    serving(body)


def test_a_bundle_is_split_at_positions(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{FIRST}/split?splitAlgorithmName=specified_positions_divide"
        assert await http.send("PUT", path, [0x1000_0000, 5, 0x9000_0000, 0]) == (204, "")
        assert await boundaries(http) == ["0x00000000", "0x00000005", "0x10000000", *QUARTERS[1:]]

    serving(body)


def test_a_bundle_is_split_by_the_number_of_topics(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for name in TOPICS:
            http.broker.load(name)
        path = f"{NS}/LARGEST/split?splitAlgorithmName=topic_count_equally_divide"
        assert await http.send("PUT", path) == (204, "")
        edges = [int(edge, 16) for edge in await boundaries(http)]
        (cut,) = [edge for edge in edges if edge not in [int(each, 16) for each in QUARTERS]]
        index = edges.index(cut)
        hashes = [TopicName.parse(name).hash for name in TOPICS]
        halves = [sum(edges[at] <= each < edges[at + 1] for each in hashes) for at in (index - 1, index)]
        assert min(halves) >= 1
        assert abs(halves[0] - halves[1]) <= 1

    serving(body)


@pytest.mark.parametrize(
    ("path", "given", "status", "reason"),
    [
        (f"{NS}/0x00000000_0x80000000/split", None, 412, "Invalid upper boundary"),
        (f"{NS}/0x00000001_0x40000000/split", None, 412, "Invalid lower boundary"),
        (f"{NS}/zzz/split", None, 412, "Invalid bundle range"),
        (f"{NS}/HOT/split", None, 412, "Invalid bundle range"),
        (f"{FIRST}/split?splitAlgorithmName=nope", None, 412, "Unsupported namespace bundle split algorithm"),
        (f"{FIRST}/split?splitAlgorithmName=topic_count_equally_divide", None, 412, "fewer than two"),
        (f"{FIRST}/split?splitAlgorithmName=specified_positions_divide", [0, 2**31], 412, "no position"),
        (f"{FIRST}/split", {"a": 1}, 400, "list of whole numbers, positions"),
        (f"{FIRST}/split", [True], 400, "must be a whole number, not True"),
        (f"{FIRST}/split", ["x"], 400, "must be a whole number, not 'x'"),
        (f"{FIRST}/split", b"{", 400, "not JSON"),
        ("/namespaces/acme/nope/0x00000000_0x40000000/split", None, 404, "Namespace does not exist"),
    ],
)
def test_a_split_that_cannot_be_says_why(
    serving: Serving, path: str, given: Any, status: int, reason: str
) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(status, "PUT", path, given)
        assert await boundaries(http) == QUARTERS

    serving(body)


def test_a_split_that_the_store_did_not_confirm_is_not_made_twice(serving: Serving) -> None:
    async def body(http: Http) -> None:
        store: Any = http.store
        put = store.put

        async def unsure(key: str, value: bytes, version: int) -> int:
            store.put = put
            await put(key, value, version)
            raise UnknownOutcome("nobody knows")

        store.put = unsure
        assert await http.send("PUT", f"{FIRST}/split") == (204, "")
        assert len(await boundaries(http)) == 6

    serving(body)


def test_one_of_two_concurrent_splits_gets_a_conflict(serving: Serving) -> None:
    async def body(http: Http) -> None:
        store: Any = http.store
        put, key = store.put, KEYS.namespace(TopicName.parse(TOPICS[0]).namespace)

        async def late(*given: Any) -> int:
            store.put = put
            found = await store.get(key)
            namespace = decode(Namespace, found.value)
            split(namespace, bundles_of(namespace)[0], [77])
            await put(key, encode(namespace), found.version)
            return int(await put(*given))

        store.put = late
        assert "by another request" in await http.reason(409, "PUT", f"{FIRST}/split")
        assert await boundaries(http) == ["0x00000000", "0x0000004d", *QUARTERS[1:]]

    serving(body)


def test_bundles_are_merged_between_two_boundaries(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{NS}/0x40000000_0xC0000000/merge"
        for _ in range(2):
            assert await http.send("PUT", path) == (204, "")
            assert await boundaries(http) == ["0x00000000", "0x40000000", "0xc0000000", "0xffffffff"]
        assert await http.send("PUT", f"{NS}/0x0_0xffffffff/merge") == (204, "")
        assert await boundaries(http) == ["0x00000000", "0xffffffff"]

    serving(body)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (f"{NS}/0x00000001_0x80000000/merge", 412, "no bundle begins at 0x00000001"),
        (f"{NS}/0x00000000_0x70000000/merge", 412, "no bundle ends at 0x70000000"),
        (f"{NS}/0x80000000_0x40000000/merge", 412, "Invalid bundle range"),
        (f"{NS}/LARGEST/merge", 412, "Invalid bundle range"),
        ("/namespaces/acme/nope/0x00000000_0x80000000/merge", 404, "Namespace does not exist"),
    ],
)
def test_a_merge_that_cannot_be_says_why(serving: Serving, path: str, status: int, reason: str) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(status, "PUT", path)
        assert await boundaries(http) == QUARTERS

    serving(body)


def test_a_bundle_is_split_where_its_topics_carry_as_much_on_either_side(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{NS}/LARGEST/split?splitAlgorithmName=flow_or_qps_equally_divide"
        assert "fewer than two" in await http.reason(412, "PUT", path)
        found: dict[int, list[tuple[int, str]]] = {}
        for name in TOPICS:
            http.broker.load(name)
            ring_hash = TopicName.parse(name).hash
            found.setdefault(ring_hash >> 30, []).append((ring_hash, name))
        largest = max(found.values(), key=len)
        largest.sort()
        busy: Any = http.broker.topics[largest[-1][1]]
        busy.stats.message_rate_in = 1_000.0
        assert await http.send("PUT", path) == (204, "")
        (cut,) = {int(edge, 16) for edge in await boundaries(http)} - {int(each, 16) for each in QUARTERS}
        assert largest[-2][0] < cut <= largest[-1][0], (
            "the busy one is on one side, the others are on the other"
        )

    serving(body)


def test_only_the_ways_to_split_that_are_supported_are_taken(serving: Serving) -> None:
    async def body(http: Http) -> None:
        config: Any = http.broker.config.bundles
        only = replace(
            config, split_algorithm="specified_positions_divide", split_algorithms=(config.split_algorithm,)
        )
        http.broker.config = replace(http.broker.config, bundles=only)
        reason = await http.reason(412, "PUT", f"{FIRST}/split")
        assert reason.endswith("supported algorithms are [range_equally_divide]")
        assert await http.send("PUT", f"{FIRST}/split?splitAlgorithmName=range_equally_divide") == (204, "")

    serving(body)


def test_a_namespace_is_made_with_the_boundaries_of_another(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("PUT", f"{FIRST}/split") == (204, "")
        shown = await http.ask(NS)
        shown.pop("replication_clusters")
        assert await http.send("PUT", "/namespaces/acme/copy", shown) == (204, "")
        assert (await http.ask("/namespaces/acme/copy"))["bundles"] == shown["bundles"]

    serving(body)


@pytest.mark.parametrize(
    ("edges", "status"),
    [
        (["0x00000000"], 412),
        (["0x00000000", "0x10000000"], 412),
        (["0x00000001", "0xffffffff"], 412),
        (["0x00000000", "0x80000000", "0x40000000", "0xffffffff"], 412),
        (["0x00000000", "zzz", "0xffffffff"], 412),
        ([0, 1], 412),
        ([[], 1], 400),
    ],
)
def test_a_namespace_is_not_made_with_boundaries_that_leave_something_out(
    serving: Serving, edges: list[Any], status: int
) -> None:
    async def body(http: Http) -> None:
        await http.reason(status, "PUT", "/namespaces/acme/copy", {"bundles": {"boundaries": edges}})

    serving(body)


def test_unloading_closes_the_topics_of_a_bundle_or_of_all(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.registry = registry = Unloading()
        names = [*TOPICS, "non-persistent://acme/demo/np"]
        for name in [*names, "persistent://public/default/t0"]:
            http.broker.load(name)
        within = [name for name in names if TopicName.parse(name).hash < 0x4000_0000]
        assert within
        assert await http.send("PUT", f"{FIRST}/unload") == (204, "")
        assert sorted(registry.unloaded) == sorted(within)
        registry.unloaded.clear()
        assert await http.send("PUT", f"{FIRST}/split?unload=true") == (204, "")
        assert sorted(registry.unloaded) == sorted(within)
        registry.unloaded.clear()
        assert await http.send("PUT", f"{NS}/unload", "") == (204, "")
        assert sorted(registry.unloaded) == sorted(names)
        own = HTTP_URL.partition("://")[2]
        assert await http.send("PUT", f"{NS}/0x40000000_0x80000000/unload?destinationBroker={own}") == (
            204,
            "",
        )

    serving(body)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (f"{NS}/0x0_0x8/unload", 412, "Invalid upper boundary for bundle acme/demo/0x00000000_0x00000008"),
        (f"{FIRST}/unload?destinationBroker=b9:8080", 405, "there is no broker b9:8080 to unload to"),
        ("/namespaces/acme/nope/unload", 404, "Namespace does not exist"),
        ("/namespaces/a%20b/nope/unload", 412, "a b"),
    ],
)
def test_bundle_that_cannot_be_unloaded_is_refused(
    serving: Serving, path: str, status: int, reason: str
) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(status, "PUT", path)

    serving(body)


def test_topic_positions_in_the_hash_ring_are_shown(serving: Serving) -> None:
    async def body(http: Http) -> None:
        name = "persistent://acme/demo/orders-partition-0"
        http.broker.load(name)
        path = f"{NS}/0x40000000_0x80000000/topicHashPositions"
        one = {
            "namespace": "acme/demo",
            "bundle": "0x40000000_0x80000000",
            "topicHashPositions": {name: 1489776851},
        }
        assert await http.ask(path) == one
        assert await http.ask(f"{path}?topics=persistent://acme/demo/orders") == one
        assert await http.ask(f"{path}?topics=a&topics={name}") == one
        assert (await http.ask(f"{path}?topics=a"))["topicHashPositions"] == {}
        assert (await http.ask(f"{FIRST}/topicHashPositions"))["topicHashPositions"] == {}
        await http.reason(412, "GET", f"{path}?topics=x://y")
        await http.reason(412, "GET", f"{NS}/zzz/topicHashPositions")

    serving(body)


def test_a_bundle_is_let_go_when_it_is_empty(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for _ in range(2):
            assert await http.send("DELETE", FIRST) == (204, "")
        assert await boundaries(http) == QUARTERS
        for name in TOPICS:
            http.broker.load(name)
        assert "Cannot delete non empty bundle" in await http.reason(409, "DELETE", FIRST)
        assert "force-deleted" in await http.reason(405, "DELETE", f"{FIRST}?force=true")
        reason = await http.reason(412, "DELETE", f"{NS}/noSuchPolicy")
        assert reason.startswith("Invalid bundle range: ")
        await http.reason(404, "DELETE", "/namespaces/acme/nope/0x00000000_0x40000000")

    serving(body)
