"""`magnetar admin` about permissions, bundles, and what is done to all topics of a namespace."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main

from tests.integration.clients import publish
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

Asked = Callable[[str], Any]


def completed(endpoint: Endpoint, line: str) -> Result:
    return CliRunner().invoke(main, ["admin", "--admin-url", endpoint.http_url, *shlex.split(line)])


@pytest.fixture
def asked(endpoint: Endpoint) -> Asked:
    """Runs a command line, which has to succeed; returns the JSON that it printed, None for nothing."""

    def act(line: str) -> Any:
        done = completed(endpoint, line)
        assert done.exit_code == 0, (line, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    return act


def test_permissions(asked: Asked, rest: Rest) -> None:
    namespace = rest.new_namespace()
    topic = f"persistent://{namespace}/t"
    asked(f"topics create {topic}")
    asked(f"namespaces grant-permission {namespace} --role a/b --actions produce,consume")
    assert asked(f"namespaces permissions {namespace}") == {"a/b": ["consume", "produce"]}
    asked(f"topics grant-permission {topic} --role r --actions produce")
    assert asked(f"topics permissions {topic}") == {"a/b": ["consume", "produce"], "r": ["produce"]}
    asked(f"topics revoke-permission {topic} --role r")
    asked(f"namespaces revoke-permission {namespace} --role a/b")
    assert asked(f"topics permissions {topic}") == {}
    asked(f"namespaces grant-subscription-permission {namespace} --subscription 's/1' --roles r1,r2")
    asked(f"namespaces revoke-subscription-permission {namespace} --subscription 's/1' --role r1")
    assert asked(f"namespaces subscription-permission {namespace}") == {"s/1": ["r2"]}


def test_bundles(asked: Asked, rest: Rest) -> None:
    namespace = rest.new_namespace()
    for number in range(6):
        asked(f"topics create persistent://{namespace}/t{number}")
    first = "0x00000000_0x40000000"
    asked(f"namespaces split-bundle {namespace} -b {first} --unload")
    assert asked(f"namespaces bundles {namespace}")["boundaries"][:3] == [
        "0x00000000",
        "0x20000000",
        "0x40000000",
    ]
    there = "-san specified_positions_divide -sb 0x50000000,1610612736"
    asked(f"namespaces split-bundle {namespace} -b 0x40000000_0x80000000 {there}")
    assert {"0x50000000", "0x60000000"} <= set(asked(f"namespaces bundles {namespace}")["boundaries"])
    asked(f"namespaces split-bundle {namespace} -bt LARGEST -san topic_count_equally_divide")
    assert asked(f"namespaces bundles {namespace}")["numBundles"] == 8
    found: dict[str, int] = {}
    edges = asked(f"namespaces bundles {namespace}")["boundaries"]
    for lower, upper in pairwise(edges):
        shown = asked(f"namespaces get-topic-positions {namespace} -b {lower}_{upper}")["topicHashPositions"]
        assert all(int(lower, 16) <= position < int(upper, 16) for position in shown.values())
        found |= shown
    assert len(found) == 6
    one, position = next(iter(found.items()))
    bundle = next(
        f"{low}_{high}" for low, high in pairwise(edges) if int(low, 16) <= position < int(high, 16)
    )
    line = f"namespaces get-topic-positions {namespace} -b {bundle} -tl {one} -tl {one},persistent://a/b/c"
    assert asked(line)["topicHashPositions"] == {one: position}
    asked(f"namespaces unload {namespace} -b {bundle}")
    asked(f"namespaces unload {namespace}")


def test_all_backlogs_and_subscriptions_of_a_namespace(
    asked: Asked, rest: Rest, endpoint: Endpoint, client: pulsar.Client
) -> None:
    namespace = rest.new_namespace()
    topics = [f"persistent://{namespace}/t{number}" for number in range(3)]
    for topic in topics:
        asked(f"topics create {topic}")
        for subscription in ("s1", "s2"):
            asked(f"topics create-subscription {topic} -s {subscription} --messageId earliest")
        publish(client, topic, [b"m"] * 2)

    def behind() -> list[int]:
        found = [asked(f"topics stats {topic}")["subscriptions"] for topic in topics]
        return [each["msgBacklog"] for subscriptions in found for each in subscriptions.values()]

    assert behind() == [2] * 6
    done = completed(endpoint, f"namespaces clear-backlog {namespace}")
    assert done.exit_code == 1, "nobody said yes"
    assert behind() == [2] * 6
    asked(f"namespaces clear-backlog {namespace} --sub s1 --force")
    assert behind() == [0, 2] * 3
    asked(f"namespaces unsubscribe {namespace} --sub s1")
    assert behind() == [2] * 3
    asked(f"namespaces clear-backlog {namespace} --force")
    assert behind() == [0] * 3


def test_settings_without_a_place_in_the_table_of_policies(
    asked: Asked, rest: Rest, endpoint: Endpoint
) -> None:
    namespace = rest.new_namespace()
    asked(f"namespaces set-offload-threshold {namespace} --size 10M --time 1h")
    assert asked(f"namespaces get-offload-threshold {namespace}") == {
        "offloadThreshold": 10 << 20,
        "offloadThresholdInSeconds": 3600,
    }
    asked(f"namespaces set-offload-deletion-lag {namespace} --lag 10m")
    assert asked(f"namespaces get-offload-deletion-lag {namespace}") == 600_000
    asked(f"namespaces clear-offload-deletion-lag {namespace}")
    assert asked(f"namespaces get-offload-deletion-lag {namespace}") is None
    for verb in ("get", "remove"):
        assert asked(f"namespaces {verb}-resource-group {namespace}") is None
        assert asked(f"namespaces {verb}-entry-filters {namespace}") is None
    done = completed(endpoint, f"namespaces set-resource-group {namespace} -rgn rg1")
    assert "not supported yet" in done.stderr
    done = completed(endpoint, f"namespaces set-entry-filters {namespace} -efn f1")
    assert "entry filters are not supported" in done.stderr


def test_settings_of_topics(asked: Asked, rest: Rest, endpoint: Endpoint) -> None:
    topic = f"persistent://{rest.new_namespace()}/t"
    asked(f"topics create {topic}")
    cluster = endpoint.cluster
    for group in ("topics", "topicPolicies"):
        assert asked(f"{group} get-replication-clusters {topic}") is None
        assert asked(f"{group} get-replication-clusters {topic} --applied") == [cluster]
        asked(f"{group} set-replication-clusters {topic} -c {cluster}")
        assert asked(f"{group} get-replication-clusters {topic}") == [cluster]
        asked(f"{group} remove-replication-clusters {topic}")
    assert asked(f"topics get-shadow-topics {topic}") is None
    assert (
        "shadow topics are not supported yet"
        in completed(endpoint, f"topics set-shadow-topics {topic} -t x").stderr
    )
    asked(f"topics remove-shadow-topics {topic}")
    assert asked(f"topicPolicies get-entry-filters-per-topic {topic} -ap") == {"entryFilterNames": ""}
    asked(f"topicPolicies set-schema-compatibility-strategy {topic} --strategy full_transitive")
    assert asked(f"topicPolicies get-schema-compatibility-strategy {topic}") == "FULL_TRANSITIVE"
    asked(f"topicPolicies set-dispatcher-pause-on-ack-state-persistent {topic}")
    assert asked(f"topicPolicies get-dispatcher-pause-on-ack-state-persistent {topic}") is True


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("namespaces split-bundle public/default", "either --bundle or --bundle-type"),
        ("namespaces split-bundle public/default -b x -sb a", "must be numbers"),
        ("namespaces set-schema-autoupdate-strategy public/default", "either --compatibility or --disabled"),
        ("namespaces set-schema-compatibility-strategy public/default -c SIDEWAYS", "is not one of"),
        ("namespaces set-offload-policies public/default", "--driver"),
    ],
)
def test_a_command_line_that_is_wrong_says_why(endpoint: Endpoint, line: str, said: str) -> None:
    done = completed(endpoint, line)
    assert done.exit_code == 2, done.stderr
    assert said in " ".join(done.stderr.split())
