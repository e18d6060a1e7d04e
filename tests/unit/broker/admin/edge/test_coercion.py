"""Scalars of bodies are read as Apache Pulsar 4.0.7 reads them: each row was tried there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.broker.admin.edge.coercion import JsonFraction, coerce
from magnetar.broker.admin.edge.errors import Refused

from tests.unit.broker.admin.routes.namespaces.test_policies import NS, TOPIC, add_topic

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http


def read(type_name: str, text: str) -> Any:
    return coerce(type_name, json.loads(text, parse_float=JsonFraction.parse), "member")


@pytest.mark.parametrize("type_name", ["int", "long"])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('"3"', 3),
        ('" 3 "', 3),
        ('"+3"', 3),
        ('"-3"', -3),
        ('"03"', 3),
        ('"\\uff13"', 3),
        ("3.7", 3),
        ("-3.7", -3),
        ("1e2", 100),
        ('""', 0),
        ('" "', 0),
        ('"null"', 0),
        ("null", 0),
    ],
)
def test_whole_numbers_come_as_texts_as_fractions_and_as_nothing(
    type_name: str, text: str, number: int
) -> None:
    found = read(type_name, text)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize(
    "text",
    ['"3.7"', '"3e1"', '"abc"', '"0x10"', '"true"', '"1_000"', '"3L"', "true", "false", "[3]", "{}"],
)
def test_invalid_integer_is_named_with_its_member(text: str) -> None:
    with pytest.raises(Refused, match="member must be a whole number, not ") as refused:
        read("int", text)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["2147483648", '"2147483648"', "2147483648.0", "1e30"])
def test_a_number_that_an_int_cannot_hold_is_out_of_range(text: str) -> None:
    with pytest.raises(Refused, match="member is out of range for the type int"):
        read("int", text)


def test_a_long_holds_what_an_int_cannot() -> None:
    assert read("long", '"99999999999"') == 99_999_999_999
    with pytest.raises(Refused, match="member is out of range for the type long"):
        read("long", "9223372036854775808")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3.0),
        ('"3.7"', 3.7),
        ('" 3e1 "', 30.0),
        ('".5"', 0.5),
        ('"5."', 5.0),
        ('"1f"', 1.0),
        ('""', 0.0),
        ("null", 0.0),
    ],
)
def test_numbers_with_fractions_come_as_texts(text: str, number: float) -> None:
    assert read("double", text) == number


@pytest.mark.parametrize("text", ['"abc"', "true", '"NaN"', '"Infinity"', '"1e400"', "[1]"])
def test_non_finite_number_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="member "):
        read("double", text)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        *((f'"{text}"', True) for text in ("true", "True", "TRUE", " true ")),
        *((f'"{text}"', False) for text in ("false", "False", "FALSE", "", " ", "null")),
        ("1", True),
        ("2", True),
        ("-1", True),
        ("0", False),
        ("null", False),
    ],
)
def test_booleans_come_as_texts_and_numbers(text: str, flag: bool) -> None:
    assert read("boolean", text) is flag


@pytest.mark.parametrize("text", ['"tRue"', '"yes"', '"1"', '"0"', "1.0", "[true]", "{}"])
def test_invalid_boolean_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="member must be true or false, not "):
        read("boolean", text)


@pytest.mark.parametrize("type_name", ["int?", "long?", "boolean?"])
@pytest.mark.parametrize("text", ["null", '""', '" "', '"null"'])
def test_nothing_stays_nothing_where_the_type_may_be_null(type_name: str, text: str) -> None:
    assert read(type_name, text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", "3"), ("1.50", "1.50"), ("1e2", "1e2"), ("true", "true"), ('" a "', " a "), ("null", None)],
)
def test_texts_come_as_numbers_and_booleans_and_keep_what_was_written(text: str, expected: Any) -> None:
    assert read("String", text) == expected


@pytest.mark.parametrize("text", ["[]", '["a"]', "{}"])
def test_a_list_is_no_text(text: str) -> None:
    with pytest.raises(Refused, match="member must be a string, not "):
        read("String", text)


@pytest.mark.parametrize("text", ['"producer_exception"', '" producer_exception "', "1", '"1"'])
def test_an_enum_comes_as_its_text_or_its_index(text: str) -> None:
    assert read("BacklogQuotaPolicy", text) == "producer_exception"


@pytest.mark.parametrize("text", ['"PRODUCER_EXCEPTION"', "7", '"7"', "true", "1.0", '""', "null"])
def test_unknown_enum_value_is_left_for_the_route_to_refuse(text: str) -> None:
    assert read("BacklogQuotaPolicy", text) == json.loads(text)


def test_members_of_lists_maps_and_objects_are_coerced_and_others_left() -> None:
    assert read("Map<BacklogQuota>", '{"q": {"limit": "5", "policy": "0", "other": "3"}, "r": 3}') == {
        "q": {"limit": 5, "policy": "producer_request_hold", "other": "3"},
        "r": 3,
    }
    assert read("Set<SubscriptionType>", '[1, "Failover"]') == ["Shared", "Failover"]
    assert read("Map<String, String>", '{"a": 1.50, "b": null}') == {"a": "1.50", "b": None}
    assert read("List<long>", '"3"') == "3"
    with pytest.raises(Refused, match=r"member\[1\] must be a whole number"):
        read("List<long>", '["3", "x"]')


def shown(answer: tuple[int, str]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[1]) if answer[1] else None


def test_the_limit_of_a_backlog_quota_as_a_text_is_a_number(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"{NS}/backlogQuota"
        status, text = await http.send("POST", path, {"limit": "10240", "policy": "producer_exception"})
        assert (status, text) == (204, "")
        quota = shown(await http.send("GET", f"{NS}/backlogQuotaMap"))["destination_storage"]
        assert (quota["limit"], quota["limitSize"]) == (10240, 10240)

    serving(body)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("messageTTL", "3", 3),
        ("messageTTL", 3.7, 3),
        ("maxProducersPerTopic", "", 0),
        ("deduplication", "true", True),
        ("deduplication", 1, True),
        ("encryptionRequired", None, False),
        ("isAllowAutoUpdateSchema", "", False),
        ("deduplicationSnapshotInterval", "", None),
        ("subscriptionTypesEnabled", [1], ["Shared"]),
        (
            "retention",
            {"retentionTimeInMinutes": "3", "retentionSizeInMB": "4"},
            {"retentionTimeInMinutes": 3, "retentionSizeInMB": 4},
        ),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": 1, "topicType": "PARTITIONED", "defaultNumPartitions": "3"},
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        ),
        (
            "publishRate",
            {"publishThrottlingRateInMsg": None},
            {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1},
        ),
    ],
)
def test_policies_are_set_with_what_apache_takes(serving: Serving, name: str, value: Any, found: Any) -> None:
    async def body(http: Http) -> None:
        status, text = await http.send("POST", f"{NS}/{name}", json.dumps(value).encode())
        assert (status, text) == (204, "")
        assert shown(await http.send("GET", f"{NS}/{name}")) == found

    serving(body)


def test_null_of_a_topic_is_0_or_takes_the_policy_away_as_in_apache(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        for name, found in (("maxConsumers", 0), ("maxUnackedMessagesOnConsumer", None)):
            for value in ("7", "", None):
                status, text = await http.send("POST", f"{TOPIC}/{name}", json.dumps(value).encode())
                assert (status, text) == (204, "")
                assert shown(await http.send("GET", f"{TOPIC}/{name}")) == (7 if value == "7" else found)

    serving(body)


def test_a_query_with_a_number_is_read_as_apache_reads_it(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        for text, status in (("%2B3", 204), ("3.5", 400), ("%203", 400), ("abc", 400)):
            answer = await http.send("POST", f"{TOPIC}/messageTTL?messageTTL={text}")
            assert answer[0] == status, (text, answer)
        assert shown(await http.send("GET", f"{TOPIC}/messageTTL")) == 3
        assert (await http.send("POST", f"{TOPIC}/messageTTL?messageTTL="))[0] == 204
        assert shown(await http.send("GET", f"{TOPIC}/messageTTL")) is None

    serving(body)
