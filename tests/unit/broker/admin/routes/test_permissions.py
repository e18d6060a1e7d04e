"""Permissions over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from magnetar.common.metadata.values import PartitionedTopic, TopicHead, encode
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

NS = "/namespaces/acme/demo"
SINGLE = "persistent://acme/demo/single"
ORDERS = "persistent://acme/demo/orders"


async def add_topic(http: Http, name: str) -> str:
    topic = TopicName.parse(name)
    await http.store.put(KEYS.topic_head(topic), encode(TopicHead()))
    http.broker.unloaded.append(topic.full)
    return f"/persistent/{topic.namespace}/{topic.local_name}"


async def add_partitioned(http: Http, name: str) -> str:
    topic = TopicName.parse(name)
    await http.store.put(KEYS.partitioned_topic(topic), encode(PartitionedTopic(partitions=2)))
    http.broker.partition_counts[topic.full] = 2
    return f"/persistent/{topic.namespace}/{topic.local_name}"


def test_permissions_of_a_namespace(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{NS}/permissions"
        assert await http.ask(path) == {}
        for _ in range(2):
            assert await http.send("POST", f"{path}/role1", ["produce", "consume"]) == (204, "")
        assert await http.send("POST", f"{path}/a%2Fb%20c", ["sources"]) == (204, "")
        assert await http.ask(path) == {"a/b c": ["sources"], "role1": ["consume", "produce"]}
        assert await http.send("POST", f"{path}/role1", ["produce"]) == (204, "")
        for _ in range(2):
            assert await http.send("DELETE", f"{path}/a%2Fb%20c") == (204, "")
        assert await http.ask(path) == {"role1": ["produce"]}
        shown = (await http.ask(NS))["auth_policies"]
        assert shown == {
            "namespace_auth": {"role1": ["produce"]},
            "destination_auth": {},
            "subscription_auth_roles": {},
        }

    serving(body)


def test_roles_of_a_subscription_are_shown(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{NS}/permissions"
        assert await http.ask(f"{path}/subscription") == {}
        assert await http.send("POST", f"{path}/subscription/sub1", ["role2", "role1", "role1"]) == (204, "")
        assert await http.send("POST", f"{path}/subscription/a%252Fb", ["role1"]) == (204, "")
        assert await http.ask(f"{path}/subscription") == {"a/b": ["role1"], "sub1": ["role1", "role2"]}
        for _ in range(2):
            assert await http.send("DELETE", f"{path}/sub1/role2") == (204, "")
        assert await http.send("DELETE", f"{path}/a%252Fb/role1") == (204, "")
        assert await http.ask(f"{path}/subscription") == {"sub1": ["role1"]}
        assert (await http.ask(NS))["auth_policies"]["subscription_auth_roles"] == {"sub1": ["role1"]}
        assert await http.send("POST", f"{path}/subscription/sub1", []) == (204, "")
        assert await http.ask(f"{path}/subscription") == {}
        assert await http.ask(path) == {}

    serving(body)


def test_permissions_of_a_topic_are_its_own_and_its_namespaces(serving: Serving) -> None:
    async def body(http: Http) -> None:
        topic = await add_topic(http, SINGLE)
        path = f"{topic}/permissions"
        assert await http.ask(path) == {}
        assert await http.send("POST", f"{path}/r1", ["produce"]) == (204, "")
        assert await http.ask(path) == {"r1": ["produce"]}
        assert await http.send("POST", f"{NS}/permissions/r1", ["consume"]) == (204, "")
        assert await http.send("POST", f"{NS}/permissions/r2", ["consume"]) == (204, "")
        assert await http.ask(path) == {"r1": ["consume", "produce"], "r2": ["consume"]}
        assert (await http.ask(NS))["auth_policies"]["destination_auth"] == {SINGLE: {"r1": ["produce"]}}
        assert await http.send("DELETE", f"{topic}/policies") == (204, "")
        assert (await http.ask(path))["r1"] == ["consume", "produce"], "they are no policy"
        for role in ("r1", "rX"):
            assert await http.send("DELETE", f"{path}/{role}") == (204, "")
        assert await http.ask(path) == {"r1": ["consume"], "r2": ["consume"]}
        assert (await http.ask(NS))["auth_policies"]["destination_auth"] == {}

    serving(body)


def test_partitions_have_the_permissions_of_their_topic(serving: Serving) -> None:
    async def body(http: Http) -> None:
        topic = await add_partitioned(http, ORDERS)
        assert await http.send("POST", f"{topic}/permissions/r1", ["produce"]) == (204, "")
        part = await add_topic(http, f"{ORDERS}-partition-0")
        assert await http.ask(f"{part}/permissions") == {"r1": ["produce"]}
        for method, given in (("POST", ["consume"]), ("DELETE", None)):
            reason = await http.reason(412, method, f"{part}/permissions/r1", given)
            assert f"permissions are those of {ORDERS}" in reason
        assert await http.ask(f"{topic}/permissions") == {"r1": ["produce"]}

    serving(body)


def test_permissions_of_a_topic_that_is_not_persistent(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.load("non-persistent://acme/demo/np")
        path = "/non-persistent/acme/demo/np/permissions"
        assert await http.send("POST", f"{path}/r1", ["consume"]) == (204, "")
        assert await http.ask(path) == {"r1": ["consume"]}

    serving(body)


def test_permissions_on_several_topics_at_once(serving: Serving) -> None:
    async def body(http: Http) -> None:
        single, orders = await add_topic(http, SINGLE), await add_partitioned(http, ORDERS)
        given = [
            {"topic": SINGLE, "role": "r1", "actions": ["produce"]},
            {"topic": ORDERS, "role": "r2", "actions": ["consume", "produce"]},
        ]
        for _ in range(2):
            assert await http.send("POST", "/namespaces/grantPermissionsOnTopics", given) == (204, "")
        assert await http.ask(f"{single}/permissions") == {"r1": ["produce"]}
        assert await http.ask(f"{orders}/permissions") == {"r2": ["consume", "produce"]}
        gone = [{"topic": SINGLE, "role": "r1"}, {"topic": ORDERS, "role": "r9"}]
        for _ in range(2):
            assert await http.send("POST", "/namespaces/revokePermissionsOnTopics", gone) == (204, "")
        assert await http.ask(f"{single}/permissions") == {}
        assert await http.ask(f"{orders}/permissions") == {"r2": ["consume", "produce"]}

    serving(body)


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"topic": "persistent://acme/demo/nope"}, 404, "Topic persistent://acme/demo/nope not found"),
        ({"topic": "persistent://acme/none/t"}, 404, "Namespace not found"),
        ({"topic": "x://y"}, 412, "x://y"),
        ({"topic": None}, 400, "must name its topic"),
        ({"role": ""}, 412, "a role must be a string"),
        ({"role": [3]}, 400, "role must be a string"),
        ({"actions": ["fly"]}, 400, "'fly' is not one of the actions"),
        ({"actions": None}, 400, "must be a list of"),
    ],
)
def test_one_invalid_permission_refuses_all(
    serving: Serving, change: dict[str, Any], status: int, reason: str
) -> None:
    async def body(http: Http) -> None:
        single = await add_topic(http, SINGLE)
        good = {"topic": SINGLE, "role": "r1", "actions": ["produce"]}
        given = [good, {**good, "role": "r2", **change}]
        path = "/namespaces/grantPermissionsOnTopics"
        assert reason in await http.reason(status, "POST", path, given)
        assert await http.ask(f"{single}/permissions") == {}

    serving(body)


@pytest.mark.parametrize("given", [{}, ["x"], 3, None, b"", b"{"])
def test_invalid_permission_list_is_refused(serving: Serving, given: Any) -> None:
    async def body(http: Http) -> None:
        for verb in ("grant", "revoke"):
            await http.reason(400, "POST", f"/namespaces/{verb}PermissionsOnTopics", given)

    serving(body)


@pytest.mark.parametrize(
    ("path", "given", "status", "reason"),
    [
        (f"{NS}/permissions/r", ["bogus", "produce"], 400, "'bogus' is not one of the actions consume"),
        (f"{NS}/permissions/r", [[]], 400, "is not one of"),
        (f"{NS}/permissions/r", "produce", 400, "must be a list of"),
        (f"{NS}/permissions/r", b"", 400, "empty"),
        (f"{NS}/permissions/%20", ["produce"], 412, "a role must be a string"),
        (f"{NS}/permissions/{'r' * 1025}", ["produce"], 412, "a role must be a string"),
        (f"{NS}/permissions/subscription/s", "role1", 400, "roles must be a list"),
        (f"{NS}/permissions/subscription/s", [[]], 400, "must be a string"),
        ("/namespaces/acme/nope/permissions/r", ["produce"], 404, "Namespace does not exist"),
        ("/persistent/acme/demo/nope/permissions/r", ["produce"], 404, "Topic persistent://acme/demo/nope"),
        ("/persistent/acme/nope/t/permissions/r", ["produce"], 404, "Namespace not found"),
        ("/persistent/acme/a%20b/t/permissions/r", ["produce"], 412, "a b"),
    ],
)
def test_a_permission_that_cannot_be_is_refused(
    serving: Serving, path: str, given: Any, status: int, reason: str
) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(status, "POST", path, given)
        assert await http.ask(f"{NS}/permissions") == {}

    serving(body)


def test_a_namespace_is_made_with_permissions(serving: Serving) -> None:
    async def body(http: Http) -> None:
        auth = {"namespace_auth": {"r": ["produce"]}, "subscription_auth_roles": {"s": ["r"], "t": []}}
        assert await http.send("PUT", "/namespaces/acme/made", {"auth_policies": auth}) == (204, "")
        assert await http.ask("/namespaces/acme/made/permissions") == {"r": ["produce"]}
        assert await http.ask("/namespaces/acme/made/permissions/subscription") == {"s": ["r"]}

    serving(body)


def test_permissions_of_a_namespace_are_bounded(serving: Serving) -> None:
    async def body(http: Http) -> None:
        roles = [f"{number:04}{'r' * 1000}" for number in range(600)]
        path = f"{NS}/permissions/subscription/s"
        assert "at most 524288" in await http.reason(405, "POST", path, roles)
        assert await http.ask(f"{NS}/permissions/subscription") == {}

    serving(body)
